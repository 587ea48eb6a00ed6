//! Which of the log retention lets go: whole ledgers, oldest first.

use hulse_proto::bookie::ReadClass;
use hulse_proto::error::Fault;
use hulse_proto::id::{EntryId, LedgerId, Offset};
use hulse_proto::time::TimestampMs;

use super::reader::{LogReader, Search, decode_envelope};
use crate::retention::Limits;

/// A closed ledger as retention sees it.
struct Candidate {
    ledger: LedgerId,
    end: Offset,
    bytes: u64,
    created_at: TimestampMs,
    last_append: Option<TimestampMs>,
    /// To read its last entry's append time; `None`: it has no entry.
    search: Option<Search>,
}

impl LogReader {
    /// Where the log shall begin when what `limits` do not keep at `now` (the owner's clock) goes; `None`: it stays as it is.
    /// `open`: the last ledger is being written to.
    ///
    /// # Errors
    /// As of a read: an old ledger's last append time is unknown until its last entry was looked at.
    pub(crate) async fn cut(
        &self,
        limits: Limits,
        now: TimestampMs,
        open: bool,
    ) -> Result<Option<Offset>, Fault> {
        let (mut total, closed) = self.candidates(open);
        let mut cut = None;
        for candidate in closed {
            let rest = total - candidate.bytes;
            let too_much = limits.bytes.is_some_and(|bytes| rest >= bytes);
            if !too_much && !self.has_expired(&candidate, limits, now).await? {
                break;
            }
            total = rest;
            cut = Some(candidate.end);
        }
        let start = self.with_view(|view| view.offsets().log_start);
        Ok(cut.filter(|cut| *cut > start))
    }

    /// Bytes of all ledgers that are served, and the closed ones, oldest first.
    fn candidates(&self, open: bool) -> (u64, Vec<Candidate>) {
        self.with_view(|view| {
            let start = view.offsets().log_start;
            let served = view.ledgers.partition_point(|span| span.end <= start);
            let served = &view.ledgers[served..];
            let total = served.iter().map(|span| span.bytes).sum();
            let closed = served.len() - usize::from(open && !served.is_empty());
            let candidates = served[..closed].iter().map(|span| Candidate {
                ledger: span.ledger,
                end: span.end,
                bytes: span.bytes,
                created_at: span.created_at,
                last_append: span.last_append,
                search: (span.end_entry > EntryId(0))
                    .then(|| Search::whole(span, ReadClass::CatchUp)),
            });
            (total, candidates.collect())
        })
    }

    async fn has_expired(
        &self,
        candidate: &Candidate,
        limits: Limits,
        now: TimestampMs,
    ) -> Result<bool, Fault> {
        let Some(time) = limits.time else {
            return Ok(false);
        };
        let Ok(time) = TimestampMs::try_from(time.as_millis()) else {
            return Ok(false);
        };
        let expired = |at: TimestampMs| at.saturating_add(time) <= now;
        match (candidate.last_append, &candidate.search) {
            (Some(at), _) => Ok(expired(at)),
            // Nothing was appended before it was made, so nothing can be that old.
            (None, Some(_)) if !expired(candidate.created_at) => Ok(false),
            (None, Some(search)) => {
                let Some(at) = last_append(search).await? else {
                    return Ok(true);
                };
                self.with_view(|view| {
                    let mut spans = view.ledgers.iter_mut();
                    if let Some(span) = spans.find(|span| span.ledger == candidate.ledger) {
                        span.last_append = Some(at);
                    }
                });
                Ok(expired(at))
            }
            (None, None) => Ok(true),
        }
    }
}

/// The append time of a ledger's last entry that is there; `None`: all are recorded as lost.
async fn last_append(search: &Search) -> Result<Option<TimestampMs>, Fault> {
    let Some(head) = search.last_head().await? else {
        return Ok(None);
    };
    let envelope = decode_envelope(search.ledger, head.header.entry, &head.envelope)?;
    Ok(Some(envelope.append_time))
}
