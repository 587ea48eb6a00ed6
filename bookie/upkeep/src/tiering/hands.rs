//! Drives the machines of tiering against metadata, bookies and buckets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bookie_client::metadata::{NonceField, NotCommitted, Proposal, commit, read_ledger};
use bookie_client::{BookieDirectory, LedgerClient};
use bookie_metadata::{Compare, MetadataStore, Op, Revision, Txn, TxnOutcome};
use bookie_tier::ObjectHands;
use bookie_tier::protocol::{
    AttemptCore, AttemptTask, Change, DropCore, Found, Fresh, RemovalCore, Step, SweepCore, Swept,
    TierEffect, TierEnd, TierEvent, TierLimits, Version,
};
use hulse_proto::bookie::{Address, BookieError};
use hulse_proto::id::{CellId, LedgerId, SegmentId};
use hulse_proto::ledger::{LedgerMetadata, Member, ledger_key};
use rand::Rng as _;
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::source::ClientSource;
use crate::pace::Pace;

/// What tiering is done with.
pub struct TierHands {
    /// The cluster.
    pub cell: CellId,
    /// The facts.
    pub metadata: Arc<dyn MetadataStore>,
    /// Who can be told to drop copies.
    pub bookies: Arc<dyn BookieDirectory>,
    /// Reads what is uploaded.
    pub client: LedgerClient,
    /// Buckets.
    pub objects: ObjectHands,
    /// How fast ledgers are read for it.
    pub pace: Arc<Pace>,
    /// Bounds of each machine.
    pub limits: TierLimits,
    /// A call of a bookie that is not answered for so long is not answered.
    pub answer_timeout: Duration,
    /// Metadata that do not answer for so long end a machine.
    pub metadata_timeout: Duration,
    /// For names of segments, and nonces.
    pub rng: Mutex<ChaCha12Rng>,
}

/// What one machine does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TierWork {
    /// Makes one object of these ledgers of a partition.
    Attempt(Vec<LedgerId>),
    /// Cleans up after attempts, reads a segment back and has bookies drop their copies.
    Drop(LedgerId),
    /// Removes a ledger that is marked as deleting.
    Removal(LedgerId),
    /// Deletes objects that nobody names. Every ledger below this number was given.
    Sweep(LedgerId),
}

enum Machine {
    Attempt(AttemptCore),
    Drop(DropCore),
    Removal(RemovalCore),
    Sweep(SweepCore),
}

impl TierHands {
    /// Does one work to its end. Safe to drop: what is left is found by the next one.
    pub async fn work(&self, work: &TierWork) -> TierEnd {
        let (mut machine, mut step) = match self.machine(work) {
            Ok(begun) => begun,
            Err(end) => return end,
        };
        loop {
            let effect = match step {
                Step::Do(effect) => effect,
                Step::End(end) => return end,
            };
            let event = self.carry_out(effect).await;
            step = match &mut machine {
                Machine::Attempt(core) => core.on_event(event),
                Machine::Drop(core) => core.on_event(event),
                Machine::Removal(core) => core.on_event(event),
                Machine::Sweep(core) => core.on_event(event),
            };
        }
    }

    fn machine(&self, work: &TierWork) -> Result<(Machine, Step), TierEnd> {
        let swept = &self.objects.swept;
        let bucket = self.objects.buckets.get(swept);
        let bucket = bucket.map_err(|error| TierEnd::Failed(error.into()))?;
        let (name, prefix) = (bucket.name().to_owned(), bucket.prefix().to_owned());
        let limits = self.limits;
        let (machine, step) = match work {
            TierWork::Attempt(ledgers) => {
                let task = AttemptTask {
                    cell: self.cell,
                    ledgers: ledgers.clone(),
                    bucket: name,
                    prefix,
                };
                let core = AttemptCore::new(task, limits);
                let step = core.start();
                (Machine::Attempt(core), step)
            }
            TierWork::Drop(ledger) => {
                let core = DropCore::new(*ledger, limits);
                let step = core.start();
                (Machine::Drop(core), step)
            }
            TierWork::Removal(ledger) => {
                let core = RemovalCore::new(*ledger, limits);
                let step = core.start();
                (Machine::Removal(core), step)
            }
            TierWork::Sweep(ledgers_given) => {
                let swept = Swept {
                    cell: self.cell,
                    bucket: name,
                    prefix,
                    ledgers_given: *ledgers_given,
                };
                let core = SweepCore::new(swept, limits);
                let step = core.start();
                (Machine::Sweep(core), step)
            }
        };
        Ok((machine, step))
    }

