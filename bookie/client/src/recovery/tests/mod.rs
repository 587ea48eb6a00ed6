//! Tests of the recovery core: a scene with bookies and a store, whose messages a test delivers or loses.

mod rules;
mod traces;

use std::time::Duration;

use hulse_proto::bookie::{AddRequest, Address, Origin};
use hulse_proto::entry::{Entry, NewEntry, Totals};
use hulse_proto::id::{CellId, EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, Member, Quorums, ledger_key};

use super::{BookieAsk, Policy, RecoveryConfig, RecoveryCore, RecoveryEffect, RecoveryEvent};
use crate::testing::MemoryLedgers;
use crate::tests::{Table, data, member};
use crate::{Candidate, ClientConfig, RecoverError};
use hulse_proto::mutant::{Mutant, Mutation};

const LEDGER: LedgerId = LedgerId(1);

/// Entries `0..count` of one ledger.
fn entries(count: u64) -> Vec<Entry> {
    let mut before = Totals::default();
    (0..count)
        .map(|number| {
            let new: NewEntry = data(number, number as u8);
            let entry = new.seal(LEDGER, EntryId(number), before);
            before = entry.header().totals();
            entry
        })
        .collect()
}

/// Bookies, a store, and the asks of one recoverer that have not been delivered.
struct Scene {
    table: Table,
    bookies: Vec<MemoryLedgers>,
    mutant: Option<Mutant>,
    /// Bookies that may replace a member.
    spares: Vec<usize>,
}

/// All of `spares` live and writable.
fn candidates(bookies: &[MemoryLedgers], spares: &[usize]) -> Vec<Candidate> {
    let candidate = |index: &usize| Candidate {
        member: bookies[*index].member().clone(),
        live: true,
        writable: true,
        zone: String::new(),
    };
    spares.iter().map(candidate).collect()
}

struct Recoverer {
    core: RecoveryCore,
    now: Duration,
    asks: Vec<(usize, Member, BookieAsk)>,
    done: Option<Result<LedgerMetadata, RecoverError>>,
}

impl Scene {
    fn new(metadata: &LedgerMetadata, bookies: usize, mutant: Option<Mutant>) -> Self {
        let mut table = Table::default();
        table.put(&ledger_key(LEDGER), metadata.encode());
        let bookies = (0..bookies)
            .map(|index| {
                let mut bookie = MemoryLedgers::new(CellId::default(), member(index));
                bookie.mutate(Mutation::of(mutant));
                bookie
            })
            .collect();
        Self {
            table,
            bookies,
            mutant,
            spares: Vec::new(),
        }
    }

    /// The writer's add of an entry reaches a bookie; true when it is acked.
    fn add(&mut self, bookie: usize, entry: &Entry, confirmed_end: u64) -> bool {
        let to = Address {
            cell: CellId::default(),
            incarnation: member(bookie).incarnation,
            ledger: LEDGER,
        };
        let request = AddRequest {
            to,
            origin: Origin::Normal,
            confirmed_end: EntryId(confirmed_end),
            entry: entry.clone(),
            timeout: Duration::from_secs(1),
        };
        self.bookies[bookie].add(&request).is_ok()
    }

    fn recoverer(&self, tag: u8) -> Recoverer {
        self.recoverer_with(tag, Policy::Strict)
    }

