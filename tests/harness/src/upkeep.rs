//! Repair in its first form (storage.md X2, X5, X6): copies what members lack, and replaces members of fragments that change no more.
//!
//! The intent of X4 does not exist yet, and no bookie removes anything by itself: it copies all, verifies, then swaps on the exact
//! version it began with. So its swaps come between the writer's changes and recovery's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{Compare, MetadataStore, Op, Revision, Txn, TxnOutcome};
use hulse_proto::bookie::{AddRequest, Address, BookieCalls, Origin, ReadClass, ReadRequest};
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{Fragment, LedgerMetadata, LedgerState, Member, Quorums, ledger_key};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tokio::time::{sleep, timeout};

use crate::bookie::Endpoint;
use crate::process::Process;
use crate::trace;
use crate::world::World;

/// How long it waits for a bookie.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(900);
/// Entries that one round copies at most.
const ENTRIES_MAX: u64 = 60;

/// Repair, as a process.
pub struct Upkeep {
    world: Arc<World>,
    process: Process,
    store: Arc<dyn MetadataStore>,
    endpoints: BTreeMap<String, Endpoint>,
    rng: ChaCha12Rng,
}

/// What one round works at.
struct Round {
    ledger: LedgerId,
    metadata: LedgerMetadata,
    version: Revision,
    /// Which fragment, and where it ends.
    place: usize,
    bound: EntryId,
}

impl Round {
    fn fragment(&self) -> &Fragment {
        &self.metadata.fragments[self.place]
    }

    fn entries(&self) -> impl Iterator<Item = EntryId> + use<> {
        (self.fragment().first.0..self.bound.0).map(EntryId)
    }
}

impl Upkeep {
    /// One that has done nothing yet.
    pub fn new(world: &Arc<World>, process: Process) -> Self {
        Self {
            store: world.upkeep_metadata(&process),
            endpoints: world.endpoints(&process),
            rng: world.seeds.stream(process.name()),
            world: world.clone(),
            process,
        }
    }

    /// Works until its process dies.
    pub async fn run(mut self) {
        loop {
            sleep(Duration::from_millis(self.rng.random_range(50..900))).await;
            if self.process.is_dead() {
                return;
            }
            let Some(round) = self.choose().await else {
                continue;
            };
            if self.rng.random_bool(0.5) {
                self.fill(&round).await;
            } else if self.swap(&round).await.is_none() {
                trace!(self.world.trace, "{} gives up", self.process.name());
            }
        }
    }

    /// A fragment that changes no more: of a closed ledger, or not the last one of an open one (X2).
    async fn choose(&mut self) -> Option<Round> {
        let ledgers = self.world.store.ledgers();
        let (number, _) = ledgers.choose(&mut self.rng)?;
        let ledger = LedgerId(*number);
        let found = self.store.get(&ledger_key(ledger)).await.ok()??;
        let metadata = LedgerMetadata::decode(&found.value).ok()?;
        let end = match metadata.state {
            LedgerState::Closed => metadata.closed?.end,
            LedgerState::Open => metadata.last_fragment().first,
            _ => return None,
        };
        let places: Vec<usize> = (0..metadata.fragments.len())
            .filter(|place| metadata.fragments[*place].first < end)
            .collect();
        let place = *places.choose(&mut self.rng)?;
        let next = metadata.fragments.get(place + 1);
        let bound = next.map_or(end, |next| next.first.min(end));
        Some(Round {
            ledger,
            version: found.version,
            place,
            bound,
            metadata,
        })
    }

    /// Gives members what they lack.
    async fn fill(&mut self, round: &Round) {
        let members = round.fragment().ensemble.clone();
        for entry in round.entries().take(ENTRIES_MAX as usize) {
            let Some(found) = self.find(round, entry).await else {
                continue;
            };
            for position in write_set(round.metadata.quorums, entry) {
                let member = &members[position];
                if self.read(member, round.ledger, entry).await.is_none() {
                    trace!(
                        self.world.trace,
                        "{} gives {} entry {entry} of {}",
                        self.process.name(),
                        member.bookie,
                        round.ledger
                    );
                    self.copy(member, round, found.clone()).await;
                    self.world.counts.add("copies made by repair");
                }
            }
        }
    }

