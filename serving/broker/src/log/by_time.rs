//! Finds the first record that is not older than a time.
//!
//! The running maximum in the envelopes says where to begin, and the records themselves have the last word: headers come from
//! producers. What is recorded as lost is passed over (`losses`).
//!
//! Opening a batch takes time and memory: it is done beside the tasks that serve, by few at a time over the whole broker, and a
//! look-up that has to open many waits for its turn anew at each entry.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::batch::{self, BatchError, BatchHeader};
use hulse_proto::bookie::{EntryHead, ReadClass};
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

impl LogReader {
    /// Cancel-safe.
    pub(crate) async fn offset_at_time(
        &self,
        timestamp: TimestampMs,
        turns: &TimeTurns,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        for search in self.filled() {
            if let Some(entry) = search.entry_at_time(timestamp).await?
                && let Some(found) = first_record_from(&search, entry, timestamp, turns).await?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first of the records with the highest timestamp. The last entry's running maximum says which that is; should no record
    /// have it (a header may name a later time than its records have, or the record is lost), there is none. Cancel-safe.
    pub(crate) async fn offset_of_max_time(
        &self,
        turns: &TimeTurns,
    ) -> Result<Option<(Offset, TimestampMs)>, Fault> {
        for search in self.filled().into_iter().rev() {
            if let Some(last) = search.last_head().await? {
                let highest = search.running_max(&last)?;
                return self.offset_at_time(highest, turns).await;
            }
        }
        Ok(None)
    }

    /// The ledgers that hold anything, in order.
    fn filled(&self) -> Vec<Search> {
        self.with_view(|view| {
            let spans = view.ledgers.iter();
            let filled = spans.filter(|span| span.end_entry > EntryId(0));
            filled
                .map(|span| Search::whole(span, ReadClass::CatchUp))
                .collect()
        })
    }
}

impl Search {
    fn running_max(&self, head: &EntryHead) -> Result<TimestampMs, Fault> {
        let envelope = decode_envelope(self.ledger, head.header.entry, &head.envelope)?;
        Ok(envelope.running_max_timestamp)
    }

    /// An entry with nothing as late as `timestamp` before it, and something behind it or in it.
    async fn entry_at_time(&self, timestamp: TimestampMs) -> Result<Option<EntryId>, Fault> {
        let Some(last) = self.last_head().await? else {
            return Ok(None);
        };
        if self.running_max(&last)? < timestamp {
            return Ok(None);
        }
        // running_max_timestamp is monotone over entries (storage.md, amendment to 4.4), so halving finds the first: what is there
        // below `below` is too early, what is there from `above` on is not.
        let (mut below, mut above) = (0, last.header.entry.0);
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

/// The first record in time from `entry` on. Mostly it is in that entry; but a header may name a later time than its records
/// have, and the running maximum survives the loss of the record that set it.
async fn first_record_from(
    search: &Search,
    entry: EntryId,
    timestamp: TimestampMs,
    turns: &TimeTurns,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    let mut next = entry;
    while next < search.end_entry {
        let heads = search
            .reader
            .read_heads(next, search.end_entry, SCAN_BYTES, search.class);
        let heads = match heads.await {
            Err(error) if search.is_lost(next, &error) => {
                next = search.after_loss(next).await?.0;
                continue;
            }
            heads => heads.map_err(|error| storage_fault::read(search.ledger, &error))?,
        };
        let Some(last) = heads.last() else {
            return Err(damaged(
                search.ledger,
                &"a ledger answered no entry where one must be",
            ));
        };
        next = last.header.entry.next();
        for head in &heads {
            let entry = head.header.entry;
            let envelope = decode_envelope(search.ledger, entry, &head.envelope)?;
            let claimed = envelope.batches.iter();
            if claimed.map(|batch| batch.max_timestamp).max() >= Some(timestamp) {
                let batches = late_batches(search, entry, timestamp);
                let ledger = search.ledger;
                let look = async move {
                    let batches = batches.await?;
                    Ok(move || first_record(ledger, &batches, timestamp))
                };
                if let Some(found) = turns.take(look).await?? {
                    return Ok(Some(found));
                }
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
    timestamp: TimestampMs,
) -> Result<Option<(Offset, TimestampMs)>, Fault> {
    for batch in batches {
        let header = BatchHeader::view(batch).map_err(|error| damaged(ledger, &error))?;
        let base = header.base_offset;
        // What a producer compressed into nonsense has no records; readers say so when they come to it.
        let found = batch::find_record(batch, |record| record.timestamp >= timestamp);
        if let Err(BatchError::DecodedTooLarge { .. }) = found {
            // Its records are not known, and none of them is passed over: too early an offset does no harm.
            return Ok(Some((base, header.max_timestamp)));
        }
        if let Some(record) = found.unwrap_or_default() {
            let offset = Offset(base.0 + u64::from(record.offset_delta));
            return Ok(Some((offset, record.timestamp)));
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
