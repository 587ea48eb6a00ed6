//! Whether an open partition is still this broker's, for those who are told where its log ends.
//!
//! Appends need no such look: bookies refuse those of a former owner. But a broker that is cut off from metadata alone, or that was
//! frozen, would go on telling the end of a log that another one continues. So an end is told only by an owner:
//!
//! # Invariants
//! 1. While the broker's lease vouches for the partition, nobody can have taken it over (`owners::lease`), and nothing is asked.
//! 2. Else metadata say that its key is still this owner's, or enough bookies that its open ledger is not fenced
//!    ([`bookie_client::Fences`]), both asked after whoever wants to know came, or not longer ago than they bear.
//! 3. When neither can be had, nobody is told an end; when another one is owner, the partition ends here.
//!
//! At most one look at a time is under way for a partition, and all who wait share the next one.
//!
//! The high watermark that goes along with something else (a delivery, an attachment, an opened lane, a fetch that has records) is no such
//! word: nobody stops reading or begins anew by it, and it is told as it is known here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bookie_client::Fences;
use bookie_metadata::{Revision, Versioned};
use futures::future::{Either, select};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata::Partition;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{sleep, timeout};

use super::handle::{Command, LogOffsets, PartitionHandle};
use super::ownership::moved;
use crate::Partitions;
use crate::keys::partition_key;
use crate::owners::{Moment, Term, holder_of};

/// Those who wait at the end of a log, or come again and again, have it looked at so often. An answer to them may be as old.
const AT_THE_END: Duration = Duration::from_secs(1);
/// Who could not be told comes again after this.
const UNTOLD: Duration = Duration::from_millis(500);

/// What is known of a partition's ownership.
pub(crate) struct Tenure {
    /// The version of its key that this owner wrote.
    won: Revision,
    /// The last term of the broker's lease in which it was seen to be this broker's.
    term: AtomicU64,
    /// Made at the first look, as few partitions are ever in doubt.
    looks: OnceLock<Box<Looks>>,
}

/// Looks at one partition, one after the other.
#[derive(Default)]
struct Looks {
    /// How many were begun.
    begun: AtomicU64,
    /// The last one that is over. Whoever holds it looks.
    last: Mutex<Option<Look>>,
}

/// A look that is over.
struct Look {
    number: u64,
    begun: Moment,
    ended: Moment,
    found: Result<(), Fault>,
}

impl Look {
    /// It was begun after so many others, or answers who came at this moment and bears what is so old. That nothing could be learnt is as
    /// old as its end: who waited for it would wait as long for nothing again.
    fn answers(&self, (begun, came): (u64, Moment), old: Duration) -> bool {
        let said = match self.found {
            Ok(()) => self.begun,
            Err(_) => self.ended,
        };
        self.number > begun || (!old.is_zero() && came.since(said) <= old)
    }
}

/// What one of those asked says.
enum Word {
    /// It was this broker's when it was asked.
    Ours,
    /// It is another's.
    Lost(Fault),
    /// Nothing.
    Silent,
}

impl Tenure {
    /// Won with this version of the key, in this term.
    pub(super) fn new(won: Revision, term: Term) -> Self {
        Self {
            won,
            term: AtomicU64::new(term),
            looks: OnceLock::new(),
        }
    }

    fn term(&self) -> Term {
        self.term.load(Ordering::Relaxed)
    }
}

impl Partitions {
    /// Answers when whoever waits at the ends of logs should look at them again, as this broker may not own them any more. Never while
    /// its lease stands. Cancel-safe.
    pub async fn doubted(&self) {
        let lease = &self.with.lease;
        let term = lease.term();
        match lease.vouches_for(term) {
            true => lease.doubted(term).await,
            false => sleep(AT_THE_END).await,
        }
    }
}

impl PartitionHandle {
    /// Where the log begins and ends, to be told to somebody: of a partition that is this broker's. Nothing is asked while the broker's
    /// lease stands. Cancel-safe.
    ///
    /// # Errors
    /// The fault that ended the partition; `METADATA_UNAVAILABLE`: neither metadata nor bookies say whether it is this broker's still.
    pub async fn told_offsets(&self) -> Result<LogOffsets, Fault> {
        self.certain_within(Duration::ZERO).await?;
        Ok(self.offsets())
    }

    /// As [`PartitionHandle::told_offsets`], to whoever asks again and again: it may have been so a second ago.
    ///
    /// # Errors
    /// As there.
    pub async fn told_offsets_again(&self) -> Result<LogOffsets, Fault> {
        self.certain_within(AT_THE_END).await?;
        Ok(self.offsets())
    }

    /// True while nothing need be asked before an end is told.
    pub fn is_certain(&self) -> bool {
        let shared = &self.0;
        shared.with.lease.vouches_for(shared.tenure.term()) && self.ended().is_none()
    }

    /// Refuses an offset at which no read can begin, once it is certain that the log does not go on elsewhere: else a client that has
    /// read further there would be told to begin anew. Cancel-safe.
    ///
    /// # Errors
    /// `OFFSET_OUT_OF_RANGE` with `log_start` and `high_watermark`; `DATA_DAMAGED` where nothing is certain; and those of
    /// [`PartitionHandle::told_offsets`].
    pub async fn check_offset(&self, start: Offset) -> Result<(), Fault> {
        let log_start = self.offsets().log_start;
        match self.check(start) {
            // Where it begins only moves on, whoever moves it.
            Err(fault) if fault.reason == Reason::OffsetOutOfRange && start >= log_start => {
                self.told_offsets().await?;
                self.check(start)
            }
            checked => checked,
        }
    }

