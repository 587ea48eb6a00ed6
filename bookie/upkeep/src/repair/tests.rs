//! Repairs over memory bookies: what they copy, what they write into metadata, and which races they lose.

use bookie_client::ReadError;
use bookie_client::testing::Fault;
use bookie_metadata::Txn;
use bookie_metadata::testing::Fate;
use hulse_proto::bookie::{BookieError, ReadClass};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{Degraded, LedgerMetadata, LedgerState, Loss, LossKind, Member};

use super::{RepairEnd, RepairFailure, RepairTask, repair};
use crate::tests::Cell;

/// The member at a position and a bookie that is none.
async fn old_and_spare(cell: &Cell, ledger: LedgerId, position: usize) -> (Member, Member) {
    let metadata = cell.metadata(ledger).await;
    let ensemble = &metadata.last_fragment().ensemble;
    let all = (0..cell.bookies.len()).map(|index| cell.member(index));
    let mut spares = all.filter(|member| !ensemble.contains(member));
    (ensemble[position].clone(), spares.next().unwrap())
}

async fn replacing(cell: &Cell, ledger: LedgerId, position: usize) -> RepairTask {
    let (old, new) = old_and_spare(cell, ledger, position).await;
    RepairTask {
        ledger,
        first: EntryId(0),
        position,
        old,
        new,
        lacking: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn lost_member_is_replaced_by_one_that_holds_everything() {
    let cell = Cell::new(4).await;
    let ledger = cell.closed(100).await;
    let task = replacing(&cell, ledger, 1).await;
    cell.bookies[cell.index_of(&task.old)].always(Some(Fault::RequestLost));
    let end = repair(&cell.hands(), task.clone()).await;
    assert!(
        matches!(end, RepairEnd::Done { entries: 100, .. }),
        "{end:?}"
    );
    let metadata = cell.metadata(ledger).await;
    assert_eq!(metadata.last_fragment().ensemble[1], task.new);
    assert!(metadata.intents.is_empty());
    assert!(cell.is_whole(ledger).await);
    // Again: somebody did it.
    assert_eq!(repair(&cell.hands(), task).await, RepairEnd::Needless);
}

/// Whoever opened a ledger long ago knows its first members only.
#[tokio::test(start_paused = true)]
async fn reader_finds_copies_that_were_moved_and_calls_none_lost_before_metadata_say_where_they_are()
 {
    let cell = Cell::new(6).await;
    let ledger = cell.closed(20).await;
    let metadata = cell.metadata(ledger).await;
    let reader = cell.client().reader(ledger, metadata.clone());
    let before = metadata.last_fragment().ensemble.clone();
    let all = (0..6).map(|index| cell.member(index));
    let after: Vec<Member> = all.filter(|member| !before.contains(member)).collect();
    for (position, (old, new)) in before.iter().zip(after).enumerate() {
        let task = RepairTask {
            ledger,
            first: EntryId(0),
            position,
            old: old.clone(),
            new,
            lacking: Vec::new(),
        };
        let end = repair(&cell.hands(), task).await;
        assert!(matches!(end, RepairEnd::Done { .. }), "{end:?}");
        let left = &cell.bookies[cell.index_of(old)];
        left.ledgers()
            .lose_from(ledger, EntryId(0), Default::default());
    }
    let read = || reader.read(EntryId(3), EntryId(9), 1 << 20, ReadClass::CatchUp);
    cell.store.plan_reads([Fate::Unavailable]);
    let error = read().await.unwrap_err();
    assert!(matches!(error, ReadError::Unavailable { .. }), "{error}");
    assert_eq!(read().await.unwrap().len(), 6);
    // Known from now on.
    cell.store.silence();
    assert_eq!(read().await.unwrap().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn member_that_lacks_entries_gets_them_and_the_note_goes() {
    let cell = Cell::new(3).await;
    let ledger = cell.closed(50).await;
    let metadata = cell.metadata(ledger).await;
    let member = metadata.last_fragment().ensemble[2].clone();
    let bookie = &cell.bookies[cell.index_of(&member)];
    bookie
        .ledgers()
        .lose_from(ledger, EntryId(30), Default::default());
    let mut noted = metadata.clone();
    noted.degraded.push(Degraded {
        first: EntryId(30),
        end: EntryId(u64::MAX),
        bookies: vec![member.bookie.clone()],
    });
    let key = hulse_proto::ledger::ledger_key(ledger);
    cell.put(bookie_metadata::Op::put(key, noted.encode()))
        .await;
    let task = RepairTask {
        ledger,
        first: EntryId(0),
        position: 2,
        old: member.clone(),
        new: member.clone(),
        lacking: std::iter::once(30..50).collect(),
    };
    let end = repair(&cell.hands(), task).await;
    assert!(
        matches!(end, RepairEnd::Done { entries: 20, .. }),
        "{end:?}"
    );
    assert!(cell.is_whole(ledger).await);
    let left = cell.metadata(ledger).await.degraded;
    assert_eq!(
        left.iter()
            .map(|d| (d.first.0, d.end.0))
            .collect::<Vec<_>>(),
        [(50, u64::MAX)]
    );
}

#[tokio::test(start_paused = true)]
async fn damaged_copies_are_passed_over_and_entries_without_a_good_one_are_never_swapped() {
    let cell = Cell::new(4).await;
    let ledger = cell.closed(20).await;
    let ensemble = cell.metadata(ledger).await.last_fragment().ensemble.clone();
    let task = replacing(&cell, ledger, 0).await;
    let hurt = |position: usize, entry: u64| {
        let bookie = &cell.bookies[cell.index_of(&ensemble[position])];
        bookie.ledgers().damage(ledger, EntryId(entry));
    };
    cell.bookies[cell.index_of(&ensemble[0])].always(Some(Fault::RequestLost));
    hurt(1, 7);
    hurt(2, 9);
    hurt(1, 15);
    hurt(2, 15);
    let end = repair(&cell.hands(), task.clone()).await;
    // The first member may have it, and says nothing.
    let RepairEnd::Failed(RepairFailure::Unavailable { entry, .. }) = end else {
        panic!("{end:?}");
    };
    assert_eq!(entry, EntryId(15));
    cell.bookies[cell.index_of(&ensemble[0])].always(None);
    hurt(0, 15);
    let end = repair(&cell.hands(), task.clone()).await;
    assert!(
        matches!(&end, RepairEnd::Failed(RepairFailure::Unreadable { entry: EntryId(15), members }) if members.len() == 3),
        "{end:?}"
    );
    let metadata = cell.metadata(ledger).await;
    assert_eq!(metadata.last_fragment().ensemble, ensemble);
    assert_eq!(
        metadata.intents.len(),
        1,
        "one intent per member, however often it is tried"
    );
}

#[tokio::test(start_paused = true)]
async fn entries_that_an_operator_gave_up_do_not_keep_the_others_from_another_member() {
    let cell = Cell::new(4).await;
    let ledger = cell.closed(20).await;
    let mut metadata = cell.metadata(ledger).await;
    let ensemble = metadata.last_fragment().ensemble.clone();
    for entry in [0, 7, 8, 19] {
        for member in &ensemble {
            let bookie = &cell.bookies[cell.index_of(member)];
            bookie.ledgers().damage(ledger, EntryId(entry));
        }
    }
    let task = replacing(&cell, ledger, 0).await;
    metadata.loss = Some(Loss {
        kind: LossKind::Accepted,
        from: EntryId(1),
        at: 0,
    });
    let key = hulse_proto::ledger::ledger_key(ledger);
    let put = async |metadata: &LedgerMetadata| {
        let op = bookie_metadata::Op::put(key.clone(), metadata.encode());
        cell.put(op).await;
    };
    put(&metadata).await;
    // What lies before is not given up.
    let end = repair(&cell.hands(), task.clone()).await;
    assert!(
        matches!(
            &end,
            RepairEnd::Failed(RepairFailure::Unreadable {
                entry: EntryId(0),
                ..
            })
        ),
        "{end:?}"
    );
    metadata.loss.as_mut().unwrap().from = EntryId(0);
    put(&metadata).await;
    let end = repair(&cell.hands(), task.clone()).await;
    assert!(
        matches!(end, RepairEnd::Done { entries: 16, .. }),
        "{end:?}"
    );
    let after = cell.metadata(ledger).await;
    assert_eq!(after.last_fragment().ensemble[0], task.new);
    assert_eq!(after.loss, metadata.loss);
}

#[tokio::test(start_paused = true)]
async fn open_ledger_is_left_alone() {
    let cell = Cell::new(4).await;
    let ledger = cell.closed(5).await;
    let mut metadata = cell.metadata(ledger).await;
    metadata.state = LedgerState::Open;
    metadata.closed = None;
    let key = hulse_proto::ledger::ledger_key(ledger);
    cell.put(bookie_metadata::Op::put(key, metadata.encode()))
        .await;
    let task = replacing(&cell, ledger, 0).await;
    let end = repair(&cell.hands(), task).await;
    assert_eq!(end, RepairEnd::Failed(RepairFailure::Changing));
    assert_eq!(cell.metadata(ledger).await, metadata);
}

#[tokio::test(start_paused = true)]
async fn target_that_fails_or_forgets_is_not_swapped_in() {
    let cell = Cell::new(4).await;
    let ledger = cell.closed(10).await;
    let task = replacing(&cell, ledger, 0).await;
    let target = &cell.bookies[cell.index_of(&task.new)];
    target.always(Some(Fault::Refuse(BookieError::ReadOnly {
        why: "full".into(),
    })));
    let end = repair(&cell.hands(), task.clone()).await;
    assert!(
        matches!(end, RepairEnd::Failed(RepairFailure::Target { .. })),
        "{end:?}"
    );
    target.always(None);
    // Every copy is confirmed, and then the node loses some.
    target.plan(std::iter::repeat_n(None, 10));
    let hands = cell.hands();
    let repairing = repair(&hands, task.clone());
    let forgetting = async {
        loop {
            tokio::task::yield_now().await;
            if target.ledgers().held(ledger, EntryId(9)).is_some() {
                target
                    .ledgers()
                    .lose_from(ledger, EntryId(8), Default::default());
                return;
            }
        }
    };
    let (end, ()) = tokio::join!(repairing, forgetting);
    assert!(
        matches!(end, RepairEnd::Failed(RepairFailure::Unproven { .. })),
        "{end:?}"
    );
    assert_eq!(
        cell.metadata(ledger).await.last_fragment().ensemble[0],
        task.old
    );
}

#[tokio::test(start_paused = true)]
async fn deletion_that_is_faster_wins_and_reaches_the_target() {
    let cell = Cell::new(4).await;
    let ledger = cell.closed(10).await;
    let task = replacing(&cell, ledger, 0).await;
    let target = cell.bookies[cell.index_of(&task.new)].clone();
    // Ten copies; then it says late what it holds.
    let slow = Fault::Slow(std::time::Duration::from_millis(500));
    target.plan(std::iter::repeat_n(None, 10).chain([Some(slow)]));
    let hands = cell.hands();
    let client = cell.client();
    let deleting = async {
        loop {
            tokio::task::yield_now().await;
            if target.ledgers().held(ledger, EntryId(9)).is_some() {
                break;
            }
        }
        client.delete(ledger, Txn::default()).await
    };
    let (end, deleted) = tokio::join!(repair(&hands, task), deleting);
    deleted.unwrap();
    assert!(!matches!(end, RepairEnd::Done { .. }), "{end:?}");
    assert!(target.ledgers().is_deleted(ledger), "the intent names it");
}

#[tokio::test(start_paused = true)]
async fn unknown_outcomes_end_in_one_swap() {
    for fates in [
        [Fate::UnknownCommitted, Fate::Pass],
        [Fate::Pass, Fate::UnknownCommitted],
        [Fate::UnknownNever, Fate::UnknownNever],
    ] {
        let cell = Cell::new(4).await;
        let ledger = cell.closed(10).await;
        let task = replacing(&cell, ledger, 2).await;
        cell.store.plan_txns(fates);
        let end = repair(&cell.hands(), task.clone()).await;
        assert!(matches!(end, RepairEnd::Done { .. }), "{end:?}");
        assert!(cell.is_whole(ledger).await);
        assert!(cell.metadata(ledger).await.intents.is_empty());
    }
}
