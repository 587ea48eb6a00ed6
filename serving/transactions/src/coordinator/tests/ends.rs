//! The tables of EndTxn (serving.md C5), cell by cell.

use super::*;

/// What a cell says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// A decision, and the epoch after it.
    Decided(i16),
    /// No change, and the present producer.
    Known,
    InvalidState,
    Concurrent,
    Fenced,
}

fn judge(shard: &TransactionsShard, asks: Producer, version: Version, commit: bool) -> Cell {
    let mut desk = Desk::with(shard.clone(), 1);
    desk.input(Input::Tick);
    let before = desk.txn().producer;
    let chain = desk.chain.len();
    match desk.end(asks, version, commit) {
        Ok(after) if desk.chain.len() > chain => Cell::Decided(after.epoch),
        Ok(after) => {
            assert_eq!(after, before);
            Cell::Known
        }
        Err(TxnError::InvalidState(_)) => Cell::InvalidState,
        Err(TxnError::Concurrent) => Cell::Concurrent,
        Err(TxnError::Fenced { .. }) => Cell::Fenced,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn table_of_the_second_version_holds() {
    use Cell::{Concurrent, Decided, Fenced, InvalidState, Known};
    use TxnState as S;
    // State; commit and abort at the present epoch; commit and abort of one that asks again.
    let rows = [
        (
            S::Ongoing,
            [Decided(6), Decided(6), InvalidState, InvalidState],
        ),
        (
            S::Empty,
            [InvalidState, Decided(6), InvalidState, InvalidState],
        ),
        (
            S::CompleteCommit,
            [InvalidState, Decided(6), Known, InvalidState],
        ),
        (
            S::CompleteAbort,
            [InvalidState, Decided(6), InvalidState, Known],
        ),
        (
            S::PrepareCommit,
            [Concurrent, Concurrent, Concurrent, InvalidState],
        ),
        (
            S::PrepareAbort,
            [Concurrent, Concurrent, InvalidState, Concurrent],
        ),
    ];
    for (state, cells) in rows {
        let shard = stands(state, producer(7, 5), 4, -1);
        let asks = [(5, true), (5, false), (4, true), (4, false)];
        for ((epoch, commit), cell) in asks.into_iter().zip(cells) {
            let found = judge(&shard, producer(7, epoch), Version::Tv2, commit);
            assert_eq!(found, cell, "{state} {epoch} {commit}");
        }
        for (epoch, commit) in [(3, true), (6, true), (3, false), (6, false)] {
            let found = judge(&shard, producer(7, epoch), Version::Tv2, commit);
            assert_eq!(found, Fenced, "{state} {epoch}");
        }
        // Nobody asked for the present epoch: time, or another instance, has bumped it.
        let fenced = stands(state, producer(7, 5), -1, -1);
        let found = judge(&fenced, producer(7, 4), Version::Tv2, false);
        assert_eq!(found, Fenced, "{state}");
    }
}

#[test]
fn table_of_the_first_version_holds() {
    use Cell::{Concurrent, Decided, Fenced, InvalidState, Known};
    use TxnState as S;
    let rows = [
        (S::Ongoing, [Decided(5), Decided(5)]),
        (S::Empty, [InvalidState, InvalidState]),
        (S::CompleteCommit, [Known, InvalidState]),
        (S::CompleteAbort, [InvalidState, Known]),
        (S::PrepareCommit, [Concurrent, InvalidState]),
        (S::PrepareAbort, [InvalidState, Concurrent]),
    ];
    for (state, cells) in rows {
        let shard = stands(state, producer(7, 5), 4, -1);
        for (commit, cell) in [true, false].into_iter().zip(cells) {
            let found = judge(&shard, producer(7, 5), Version::Tv1, commit);
            assert_eq!(found, cell, "{state} {commit}");
            let found = judge(&shard, producer(7, 4), Version::Tv1, commit);
            assert_eq!(found, Fenced, "{state} {commit}");
        }
    }
}

#[test]
fn states_follow_each_other_as_the_design_says() {
    use TxnState as S;
    let all = [
        S::Empty,
        S::Ongoing,
        S::PrepareCommit,
        S::PrepareAbort,
        S::CompleteCommit,
        S::CompleteAbort,
    ];
    let allowed = |state: S| -> Vec<S> {
        let before = all.into_iter();
        before
            .filter(|before| state.may_follow(Some(*before)))
            .collect()
    };
    let idle = [S::Empty, S::CompleteCommit, S::CompleteAbort];
    assert_eq!(allowed(S::Empty), idle);
    assert_eq!(
        allowed(S::Ongoing),
        [S::Empty, S::Ongoing, S::CompleteCommit, S::CompleteAbort]
    );
    assert_eq!(allowed(S::PrepareCommit), [S::Ongoing]);
    assert_eq!(
        allowed(S::PrepareAbort),
        [S::Empty, S::Ongoing, S::CompleteCommit, S::CompleteAbort]
    );
    assert_eq!(allowed(S::CompleteCommit), [S::PrepareCommit]);
    assert_eq!(allowed(S::CompleteAbort), [S::PrepareAbort]);
    assert!(S::Empty.may_follow(None) && !S::Ongoing.may_follow(None));
}

#[test]
fn decision_is_told_and_sent_only_when_it_is_durable() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.add(first, Version::Tv2).unwrap();
    desk.slow = true;
    let end = |producer| Request::End {
        id: ID.into(),
        producer,
        version: Version::Tv2,
        commit: true,
    };
    let asked = desk.send(end(first));
    assert_eq!(desk.take(asked), None);
    assert_eq!(desk.markers, []);
    // Something is under way, whoever asks for whatever.
    assert_eq!(
        desk.ask(end(first)),
        Answer::Ended(Err(TxnError::Concurrent))
    );
    let number = desk.chain.len() as u64;
    desk.slow = false;
    desk.input(Input::Confirmed(number));
    assert_eq!(desk.take(asked), Some(Answer::Ended(Ok(first.bumped()))));
    let (_, marker) = desk.markers[0];
    assert_eq!((marker.producer, marker.commit), (first.bumped(), true));
    // The client goes on at once, and is told to ask again.
    let next = desk.add(first.bumped(), Version::Tv2);
    assert_eq!(next, Err(TxnError::Concurrent));
    desk.settle();
    assert_eq!(desk.txn().state, TxnState::CompleteCommit);
    let next = desk.add(first.bumped(), Version::Tv2).unwrap();
    assert_eq!(next.serial, 2);
}

#[test]
fn marker_is_sent_until_all_have_it_and_deleted_topics_are_passed_over() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.add(first, Version::Tv1).unwrap();
    let more = Request::Add {
        id: ID.into(),
        producer: first,
        version: Version::Tv1,
        participants: [(Participant::Partition(partition(2, 0)), Parts::DATA)].into(),
        verify_only: false,
    };
    desk.ask(more);
    desk.end(first, Version::Tv1, false).unwrap();
    let sent = std::mem::take(&mut desk.markers);
    assert_eq!(sent.len(), 2);
    for _ in 0..20 {
        desk.outcome(sent[0].0, &sent[0].1, MarkerOutcome::Unknown);
        desk.pass(1_000);
        assert_eq!(desk.markers, [sent[0]]);
        desk.markers.clear();
    }
    desk.outcome(sent[0].0, &sent[0].1, MarkerOutcome::Applied);
    assert_eq!(desk.txn().state, TxnState::PrepareAbort);
    let gone = [TopicId(Uuid::from_u128(2))].into();
    desk.input(Input::Deleted(gone));
    assert_eq!(desk.txn().state, TxnState::CompleteAbort);
    assert_eq!(desk.txn().producer, first);
}

