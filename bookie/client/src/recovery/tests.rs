//! The traces that are worth keeping (storage.md §3), and one test per rule of recovery.

use std::time::Duration;

use bookie_metadata::Txn;
use hulse_proto::bookie::{AddRequest, Address, Origin};
use hulse_proto::entry::{Entry, NewEntry, Totals};
use hulse_proto::id::{CellId, EntryId, LedgerId};
use hulse_proto::ledger::{
    Fragment, LedgerMetadata, LedgerState, LossKind, Member, Quorums, ledger_key,
};

use super::{BookieAsk, Policy, RecoveryConfig, RecoveryCore, RecoveryEffect, RecoveryEvent};
use crate::testing::{Limbo, MemoryLedgers, Mutant};
use crate::tests::{Table, data, member, open_metadata};
use crate::{ClientConfig, RecoverError};

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
                bookie.mutate(mutant);
                bookie
            })
            .collect();
        Self {
            table,
            bookies,
            mutant,
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
        config.mutant = self.mutant;
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
                RecoveryEffect::Done(result) => to.done = Some(result),
            }
        }
    }

    /// Delivers the kept asks that `wanted` chooses, and their answers; the others are lost.
    fn deliver(&mut self, to: &mut Recoverer, wanted: impl Fn(usize, &BookieAsk) -> bool) {
        for (position, member, ask) in std::mem::take(&mut to.asks) {
            if !wanted(position, &ask) {
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
        self.event(to, RecoveryEvent::Start);
        while to.done.is_none() {
            if to.asks.is_empty() {
                to.now = to.core.next_wakeup().unwrap().max(to.now);
                self.event(to, RecoveryEvent::Tick);
            }
            self.deliver(to, &wanted);
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

fn is_fence(ask: &BookieAsk) -> bool {
    matches!(ask, BookieAsk::Fence(_))
}

fn end_of(closed: &Result<LedgerMetadata, RecoverError>) -> u64 {
    closed.as_ref().unwrap().closed.unwrap().end.0
}

/// T1: the fence reaches b0 and b1 and is lost to b2; e0 is on b1; b0 and b2 are read first; then the writer's e0 reaches b2.
/// Returns whether the writer had two acks for e0, and where the ledger was closed.
fn trace_1(mutant: Option<Mutant>) -> (bool, u64) {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, mutant);
    let e0 = &entries(1)[0];
    let first = scene.add(1, e0, 0);
    let mut recoverer = scene.recoverer(1);
    scene.event(&mut recoverer, RecoveryEvent::Start);
    scene.deliver(&mut recoverer, |position, _| position != 2);
    // The fences are out, so only reads are left: b1's answer is lost.
    scene.deliver(&mut recoverer, |position, ask| {
        position != 1 && !is_fence(ask)
    });
    let closed = recoverer.done.take();
    let second = scene.add(2, e0, 0);
    let end = closed.map_or(0, |closed| end_of(&closed));
    (first && second, end)
}

#[test]
fn trace_1_read_of_an_unfenced_bookie_fences_it() {
    let (acked, end) = trace_1(None);
    assert!(!acked, "b2 must refuse the writer after its negative");
    assert_eq!(end, 0);
}

#[test]
fn trace_1_without_the_fence_on_reads_loses_an_acked_entry() {
    let (acked, end) = trace_1(Some(Mutant::ReadWithoutFence));
    assert!(acked && end == 0);
}

/// T2: the last fragment begins at entry 10, is empty, and its members know of no confirmed entry.
fn trace_2(mutant: Option<Mutant>) -> Result<LedgerMetadata, RecoverError> {
    let mut metadata = open_metadata(3, 3, 2);
    metadata.fragments.push(Fragment {
        first: EntryId(10),
        ensemble: vec![member(3), member(4), member(5)],
    });
    let mut scene = Scene::new(&metadata, 6, mutant);
    for entry in &entries(10) {
        for bookie in 0..3 {
            assert!(scene.add(bookie, entry, entry.header().entry.0));
        }
    }
    let mut recoverer = scene.recoverer(1);
    scene.run(&mut recoverer, |_, _| true)
}

#[test]
fn trace_2_empty_last_fragment_is_closed_at_its_first_entry() {
    let closed = trace_2(None).unwrap();
    let totals = closed.closed.unwrap();
    assert_eq!((totals.end, totals.offset_span), (EntryId(10), 10));
    assert_eq!(totals.digest, entries(10)[9].header().cumulative_digest);
    assert_eq!(closed.fragments.len(), 2);
}

#[test]
fn trace_2_recovery_from_zero_truncates_older_fragments() {
    assert_eq!(end_of(&trace_2(Some(Mutant::RecoverFromZero))), 0);
}

/// T4: entries 0 and 1 only on b0. Recoverer A's write-back of 0 is lost, that of 1 reaches b1; A dies. B then recovers.
fn trace_4(mutant: Option<Mutant>) -> (Result<LedgerMetadata, RecoverError>, usize) {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, mutant);
    let both = entries(2);
    for entry in &both {
        assert!(scene.add(0, entry, 0));
    }
    let mut a = scene.recoverer(1);
    scene.event(&mut a, RecoveryEvent::Start);
    scene.deliver(&mut a, |_, _| true);
    let of_one = |ask: &BookieAsk| match ask {
        BookieAsk::Add(request) => request.entry.header().entry == EntryId(1),
        _ => true,
    };
    for _ in 0..4 {
        scene.deliver(&mut a, |position, ask| position < 2 && of_one(ask));
    }
    assert!(a.done.is_none(), "A dies before it closes");
    assert!(scene.bookies[1].held(LEDGER, EntryId(1)).is_some());
    let mut b = scene.recoverer(2);
    let closed = scene.run(&mut b, |_, _| true);
    let copies = closed.as_ref().map_or(0, |closed| scene.copies(closed, 0));
    (closed, copies)
}

#[test]
fn trace_4_frozen_confirmed_end_gives_every_entry_its_copies() {
    let (closed, copies) = trace_4(None);
    assert_eq!(end_of(&closed), 2);
    assert!(copies >= 2, "{copies} copies");
}

#[test]
fn trace_4_recovery_that_raises_the_confirmed_end_leaves_one_copy() {
    let (closed, copies) = trace_4(Some(Mutant::RecoveryRaisesConfirmedEnd));
    assert_eq!(end_of(&closed), 2);
    assert_eq!(copies, 1);
}

#[test]
fn recovery_bumps_the_token_also_of_a_ledger_in_recovery() {
    let mut metadata = open_metadata(1, 1, 1);
    metadata.state = LedgerState::InRecovery;
    metadata.recovery_token = hulse_proto::id::FenceToken(7);
    let mut scene = Scene::new(&metadata, 1, None);
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true).unwrap();
    assert_eq!(closed.recovery_token.0, 8);
    assert_eq!(closed.writer_nonce, metadata.writer_nonce);
}

#[test]
fn recovery_with_one_hanging_bookie_finishes() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for entry in &entries(3) {
        scene.add(0, entry, 0);
        scene.add(1, entry, 0);
    }
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |position, _| position != 2);
    assert_eq!(end_of(&closed), 3);
    let degraded = &closed.unwrap().degraded;
    assert_eq!(degraded[0].bookies, vec![member(2).bookie]);
}