    /// For those who wait at the end of the log: looks again and again while the partition is in doubt, and answers why it ended, once
    /// it has. Costs nothing while the broker's lease stands. Cancel-safe.
    pub(crate) async fn lost(&self) -> Fault {
        let Self(shared) = self;
        loop {
            shared.with.lease.doubted(shared.tenure.term()).await;
            let looked = self.certain_within(AT_THE_END).await;
            if let Some(ended) = looked.err().and(self.ended()) {
                return ended;
            }
            sleep(AT_THE_END).await;
        }
    }

    /// Answers when the partition is certainly this broker's, or was at most `old` ago.
    async fn certain_within(&self, old: Duration) -> Result<(), Fault> {
        if let Some(ended) = self.ended() {
            return Err(ended);
        }
        let Self(shared) = self;
        let (lease, tenure) = (&shared.with.lease, &shared.tenure);
        if lease.vouches_for(tenure.term()) {
            return Ok(());
        }
        let looks = tenure.looks.get_or_init(Box::default);
        let came = (looks.begun.load(Ordering::SeqCst), lease.now());
        let mut last = looks.last.lock().await;
        // Whoever was before may have found it.
        if lease.vouches_for(tenure.term()) && self.ended().is_none() {
            return Ok(());
        }
        if let Some(look) = last.as_ref().filter(|look| look.answers(came, old)) {
            return look.found.clone();
        }
        let number = looks.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let begun = lease.now();
        let found = self.look().await;
        *last = Some(Look {
            number,
            begun,
            ended: lease.now(),
            found: found.clone(),
        });
        found
    }

    /// Asks metadata and bookies, and believes whoever knows.
    async fn look(&self) -> Result<(), Fault> {
        let asking = (Box::pin(self.by_key()), Box::pin(self.by_fences()));
        // Once metadata answer again their word is waited for: it holds for as long as the lease does.
        let word = if self.0.with.lease.stands() {
            match asking.0.await {
                Word::Silent => asking.1.await,
                word => word,
            }
        } else {
            match select(asking.0, asking.1).await {
                Either::Left((Word::Silent, bookies)) => bookies.await,
                Either::Right((Word::Silent, key)) => key.await,
                Either::Left((word, _)) | Either::Right((word, _)) => word,
            }
        };
        match word {
            Word::Ours => Ok(()),
            Word::Lost(why) => Err(self.end_as_lost(why)),
            Word::Silent => Err(untold()),
        }
    }

    async fn by_key(&self) -> Word {
        let Self(shared) = self;
        let with = &shared.with;
        // Before the question: what is registered later may come after another owner.
        let term = with.lease.term();
        let key = partition_key(shared.id);
        let look = async {
            let _turn = with.doubts.acquire().await;
            with.metadata.get(&key).await
        };
        match timeout(with.client.config().metadata_fresh, look).await {
            Ok(Ok(Some(found))) if found.version == shared.tenure.won => {
                shared.tenure.term.store(term, Ordering::Relaxed);
                Word::Ours
            }
            Ok(Ok(found)) => Word::Lost(self.taken_by(found)),
            Ok(Err(_)) | Err(_) => Word::Silent,
        }
    }

    fn taken_by(&self, found: Option<Versioned>) -> Fault {
        let Some(found) = found else {
            return Fault::new(Reason::TopicDeleting, "the topic was deleted");
        };
        let record = Partition::decode(found.value).ok();
        let holder = record.and_then(|record| holder_of(&record, found.version));
        holder.map_or_else(moved, |holder| {
            self.0.with.owners.taken_by(self.0.id, &holder)
        })
    }

    async fn by_fences(&self) -> Word {
        let Self(shared) = self;
        let Some(reader) = shared.log.with_view(|view| view.last_reader()) else {
            return Word::Silent;
        };
        let fresh = shared.with.client.config().metadata_fresh;
        match timeout(fresh, reader.fences()).await {
            Ok(Fences::Free) => Word::Ours,
            Ok(Fences::Fenced) => Word::Lost(moved()),
            Ok(Fences::Unknown) | Err(_) => Word::Silent,
        }
    }

    /// Nobody is served from here any more. What was appended is still answered, by those that fenced it.
    fn end_as_lost(&self, why: Fault) -> Fault {
        let Self(shared) = self;
        tracing::warn!(partition = %shared.id, epoch = %shared.epoch, %why, "the partition went to another broker, or was deleted, while this one could not hear of it");
        shared.shown.end(why.clone());
        let (done, _) = oneshot::channel();
        let stop = Command::Stop {
            why: why.clone(),
            done,
        };
        // A task that is gone needs no word.
        let _ = shared.commands.send(stop);
        self.ended().unwrap_or(why)
    }
}

fn untold() -> Fault {
    let why = "neither metadata nor enough bookies say whether the partition is still this broker's, so its end is not told; retry, or look the partition up at another broker";
    Fault::new(Reason::MetadataUnavailable, why).retry_after(UNTOLD)
}