#[test]
fn coordinator_that_takes_over_ends_what_was_decided() {
    let shard = stands(TxnState::PrepareCommit, producer(7, 5), 4, -1);
    let mut desk = Desk::with(shard, 9);
    desk.input(Input::Tick);
    let (_, marker) = desk.markers[0];
    assert_eq!((marker.coordinator_epoch, marker.commit), (9, true));
    desk.settle();
    assert_eq!(desk.txn().state, TxnState::CompleteCommit);
    // Answers about a transaction before, or of somebody who takes no part, change nothing.
    let chain = desk.chain.len();
    let to = Participant::Groups(partition(3, 0));
    desk.outcome(to, &marker, MarkerOutcome::Applied);
    assert_eq!(desk.chain.len(), chain);
}

#[test]
fn append_that_failed_leaves_no_id_behind_that_nobody_ends() {
    for landed in [false, true] {
        let mut desk = Desk::new();
        let first = desk.init(None).unwrap();
        desk.add(first, Version::Tv2).unwrap();
        let durable = desk.chain.len();
        desk.slow = true;
        let end = Request::End {
            id: ID.into(),
            producer: first,
            version: Version::Tv2,
            commit: true,
        };
        let asked = desk.send(end);
        assert_eq!(desk.take(asked), None);
        // The append fails: the next coordinator begins from what the chain holds.
        let mut state = TransactionsShard::default();
        let held = durable + usize::from(landed);
        desk.chain[..held]
            .iter()
            .for_each(|delta| state.apply(delta));
        let mut next = Desk::with(state, 2);
        next.input(Input::Tick);
        next.settle();
        let again = next.end(first, Version::Tv2, true);
        assert_eq!(again, Ok(first.bumped()), "landed: {landed}");
        next.settle();
        assert_eq!(next.txn().state, TxnState::CompleteCommit);
    }
}
