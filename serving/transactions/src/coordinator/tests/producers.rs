//! InitProducerId, identities that are used up, and who takes part.

use super::*;

#[test]
fn instance_that_begins_gets_the_next_epoch() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    assert_eq!(first.epoch, 0);
    assert_eq!(desk.init(None), Ok(first.bumped()));
    let max_ms = CoordinatorConfig::default().timeout_max_ms;
    for timeout_ms in [0, max_ms + 1] {
        let request = Request::Init {
            id: ID.into(),
            timeout_ms,
            expected: None,
        };
        let refused = Answer::Begun(Err(TxnError::InvalidTimeout { max_ms }));
        assert_eq!(desk.ask(request), refused);
    }
    for id in ["".to_owned(), "x".repeat(513)] {
        let request = Request::Describe { id: id.into() };
        let refused = Answer::Described(Err(TxnError::InvalidId));
        assert_eq!(desk.ask(request), refused);
    }
}

#[test]
fn instance_that_takes_over_aborts_what_is_open_first() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.add(first, Version::Tv1).unwrap();
    assert_eq!(desk.init(None), Err(TxnError::Concurrent));
    let (_, marker) = desk.markers[0];
    assert_eq!((marker.producer, marker.commit), (first.bumped(), false));
    assert_eq!(desk.init(None), Err(TxnError::Concurrent));
    desk.settle();
    let second = desk.init(None).unwrap();
    assert_eq!(second.epoch, first.epoch + 2);
    for version in [Version::Tv1, Version::Tv2] {
        let fenced = desk.add(first, version);
        assert!(matches!(fenced, Err(TxnError::Fenced { .. })), "{fenced:?}");
        let fenced = desk.end(first, version, false);
        assert!(matches!(fenced, Err(TxnError::Fenced { .. })), "{fenced:?}");
    }
}

#[test]
fn caller_that_lost_the_answer_gets_it_again() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    let second = desk.init(Some(first)).unwrap();
    assert_eq!(second, first.bumped());
    let chain = desk.chain.len();
    assert_eq!(desk.init(Some(first)), Ok(second));
    assert_eq!(desk.chain.len(), chain);
    // Another instance came: neither is the present one any more.
    let third = desk.init(None).unwrap();
    for old in [first, second] {
        let fenced = desk.init(Some(old));
        assert!(matches!(fenced, Err(TxnError::Fenced { .. })), "{fenced:?}");
    }
    let stranger = desk.init(Some(producer(3, third.epoch)));
    assert!(matches!(stranger, Err(TxnError::Fenced { .. })));
    // What was open is aborted on its behalf, and it asks again until that is done.
    desk.add(third, Version::Tv1).unwrap();
    assert_eq!(desk.init(Some(third)), Err(TxnError::Concurrent));
    desk.settle();
    assert_eq!(desk.init(Some(third)), Ok(third.bumped()));
}

#[test]
fn identity_that_is_used_up_is_replaced() {
    for expected in [false, true] {
        let last = producer(7, i16::MAX - 1);
        let mut desk = Desk::with(stands(TxnState::Empty, last, -1, -1), 1);
        let named = expected.then_some(last);
        let next = desk.init(named).unwrap();
        assert!(next.id != last.id && next.epoch == 0);
        let again = desk.init(Some(last));
        match expected {
            true => assert_eq!(again, Ok(next)),
            false => assert!(matches!(again, Err(TxnError::Fenced { .. }))),
        }
    }
}

#[test]
fn end_of_the_last_epoch_gives_another_identity_also_when_its_answer_is_lost() {
    let last = producer(7, i16::MAX - 1);
    for commit in [true, false] {
        let mut desk = Desk::with(stands(TxnState::Empty, last, -1, -1), 1);
        desk.input(Input::Tick);
        desk.add(last, Version::Tv2).unwrap();
        let next = desk.end(last, Version::Tv2, commit).unwrap();
        assert!(next.id != last.id && next.epoch == 0);
        // The marker fences the old identity for ever.
        let (_, marker) = desk.markers[0];
        assert_eq!(marker.producer, producer(7, i16::MAX));
        let early = [
            desk.add(next, Version::Tv2).err(),
            desk.end(next, Version::Tv2, commit).err(),
            desk.end(last, Version::Tv2, commit).err(),
        ];
        assert_eq!(
            early.map(Option::unwrap),
            [(); 3].map(|()| TxnError::Concurrent)
        );
        desk.settle();
        assert_eq!(desk.end(last, Version::Tv2, commit), Ok(next));
        let stale = desk.add(last, Version::Tv2);
        assert_eq!(stale, Err(TxnError::WrongProducer));
        assert_eq!(
            desk.add(next, Version::Tv2).map(|added| added.serial),
            Ok(2)
        );
    }
}

