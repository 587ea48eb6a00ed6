//! What the owner knows of its log: ledgers in order, the ends, the tail. Shared by the task, which confirms, and readers, which look
//! and note where they found entries.

use bookie_client::LedgerReader;
use hulse_proto::id::{EntryId, LedgerId, Offset, OwnerEpoch};
use hulse_proto::time::TimestampMs;

use super::TailBudget;
use super::index::EntryIndex;
use super::tail::{LogEntry, Tail};
use crate::partition::LogOffsets;

/// One ledger of the log.
pub(crate) struct LedgerSpan {
    pub(crate) ledger: LedgerId,
    pub(crate) base: Offset,
    /// Of the owner that made it.
    pub(crate) epoch: OwnerEpoch,
    /// The offsets `[gap_start, base)` were lost (storage.md R14, amendment to M1).
    pub(crate) gap_start: Option<Offset>,
    /// Exclusive; of the open ledger: what is confirmed.
    pub(crate) end: Offset,
    /// Exclusive; of the open ledger: what is confirmed.
    pub(crate) end_entry: EntryId,
    pub(crate) bytes: u64,
    /// When it was made, ms since 1970; 0: not known.
    pub(crate) created_at: TimestampMs,
    /// Append time of its last entry, once it is known.
    pub(crate) last_append: Option<TimestampMs>,
    pub(crate) reader: LedgerReader,
    pub(crate) index: EntryIndex,
}

impl LedgerSpan {
    /// A ledger that begins at `base` and of which nothing is confirmed; the caller of a closed one sets its ends.
    pub(crate) fn new(
        ledger: LedgerId,
        base: Offset,
        epoch: OwnerEpoch,
        reader: LedgerReader,
    ) -> Self {
        let index = EntryIndex::starting_at(base);
        Self {
            ledger,
            base,
            epoch,
            gap_start: None,
            end: base,
            end_entry: EntryId(0),
            bytes: 0,
            created_at: 0,
            last_append: None,
            reader,
            index,
        }
    }
}

/// The log.
pub(crate) struct LogView {
    pub(super) ledgers: Vec<LedgerSpan>,
    pub(super) tail: Tail,
    offsets: LogOffsets,
}

impl LogView {
    /// A log of these ledgers. `end` is the high watermark; above the last ledger's end after a recorded loss.
    pub(crate) fn new(
        ledgers: Vec<LedgerSpan>,
        log_start: Offset,
        end: Offset,
        budget: TailBudget,
    ) -> Self {
        let stored_bytes = ledgers.iter().map(|span| span.bytes).sum();
        let offsets = LogOffsets {
            log_start,
            high_watermark: end,
            stored_bytes,
        };
        Self {
            ledgers,
            tail: Tail::new(budget),
            offsets,
        }
    }

    /// The ends, now.
    pub(crate) fn offsets(&self) -> LogOffsets {
        self.offsets
    }

    /// The highest epoch up to `epoch` under which records stand, and where its records end: what a reader that saw `epoch`
    /// compares its position with (serving.md C4.5). Below every ledger's epoch: `epoch` itself and the log's first offset.
    pub(crate) fn end_of_epoch(&self, epoch: OwnerEpoch) -> (OwnerEpoch, Offset) {
        let after = self.ledgers.partition_point(|span| span.epoch <= epoch);
        let end = match self.ledgers.get(after) {
            Some(next) => next.base,
            None => self.offsets.high_watermark,
        };
        match after.checked_sub(1) {
            Some(last) => (self.ledgers[last].epoch, end),
            None => (epoch, end),
        }
    }

    /// A new open ledger follows.
    pub(crate) fn push_ledger(&mut self, span: LedgerSpan) {
        // No more room than that: most partitions have one.
        self.ledgers.reserve_exact(1);
        self.ledgers.push(span);
    }

    /// The next entry of the open ledger is confirmed. Answers the new ends.
    pub(crate) fn confirm(&mut self, entry: LogEntry) -> LogOffsets {
        let span = self
            .ledgers
            .last_mut()
            .expect("an entry is confirmed only in a ledger that was pushed");
        span.index.note_sparsely(entry.first, entry.entry);
        span.end = entry.end;
        span.end_entry = entry.entry.next();
        span.bytes += entry.payload_len as u64;
        span.last_append = Some(entry.envelope.append_time);
        self.offsets.high_watermark = entry.end;
        self.offsets.stored_bytes += entry.payload_len as u64;
        self.tail.push(entry);
        self.offsets
    }

    /// The log begins at `to` from now on, which metadata say already. Answers the new ends.
    pub(crate) fn move_start(&mut self, to: Offset) -> LogOffsets {
        self.offsets.log_start = self.offsets.log_start.max(to);
        self.tail.drop_before(self.offsets.log_start);
        self.offsets
    }

    /// The oldest ledgers of which nothing is served any more, and whether there are more that only wait for a snapshot up to their
    /// end (`covered`: there is one so far; storage.md P6 as amended). The last ledger is never among them while it is `open`.
    pub(crate) fn superfluous(&self, covered: Offset, open: bool) -> (Vec<LedgerId>, bool) {
        let closed = self.ledgers.len() - usize::from(open && !self.ledgers.is_empty());
        let below = self.ledgers[..closed]
            .iter()
            .take_while(|span| span.end <= self.offsets.log_start);
        let (mut gone, mut waiting) = (Vec::new(), false);
        for span in below {
            if span.end > covered {
                waiting = true;
                break;
            }
            gone.push(span.ledger);
        }
        (gone, waiting)
    }

    /// Append time of the newest entry, where it was appended here.
    pub(crate) fn last_append(&self) -> Option<TimestampMs> {
        self.ledgers.last()?.last_append
    }

    /// Reads of the newest ledger: the open one, where there is one.
    pub(crate) fn last_reader(&self) -> Option<LedgerReader> {
        Some(self.ledgers.last()?.reader.clone())
    }

    /// All ledgers, oldest first.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = LedgerId> {
        self.ledgers.iter().map(|span| span.ledger)
    }

    /// The oldest `count` ledgers are unlinked. Answers the new ends.
    pub(crate) fn drop_first(&mut self, count: usize) -> LogOffsets {
        for span in self.ledgers.drain(..count.min(self.ledgers.len())) {
            self.offsets.stored_bytes = self.offsets.stored_bytes.saturating_sub(span.bytes);
        }
        self.offsets
    }

    /// Called from time to time by the owner: an idle partition gives its memory to busy ones.
    pub(crate) fn cool(&mut self) {
        self.tail.cool();
    }

    /// The ledger that holds `offset`, or the first one after it when it lies in a gap.
    pub(super) fn ledger_at(&self, offset: Offset) -> Option<usize> {
        let index = self.ledgers.partition_point(|span| span.end <= offset);
        (index < self.ledgers.len()).then_some(index)
    }
}