#[test]
fn recovery_without_coverage_never_closes() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |position, _| position == 0);
    assert!(
        matches!(failed, Err(RecoverError::Unavailable { .. })),
        "{failed:?}"
    );
    let row = scene.table.get(&ledger_key(LEDGER)).unwrap();
    let state = LedgerMetadata::decode(&row.value).unwrap().state;
    assert_eq!(state, LedgerState::InRecovery);
}

#[test]
fn recovery_with_unknown_reads_never_closes() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for bookie in 0..2 {
        scene.bookies[bookie].lose_from(LEDGER, EntryId(0), Limbo::Lost);
    }
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(failed, Err(RecoverError::Damaged { .. })),
        "{failed:?}"
    );
}

#[test]
fn recovery_ignores_what_lies_beyond_the_first_negative() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let all = entries(5);
    for number in [0, 1, 3, 4] {
        assert!(scene.add(0, &all[number], 0));
    }
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true);
    assert_eq!(end_of(&closed), 2);
}

#[test]
fn recovery_of_a_broken_chain_is_corrupt() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let first = &entries(1)[0];
    let wrong = data(5, 0).seal(LEDGER, EntryId(1), first.header().totals());
    assert!(scene.add(0, first, 0) && scene.add(0, &wrong, 0));
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(failed, Err(RecoverError::Corrupt { .. })),
        "{failed:?}"
    );
}