#[test]
fn twenty_transactions_pass_the_end_of_the_epochs() {
    let start = producer(7, 32_760);
    let mut desk = Desk::with(stands(TxnState::Empty, start, -1, -1), 1);
    desk.input(Input::Tick);
    let (mut now, mut ids) = (start, 0);
    for round in 0..20 {
        desk.add(now, Version::Tv2).unwrap();
        let told = desk.end(now, Version::Tv2, round % 3 != 0).unwrap();
        desk.settle();
        // The answer is lost every other time.
        let next = match round % 2 {
            0 => desk.end(now, Version::Tv2, round % 3 != 0).unwrap(),
            _ => told,
        };
        assert_eq!(next, told);
        ids += usize::from(next.id != now.id);
        now = next;
    }
    assert_eq!((ids, now.epoch), (1, 13));
}

#[test]
fn fence_of_the_last_epoch_takes_the_highest_and_the_next_instance_a_new_identity() {
    let last = producer(7, i16::MAX - 1);
    let mut desk = Desk::with(stands(TxnState::Ongoing, last, -1, -1), 1);
    assert_eq!(desk.init(None), Err(TxnError::Concurrent));
    assert_eq!(desk.markers[0].1.producer, producer(7, i16::MAX));
    desk.settle();
    let lost = desk.end(last, Version::Tv2, false);
    assert!(matches!(lost, Err(TxnError::Fenced { .. })), "{lost:?}");
    let next = desk.init(None).unwrap();
    assert!(next.id != last.id && next.epoch == 0);
}

#[test]
fn participants_are_added_once_and_verified_only_while_they_take_part() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    let add = |participants, verify_only, producer| Request::Add {
        id: ID.into(),
        producer,
        version: Version::Tv1,
        participants,
        verify_only,
    };
    let abortable = Answer::Added(Err(TxnError::Abortable));
    assert_eq!(desk.ask(add(data(0), true, first)), abortable);
    desk.ask(add(data(0), false, first));
    let chain = desk.chain.len();
    let known = Answer::Added(Ok(Added { serial: 1 }));
    assert_eq!(desk.ask(add(data(0), false, first)), known);
    assert_eq!(desk.ask(add(data(0), true, first)), known);
    assert_eq!(desk.chain.len(), chain);
    assert_eq!(desk.ask(add(data(1), true, first)), abortable);
    // The same partition with acks is more than it with records.
    let acks: BTreeMap<_, _> = data(0).into_keys().map(|key| (key, Parts::ACKS)).collect();
    assert_eq!(desk.ask(add(acks.clone(), true, first)), abortable);
    assert_eq!(desk.ask(add(acks, false, first)), known);
    let wrong = Answer::Added(Err(TxnError::WrongProducer));
    assert_eq!(desk.ask(add(data(0), false, producer(1, 0))), wrong);
    let many = (0..1_001).flat_map(data).collect();
    let refused = desk.ask(add(many, false, first));
    assert!(matches!(
        refused,
        Answer::Added(Err(TxnError::TooMany { .. }))
    ));
    let nothing = desk.ask(add(BTreeMap::new(), false, first));
    assert!(matches!(
        nothing,
        Answer::Added(Err(TxnError::InvalidRequest(_)))
    ));
}

#[test]
fn adds_of_several_owners_become_durable_together() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.slow = true;
    let asked: Vec<RequestId> = (0..4)
        .map(|index| {
            desk.send(Request::Add {
                id: ID.into(),
                producer: first,
                version: Version::Tv2,
                participants: data(index),
                verify_only: false,
            })
        })
        .collect();
    let number = desk.chain.len() as u64;
    desk.input(Input::Confirmed(number));
    for id in asked {
        assert_eq!(desk.take(id), Some(Answer::Added(Ok(Added { serial: 1 }))));
    }
    assert_eq!(desk.txn().participants.len(), 4);
}