    /// Replaces a member after the new one has proved that it holds everything.
    async fn swap(&mut self, round: &Round) -> Option<()> {
        let ensemble = &round.fragment().ensemble;
        let position = self.rng.random_range(0..ensemble.len());
        let members = self.world.bookies.iter().filter_map(|b| b.member());
        let spares: Vec<Member> = members
            .filter(|member| !ensemble.contains(member))
            .collect();
        let spare = spares.choose(&mut self.rng)?.clone();
        if round.bound.0 - round.fragment().first.0 > ENTRIES_MAX {
            return None;
        }
        let quorums = round.metadata.quorums;
        for entry in round.entries() {
            if !write_set(quorums, entry).any(|at| at == position) {
                continue;
            }
            let found = self.find(round, entry).await?;
            let digest = found.header().digest();
            if !self.copy(&spare, round, found).await {
                return None;
            }
            let kept = self.read(&spare, round.ledger, entry).await?;
            if kept.header().digest() != digest {
                return None;
            }
        }
        let mut metadata = round.metadata.clone();
        metadata.fragments[round.place].ensemble[position] = spare.clone();
        let key = ledger_key(round.ledger);
        let txn = Txn {
            compares: vec![Compare::Version(key.clone(), round.version)],
            ops: vec![Op::put(key, metadata.encode())],
        };
        trace!(
            self.world.trace,
            "{} swaps position {position} of fragment {} of {} for {}",
            self.process.name(),
            round.place,
            round.ledger,
            spare.bookie
        );
        if let Ok(TxnOutcome::Committed { .. }) = self.store.txn(txn).await {
            self.world.counts.add(match round.metadata.state {
                LedgerState::Open => "members of open ledgers replaced by repair",
                _ => "members of closed ledgers replaced by repair",
            });
        }
        Some(())
    }

    /// The entry, from any member that has it.
    async fn find(&self, round: &Round, entry: EntryId) -> Option<Entry> {
        for position in write_set(round.metadata.quorums, entry) {
            let member = &round.fragment().ensemble[position];
            if let Some(found) = self.read(member, round.ledger, entry).await {
                return Some(found);
            }
        }
        None
    }

    fn address(&self, member: &Member, ledger: LedgerId) -> Address {
        Address {
            cell: self.world.cell,
            incarnation: member.incarnation,
            ledger,
        }
    }

    async fn read(&self, member: &Member, ledger: LedgerId, entry: EntryId) -> Option<Entry> {
        let request = ReadRequest {
            to: self.address(member, ledger),
            first: entry,
            end: entry.next(),
            max_bytes: u32::MAX,
            class: ReadClass::CatchUp,
        };
        let asked = self.endpoints.get(member.bookie.as_str())?.read(request);
        let answer = timeout(ANSWER_TIMEOUT, self.process.heard(asked)).await;
        let found = answer.ok()??.ok()?.into_iter().next()?.entry;
        let right = found.verify().is_ok() && found.header().entry == entry;
        right.then_some(found)
    }

    async fn copy(&self, member: &Member, round: &Round, entry: Entry) -> bool {
        let Some(endpoint) = self.endpoints.get(member.bookie.as_str()) else {
            return false;
        };
        let request = AddRequest {
            to: self.address(member, round.ledger),
            origin: Origin::Copy { bound: round.bound },
            confirmed_end: EntryId(0),
            entry,
            timeout: ANSWER_TIMEOUT,
        };
        let asked = self.process.heard(endpoint.add(request));
        matches!(timeout(ANSWER_TIMEOUT, asked).await, Ok(Some(Ok(()))))
    }
}

/// Positions that should hold an entry.
fn write_set(quorums: Quorums, entry: EntryId) -> impl Iterator<Item = usize> {
    let ensemble = u64::from(quorums.ensemble);
    (0..u64::from(quorums.write)).map(move |next| ((entry.0 + next) % ensemble) as usize)
}
