//! Finds the first record that is not older than a time.
//!
//! The running maximum in the envelopes says where to begin, and the records themselves have the last word: headers come from
//! producers. What is recorded as lost is passed over (`losses`); records below the log start are not there any more, wherever they
//! still lie.
//!
//! Opening a batch takes time and memory: it is done beside the tasks that serve, by few at a time over the whole broker, and a
//! look-up that has to open many waits for its turn anew at each entry.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::batch::{self, BatchError, BatchHeader};
use hulse_proto::bookie::{EntryHead, ReadClass};
use hulse_proto::entry::Envelope;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{EntryId, LedgerId, Offset};
use hulse_proto::time::TimestampMs;
use tokio::sync::Semaphore;

use super::reader::{LogReader, Search, damaged, decode_envelope, split};
use crate::storage_fault;

/// Heads asked for at a time; the first entry is mostly the one.
const SCAN_BYTES: u32 = 64 << 10;
/// Entries whose batches are opened at the same time, over all partitions of a broker.
const OPENED_MAX: usize = 2;

/// Turns of the look-ups that open batches. One per broker.
#[derive(Debug, Clone)]
pub(crate) struct TimeTurns(Arc<Semaphore>);

impl TimeTurns {
    /// All are free.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(OPENED_MAX)))
    }

    /// Does `work` beside the tasks of the runtime when its turn has come. Work that has begun keeps its turn to its end, also when
    /// nobody waits for it any more.
    async fn take<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<impl FnOnce() -> T + Send + 'static, Fault>>,
    ) -> Result<T, Fault> {
        let turn = self.0.clone().acquire_owned().await;
        let turn = turn.expect("this semaphore is never closed");
        let work = work.await?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.map_err(|error| {
            Fault::new(
                Reason::Internal,
                format!("a look-up by time ended by itself: {error}"),
            )
        })
    }
}

/// The records that are looked for.
#[derive(Clone, Copy)]
struct Wanted {
    /// Not older than this.
    timestamp: TimestampMs,
    /// Not below the log start.
    floor: Offset,
}

impl LogReader {
    /// Cancel-safe.
    pub(crate) async fn offset_at_time(
        &self,
        timestamp: TimestampMs,
        turns: &TimeTurns,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        loop {
            let floor = self.log_start();
            let found = self.find(Wanted { timestamp, floor }, turns).await;
            // A trim may have come meanwhile: what was looked at may be gone.
            if self.log_start() == floor {
                return found;
            }
        }
    }

    /// The first of the records with the highest timestamp. The last entry's running maximum says which that is, unless that record
    /// was trimmed: then the headers say it. Should no record have it (a header may name a later time than its records have, or the
    /// record is lost), there is none. Cancel-safe.
    pub(crate) async fn offset_of_max_time(
        &self,
        turns: &TimeTurns,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        let Some(highest) = self.running_max().await? else {
            return Ok(None);
        };
        let found = self.offset_at_time(highest, turns).await?;
        let floor = self.log_start();
        if found.is_some() || floor == Offset(0) {
            return Ok(found);
        }
        match self.highest_kept(floor).await? {
            Some(highest) => self.offset_at_time(highest, turns).await,
            None => Ok(None),
        }
    }

    fn log_start(&self) -> Offset {
        self.with_view(|view| view.offsets().log_start)
    }

    /// The ledgers that hold records at or above `floor`, oldest first.
    fn kept(&self, floor: Offset) -> Vec<Search> {
        self.with_view(|view| {
            let spans = view.ledgers.iter();
            let kept = spans.filter(|span| span.end_entry > EntryId(0) && span.end > floor);
            kept.map(|span| Search::whole(span, ReadClass::CatchUp))
                .collect()
        })
    }