    fn recoverer_with(&self, tag: u8, policy: Policy) -> Recoverer {
        let quorums = Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        };
        let mut config = RecoveryConfig::new(
            CellId::default(),
            LEDGER,
            &ClientConfig::new(quorums),
            [[tag; 16], [tag + 100; 16]],
        );
        config.policy = policy;
        config.mutation = Mutation::of(self.mutant);
        Recoverer {
            core: RecoveryCore::new(config),
            now: Duration::ZERO,
            asks: Vec::new(),
            done: None,
        }
    }

    /// Gives an event; metadata answers at once, asks are kept.
    fn event(&mut self, to: &mut Recoverer, event: RecoveryEvent) {
        for effect in to.core.on_event(to.now, event) {
            match effect {
                RecoveryEffect::ReadMetadata(key) => {
                    let answer = Ok(self.table.get(&key));
                    self.event(to, RecoveryEvent::MetadataRead(answer));
                }
                RecoveryEffect::Commit(txn) => {
                    let answer = Ok(self.table.txn(txn));
                    self.event(to, RecoveryEvent::MetadataAnswer(answer));
                }
                RecoveryEffect::Ask {
                    position,
                    member,
                    ask,
                } => to.asks.push((position, member, ask)),
                RecoveryEffect::ListBookies => {
                    let spares = candidates(&self.bookies, &self.spares);
                    self.event(to, RecoveryEvent::Listed(Ok(spares)));
                }
                RecoveryEffect::Done(result) => to.done = Some(result),
            }
        }
    }

    /// Delivers the kept asks that `wanted` chooses, and their answers; the others are lost.
    fn deliver(&mut self, to: &mut Recoverer, wanted: impl Fn(usize, &BookieAsk) -> bool) {
        self.deliver_where(to, |position, _, ask| wanted(position, ask));
    }

    /// As [`Scene::deliver`]; `wanted` is told the member too, since write-back may go to others than the frozen ensemble.
    fn deliver_where(
        &mut self,
        to: &mut Recoverer,
        wanted: impl Fn(usize, &Member, &BookieAsk) -> bool,
    ) {
        for (position, member, ask) in std::mem::take(&mut to.asks) {
            if !wanted(position, &member, &ask) {
                continue;
            }
            let bookie = self
                .bookies
                .iter_mut()
                .find(|bookie| *bookie.member() == member)
                .unwrap();
            let event = match ask {
                BookieAsk::Fence(request) => RecoveryEvent::Fenced {
                    position,
                    result: bookie.fence(request),
                },
                BookieAsk::Read(request) => RecoveryEvent::Read {
                    position,
                    entry: request.entry,
                    result: bookie.recovery_read(request),
                },
                BookieAsk::Add(request) => RecoveryEvent::Added {
                    position,
                    entry: request.entry.header().entry,
                    from: member.clone(),
                    result: bookie.add(&request),
                },
            };
            self.event(to, event);
        }
    }

    /// Runs a recoverer to its end; asks that `wanted` does not choose are lost every time.
    fn run(
        &mut self,
        to: &mut Recoverer,
        wanted: impl Fn(usize, &BookieAsk) -> bool,
    ) -> Result<LedgerMetadata, RecoverError> {
        self.run_where(to, |position, _, ask| wanted(position, ask))
    }

    /// As [`Scene::run`]; `wanted` is told the member too.
    fn run_where(
        &mut self,
        to: &mut Recoverer,
        wanted: impl Fn(usize, &Member, &BookieAsk) -> bool,
    ) -> Result<LedgerMetadata, RecoverError> {
        self.event(to, RecoveryEvent::Start);
        while to.done.is_none() {
            if to.asks.is_empty() {
                to.now = to.core.next_wakeup().unwrap().max(to.now);
                self.event(to, RecoveryEvent::Tick);
            }
            self.deliver_where(to, &wanted);
        }
        to.done.take().unwrap()
    }

    fn copies(&self, metadata: &LedgerMetadata, entry: u64) -> usize {
        let ensemble = &metadata.fragment_of(EntryId(entry)).ensemble;
        self.bookies
            .iter()
            .filter(|bookie| ensemble.contains(bookie.member()))
            .filter(|bookie| bookie.held(LEDGER, EntryId(entry)).is_some())
            .count()
    }
}

fn end_of(closed: &Result<LedgerMetadata, RecoverError>) -> u64 {
    closed.as_ref().unwrap().closed.unwrap().end.0
}