#[test]
fn recovery_begins_at_the_base_and_counts_from_its_anchor() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    for entry in &entries(50) {
        assert!(scene.add(0, entry, entry.header().entry.0));
    }
    let mut recoverer = scene.recoverer(1);
    scene.event(&mut recoverer, RecoveryEvent::Start);
    scene.deliver(&mut recoverer, |_, _| true);
    let asked: Vec<u64> = recoverer
        .asks
        .iter()
        .map(|(_, _, ask)| match ask {
            BookieAsk::Read(request) => request.entry.0,
            other => panic!("{other:?}"),
        })
        .collect();
    // The last add carried 49: entry 48 is the anchor, 49 is looked for.
    assert_eq!(asked, vec![48]);
    while recoverer.done.is_none() {
        scene.deliver(&mut recoverer, |_, _| true);
    }
    let totals = recoverer.done.unwrap().unwrap().closed.unwrap();
    assert_eq!((totals.end, totals.record_count), (EntryId(50), 50));
}

#[test]
fn recovery_beaten_at_its_close_adopts_the_other_result() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let mut slow = scene.recoverer(1);
    scene.event(&mut slow, RecoveryEvent::Start);
    scene.deliver(&mut slow, |_, _| true);
    let mut fast = scene.recoverer(2);
    let closed = scene.run(&mut fast, |_, _| true);
    while slow.done.is_none() {
        scene.deliver(&mut slow, |_, _| true);
    }
    // Its read meets the newer token first: it begins anew, and then finds the ledger closed.
    let ended = slow.done.unwrap();
    assert!(
        matches!(ended, Err(RecoverError::Superseded { .. })),
        "{ended:?}"
    );
    let mut again = scene.recoverer(3);
    assert_eq!(scene.run(&mut again, |_, _| true), closed);
}

#[test]
fn recovery_whose_guard_fails_is_refused_without_effect() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let before = scene.table.get(&ledger_key(LEDGER));
    let mut recoverer = scene.recoverer(1);
    let part = Txn {
        compares: vec![bookie_metadata::Compare::Exists("part/1".to_owned())],
        ops: Vec::new(),
    };
    let mut config = RecoveryConfig::new(
        CellId::default(),
        LEDGER,
        &ClientConfig::new(open_metadata(1, 1, 1).quorums),
        [[1; 16], [2; 16]],
    );
    config.part = part;
    recoverer.core = RecoveryCore::new(config);
    let refused = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(refused, Err(RecoverError::Conflict(_))),
        "{refused:?}"
    );
    assert_eq!(scene.table.get(&ledger_key(LEDGER)), before);
}

#[test]
fn unsynced_limbo_counts_only_when_coverage_fails_through_it() {
    // Two of three lost their unsynced tail; the third, synced, still holds the entry.
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for entry in &entries(4) {
        scene.add(2, entry, 0);
    }
    for bookie in 0..2 {
        scene.bookies[bookie].lose_from(LEDGER, EntryId(0), Limbo::Unsynced);
    }
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true);
    assert_eq!(end_of(&closed), 4);
    let loss = closed.unwrap().loss.unwrap();
    assert_eq!((loss.kind, loss.from), (LossKind::TailLost, EntryId(4)));
}

#[test]
fn accepted_loss_at_zero_seals_an_empty_ledger_when_nobody_answers() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let up_to = Some(EntryId(0));
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to });
    let closed = scene.run(&mut recoverer, |_, _| false);
    assert_eq!(end_of(&closed), 0);
    let loss = closed.unwrap().loss.unwrap();
    assert_eq!((loss.kind, loss.from), (LossKind::Accepted, EntryId(0)));
}

#[test]
fn accepted_loss_at_an_entry_that_is_not_there_is_refused() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let up_to = Some(EntryId(9));
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to });
    let refused = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(refused, Err(RecoverError::Damaged { .. })),
        "{refused:?}"
    );
}

#[test]
fn accepted_loss_never_empties_a_ledger_whose_bookies_are_merely_down() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to: None });
    let refused = scene.run(&mut recoverer, |_, _| false);
    assert!(
        matches!(refused, Err(RecoverError::Unavailable { .. })),
        "{refused:?}"
    );
}
