//! Makes the calls of one repair.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bookie_client::BookieDirectory;
use bookie_client::metadata::{NonceField, NotCommitted, Proposal, commit, read_ledger};
use bookie_metadata::{MetadataStore, Revision, Txn};
use futures::future::Future;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::bookie::{
    AddRequest, Address, BookieError, Call, InventoryRequest, Origin, ReadClass, ReadRequest,
};
use hulse_proto::entry::Entry;
use hulse_proto::id::{CellId, EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, Member, ledger_key};
use rand::Rng as _;
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, sleep, timeout};

use super::core::RepairCore;
use super::event::{RepairEffect, RepairEnd, RepairEvent, RepairFailure, RepairLimits, RepairTask};
use crate::pace::Pace;

/// Before a copy is sent again.
const COPY_AGAIN: Duration = Duration::from_millis(250);

/// What repairs are made with.
pub struct Hands {
    /// The cluster.
    pub cell: CellId,
    /// The facts.
    pub metadata: Arc<dyn MetadataStore>,
    /// Who can be called.
    pub bookies: Arc<dyn BookieDirectory>,
    /// How fast.
    pub pace: Pace,
    /// Bounds of each repair.
    pub limits: RepairLimits,
    /// A call that is not answered for so long is not answered.
    pub answer_timeout: Duration,
    /// Metadata that do not answer for so long end a repair.
    pub metadata_timeout: Duration,
    /// Bytes of one read.
    pub read_bytes: u32,
    /// For nonces.
    pub rng: Mutex<ChaCha12Rng>,
}

type EventToCome<'a> = Pin<Box<dyn Future<Output = RepairEvent> + Send + 'a>>;

/// Does a task to its end. Safe to drop: an intent that is left behind is used or removed by the next repair of the same member.
pub async fn repair(hands: &Hands, task: RepairTask) -> RepairEnd {
    let mut core = RepairCore::new(task.clone(), hands.limits);
    let mut effects = vec![core.start()];
    let mut pending = FuturesUnordered::<EventToCome<'_>>::new();
    loop {
        for effect in effects.drain(..) {
            match effect {
                RepairEffect::End(end) => return end,
                other => pending.push(hands.carry_out(&task, other)),
            }
        }
        let Some(event) = pending.next().await else {
            // The core always waits for something; if it ever does not, that is no success.
            let why = "the repair waits for nothing: report it".to_owned();
            return RepairEnd::Failed(RepairFailure::Metadata(why));
        };
        core.on_event(event, &mut effects);
    }
}

impl Hands {
    fn carry_out<'a>(&'a self, task: &RepairTask, effect: RepairEffect) -> EventToCome<'a> {
        let ledger = task.ledger;
        let target = task.new.clone();
        match effect {
            RepairEffect::Look => Box::pin(self.look(ledger)),
            RepairEffect::Propose(metadata, version) => {
                Box::pin(self.propose(ledger, metadata, version))
            }
            RepairEffect::Read { member, first, end } => Box::pin(async move {
                let answer = self.read(ledger, &member, first, end).await;
                RepairEvent::Read {
                    member,
                    first,
                    answer,
                }
            }),
            RepairEffect::Copy {
                entry,
                bound,
                again,
            } => Box::pin(async move {
                if again {
                    sleep(COPY_AGAIN).await;
                }
                let number = entry.header().entry;
                let answer = self.copy(ledger, &target, entry, bound).await;
                RepairEvent::Copied {
                    entry: number,
                    answer,
                }
            }),
            RepairEffect::Prove { first, end } => Box::pin(async move {
                let request = InventoryRequest {
                    to: self.address(ledger, &target),
                    ledgers_end: LedgerId(ledger.0.saturating_add(1)),
                    first,
                    end,
                    digests: true,
                };
                let asked = self.call(&target, |calls| calls.inventory(request));
                RepairEvent::Proved(asked.await)
            }),
            RepairEffect::End(_) => Box::pin(std::future::ready(RepairEvent::Beaten)),
        }
    }

    async fn look(&self, ledger: LedgerId) -> RepairEvent {
        let read = read_ledger(&*self.metadata, ledger);
        let nonce = self
            .rng
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .random();
        match timeout(self.metadata_timeout, read).await {
            Ok(Ok(found)) => RepairEvent::Looked(found.map(Box::new), nonce),
            Ok(Err(error)) => RepairEvent::Silent(error.to_string()),
            Err(_) => RepairEvent::Silent("no answer in time".to_owned()),
        }
    }

    async fn propose(
        &self,
        ledger: LedgerId,
        metadata: Box<LedgerMetadata>,
        version: Revision,
    ) -> RepairEvent {
        let (key, field) = (ledger_key(ledger), NonceField::Repair);
        let proposal = Proposal::new(key, Some(version), &metadata, field, Txn::default());
        let deadline = Instant::now() + self.metadata_timeout;
        match commit(&*self.metadata, proposal, Some(deadline)).await {
            Ok(found) => RepairEvent::Committed(Box::new((found.metadata, found.version))),
            Err(NotCommitted::Failed { .. }) => RepairEvent::Beaten,
            Err(NotCommitted::Store(error)) => RepairEvent::Silent(error.to_string()),
            // It may land yet, and is as right then as now: its version is compared. The next repair sees what became of it.
            Err(NotCommitted::Unknown(why)) => RepairEvent::Silent(why),
        }
    }

    fn address(&self, ledger: LedgerId, member: &Member) -> Address {
        Address {
            cell: self.cell,
            incarnation: member.incarnation,
            ledger,
        }
    }

    async fn read(
        &self,
        ledger: LedgerId,
        member: &Member,
        first: EntryId,
        end: EntryId,
    ) -> Result<Vec<Entry>, BookieError> {
        let request = ReadRequest {
            to: self.address(ledger, member),
            first,
            end,
            max_bytes: self.read_bytes,
            class: ReadClass::CatchUp,
        };
        let found = self.call(member, |calls| calls.read(request)).await?;
        Ok(found.into_iter().map(|stored| stored.entry).collect())
    }

    async fn copy(
        &self,
        ledger: LedgerId,
        target: &Member,
        entry: Entry,
        bound: EntryId,
    ) -> Result<(), BookieError> {
        self.pace.spend(entry.header().entry_len() as u64).await;
        let request = AddRequest {
            to: self.address(ledger, target),
            origin: Origin::Copy { bound },
            confirmed_end: EntryId(0),
            entry,
            timeout: self.answer_timeout,
        };
        self.call(target, |calls| calls.add(request)).await
    }

    async fn call<T>(
        &self,
        member: &Member,
        ask: impl FnOnce(Arc<dyn hulse_proto::bookie::BookieCalls>) -> Call<T>,
    ) -> Result<T, BookieError> {
        let no_answer = |why: &str| BookieError::NoAnswer {
            why: why.to_owned(),
        };
        let calls = self.bookies.calls(member);
        let calls = calls.ok_or_else(|| no_answer("bookie is not connected"))?;
        let answer = timeout(self.answer_timeout, ask(calls)).await;
        answer.unwrap_or_else(|_| Err(no_answer("no answer in time")))
    }
}