    async fn carry_out(&self, effect: TierEffect) -> TierEvent {
        let source = ClientSource {
            client: self.client.clone(),
            pace: Arc::clone(&self.pace),
        };
        match self.objects.carry_out(effect, &source).await {
            Ok(event) => event,
            Err(TierEffect::Look(ledgers)) => self.look(&ledgers).await,
            Err(TierEffect::Propose(changes)) => self.propose(changes).await,
            Err(TierEffect::DropCopies(ledger, members)) => {
                TierEvent::Dropped(self.drop_copies(ledger, &members).await)
            }
            Err(other) => TierEvent::Blind(format!("nobody carries out {other:?}")),
        }
    }

    fn fresh(&self) -> Fresh {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        Fresh {
            segment: SegmentId(Uuid::from_bytes(rng.random())),
            nonce: rng.random(),
        }
    }

    async fn look(&self, ledgers: &[LedgerId]) -> TierEvent {
        let mut all: Vec<Found> = Vec::with_capacity(ledgers.len());
        for ledger in ledgers {
            let read = read_ledger(&*self.metadata, *ledger);
            let found = match timeout(self.metadata_timeout, read).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return TierEvent::Blind(error.to_string()),
                Err(_) => return TierEvent::Blind("no answer in time".to_owned()),
            };
            all.push(found.map(|(metadata, version)| (metadata, Version(version.0))));
        }
        TierEvent::Looked(all, self.fresh())
    }

    /// One transaction. The first ledger's nonce tells what became of it when its answer is lost (amended M3).
    async fn propose(&self, changes: Vec<Change>) -> TierEvent {
        let mut changes = changes.into_iter();
        let Some(first) = changes.next() else {
            return TierEvent::Beaten;
        };
        let mut part = Txn::default();
        for change in changes {
            let key = ledger_key(change.ledger);
            part.compares.push(compare(&change));
            part.ops.push(match &change.value {
                Some(value) => Op::put(key, value.encode()),
                None => Op::Delete { key },
            });
        }
        match &first.value {
            Some(value) => self.put(&first, value, part).await,
            None => self.remove(&first, part).await,
        }
    }

    async fn put(&self, change: &Change, value: &LedgerMetadata, part: Txn) -> TierEvent {
        let (key, version) = (ledger_key(change.ledger), Revision(change.version.0));
        let proposal = Proposal::new(key, Some(version), value, NonceField::Tier, part);
        let deadline = Instant::now() + self.metadata_timeout;
        match commit(&*self.metadata, proposal, Some(deadline)).await {
            Ok(_) => TierEvent::Committed,
            Err(NotCommitted::Failed { .. }) => TierEvent::Beaten,
            Err(NotCommitted::Store(error)) => TierEvent::Silent(error.to_string()),
            Err(NotCommitted::Unknown(why)) => TierEvent::Silent(why),
        }
    }

    /// The end of a key. With its answer lost, the next look tells: nobody makes the key again.
    async fn remove(&self, change: &Change, mut txn: Txn) -> TierEvent {
        txn.compares.push(compare(change));
        let key = ledger_key(change.ledger);
        txn.ops.push(Op::Delete { key });
        match timeout(self.metadata_timeout, self.metadata.txn(txn)).await {
            Ok(Ok(TxnOutcome::Committed { .. })) => TierEvent::Committed,
            Ok(Ok(TxnOutcome::Conflict { .. })) => TierEvent::Beaten,
            Ok(Err(error)) => TierEvent::Silent(error.to_string()),
            Err(_) => TierEvent::Silent("no answer in time".to_owned()),
        }
    }

    /// A tombstone at each: what it holds is nobody's any more, and no copy is taken again.
    async fn drop_copies(&self, ledger: LedgerId, members: &[Member]) -> Result<(), String> {
        for member in members {
            let calls = self.bookies.calls(member);
            let calls = calls.ok_or_else(|| format!("{} is not connected", member.bookie))?;
            let to = Address {
                cell: self.cell,
                incarnation: member.incarnation,
                ledger,
            };
            match timeout(self.answer_timeout, calls.delete(to)).await {
                // The data of another life of the disk are gone with that life.
                Ok(
                    Ok(())
                    | Err(BookieError::Deleted { .. } | BookieError::WrongIncarnation { .. }),
                ) => {}
                Ok(Err(error)) => return Err(format!("{}: {error}", member.bookie)),
                Err(_) => return Err(format!("{} does not answer in time", member.bookie)),
            }
        }
        Ok(())
    }
}

fn compare(change: &Change) -> Compare {
    Compare::Version(ledger_key(change.ledger), Revision(change.version.0))
}