    async fn find(
        &self,
        wanted: Wanted,
        turns: &TimeTurns,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        for mut search in self.kept(wanted.floor) {
            self.begin_at(&mut search, wanted.floor).await?;
            if let Some(entry) = search.entry_at_time(wanted.timestamp).await?
                && let Some(found) = first_record_from(&search, entry, wanted, turns).await?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The highest timestamp that any record had, trimmed ones included, as the headers say; `None`: nothing is held.
    async fn running_max(&self) -> Result<Option<TimestampMs>, Fault> {
        for search in self.kept(Offset(0)).into_iter().rev() {
            if let Some(last) = search.last_head().await? {
                return search.running_max(&last).map(Some);
            }
        }
        Ok(None)
    }

    /// The highest timestamp that a header of a kept entry claims.
    async fn highest_kept(&self, floor: Offset) -> Result<Option<TimestampMs>, Fault> {
        let mut highest = None;
        for mut search in self.kept(floor) {
            self.begin_at(&mut search, floor).await?;
            let mut next = search.below;
            while next < search.end_entry {
                let (heads, after) = heads(&search, next).await?;
                let batches = heads.iter().flat_map(|(_, envelope)| &envelope.batches);
                highest = batches.map(|batch| batch.max_timestamp).max().max(highest);
                next = after;
            }
        }
        Ok(highest)
    }
}

impl Search {
    fn running_max(&self, head: &EntryHead) -> Result<TimestampMs, Fault> {
        let envelope = decode_envelope(self.ledger, head.header.entry, &head.envelope)?;
        Ok(envelope.running_max_timestamp)
    }

    /// An entry at or above `below` with nothing as late as `timestamp` before it, and something behind it or in it.
    async fn entry_at_time(&self, timestamp: TimestampMs) -> Result<Option<EntryId>, Fault> {
        let Some(last) = self.last_head().await? else {
            return Ok(None);
        };
        if self.running_max(&last)? < timestamp {
            return Ok(None);
        }
        // running_max_timestamp is monotone over entries (storage.md, amendment to 4.4), so halving finds the first: what is there
        // below `below` is too early, what is there from `above` on is not.
        let (mut below, mut above) = (self.below.0, last.header.entry.0);
        while below < above {
            let middle = below.midpoint(above);
            match self.head_after_loss(EntryId(middle)).await? {
                Some(head) if self.running_max(&head)? < timestamp => {
                    below = head.header.entry.0 + 1;
                }
                Some(_) | None => above = middle,
            }
        }
        Ok(Some(EntryId(below)))
    }
}

/// Some envelopes from `next` on, which is below the end, and the entry behind them; none where a loss is passed over.
async fn heads(
    search: &Search,
    next: EntryId,
) -> Result<(Vec<(EntryId, Envelope)>, EntryId), Fault> {
    let heads = search
        .reader
        .read_heads(next, search.end_entry, SCAN_BYTES, search.class);
    let heads = match heads.await {
        Err(error) if search.is_lost(next, &error) => {
            return Ok((Vec::new(), search.after_loss(next).await?.0));
        }
        heads => heads.map_err(|error| storage_fault::read(search.ledger, &error))?,
    };
    let Some(last) = heads.last() else {
        return Err(damaged(
            search.ledger,
            &"a ledger answered no entry where one must be",
        ));
    };
    let after = last.header.entry.next();
    let decoded = heads.iter().map(|head| {
        let entry = head.header.entry;
        Ok((
            entry,
            decode_envelope(search.ledger, entry, &head.envelope)?,
        ))
    });
    Ok((decoded.collect::<Result<_, Fault>>()?, after))
}

/// The first record in time from `entry` on. Mostly it is in that entry; but a header may name a later time than its records
/// have, and the running maximum survives the loss of the record that set it.
async fn first_record_from(
    search: &Search,
    entry: EntryId,
    wanted: Wanted,
    turns: &TimeTurns,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    let mut next = entry;
    while next < search.end_entry {
        let (heads, after) = heads(search, next).await?;
        next = after;
        for (entry, envelope) in heads {
            let claimed = envelope.batches.iter();
            if claimed.map(|batch| batch.max_timestamp).max() < Some(wanted.timestamp) {
                continue;
            }
            let batches = late_batches(search, entry, wanted.timestamp);
            let ledger = search.ledger;
            let look = async move {
                let batches = batches.await?;
                Ok(move || first_record(ledger, &batches, wanted))
            };
            if let Some(found) = turns.take(look).await?? {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// The batches of an entry that claim to reach `timestamp`; none of an entry that is lost.
async fn late_batches(
    search: &Search,
    entry: EntryId,
    timestamp: TimestampMs,
) -> Result<Vec<Bytes>, Fault> {
    let read = search.reader.read(entry, entry.next(), 1, search.class);
    let entries = match read.await {
        Err(error) if search.is_lost(entry, &error) => return Ok(Vec::new()),
        entries => entries.map_err(|error| storage_fault::read(search.ledger, &error))?,
    };
    let mut late = Vec::new();
    for entry in &entries {
        let envelope = decode_envelope(search.ledger, entry.header().entry, &entry.envelope())?;
        let batches = split(&envelope, &entry.body())?;
        let claimed = envelope.batches.iter().zip(batches);
        let claimed = claimed.filter(|(info, _)| info.max_timestamp >= timestamp);
        late.extend(claimed.map(|(_, batch)| batch));
    }
    Ok(late)
}

/// The first record in time of these batches.
fn first_record(
    ledger: LedgerId,
    batches: &[Bytes],
    wanted: Wanted,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    for batch in batches {
        let header = BatchHeader::view(batch).map_err(|error| damaged(ledger, &error))?;
        let base = header.base_offset;
        // What a producer compressed into nonsense has no records; readers say so when they come to it.
        let offset = |delta: u32| Offset(base.0 + u64::from(delta));
        let found = batch::find_record(batch, |record| {
            record.timestamp >= wanted.timestamp && offset(record.offset_delta) >= wanted.floor
        });
        if let Err(BatchError::DecodedTooLarge { .. }) = found {
            // Its records are not known, and none of them is passed over: too early an offset does no harm.
            return Ok(Some((base.max(wanted.floor), header.max_timestamp)));
        }
        if let Some(record) = found.unwrap_or_default() {
            return Ok(Some((offset(record.offset_delta), record.timestamp)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// Work that counts that it has begun and waits for a word.
    #[derive(Clone)]
    struct Gated {
        begun: Arc<AtomicUsize>,
        gate: Arc<Mutex<Receiver<()>>>,
    }

    impl Gated {
        fn new() -> (Self, Sender<()>) {
            let (open, gate) = channel();
            let gated = Self {
                begun: Arc::default(),
                gate: Arc::new(Mutex::new(gate)),
            };
            (gated, open)
        }

        fn take(&self, turns: &TimeTurns) -> tokio::task::JoinHandle<Result<(), Fault>> {
            let (gated, turns) = (self.clone(), turns.clone());
            let work = move || {
                gated.begun.fetch_add(1, Ordering::SeqCst);
                gated.gate.lock().unwrap().recv().unwrap();
            };
            tokio::spawn(async move { turns.take(async { Ok(work) }).await })
        }

        async fn begun(&self, expected: usize) {
            while self.begun.load(Ordering::SeqCst) < expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test]
    async fn turn_is_kept_by_work_that_nobody_waits_for_until_it_is_done() {
        let turns = TimeTurns::new();
        let (gated, open) = Gated::new();
        let first: Vec<_> = (0..OPENED_MAX).map(|_| gated.take(&turns)).collect();
        gated.begun(OPENED_MAX).await;
        first.iter().for_each(|task| task.abort());
        let next = gated.take(&turns);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(gated.begun.load(Ordering::SeqCst), OPENED_MAX);
        open.send(()).unwrap();
        gated.begun(OPENED_MAX + 1).await;
        (0..OPENED_MAX).for_each(|_| open.send(()).unwrap());
        next.await.unwrap().unwrap();
    }
}
