//! Time-outs, ids that are forgotten, and operators.

use super::*;

#[test]
fn transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.add(first, Version::Tv2).unwrap();
    desk.pass(i64::from(TIMEOUT_MS) - 1);
    assert_eq!(desk.txn().state, TxnState::Ongoing);
    desk.pass(10_000);
    let (_, marker) = desk.markers[0];
    assert_eq!((marker.producer, marker.commit), (first.bumped(), false));
    for commit in [true, false] {
        let late = desk.end(first, Version::Tv2, commit);
        assert!(matches!(late, Err(TxnError::Fenced { .. })), "{late:?}");
    }
    desk.settle();
    assert_eq!(desk.txn().state, TxnState::CompleteAbort);
    // Time that has passed before a coordinator takes over counts.
    let mut state = TransactionsShard::default();
    let durable = desk.chain.iter().take(2);
    durable.for_each(|delta| state.apply(delta));
    let mut next = Desk::with(state, 2);
    next.now += i64::from(TIMEOUT_MS);
    next.input(Input::Tick);
    assert_eq!(next.txn().state, TxnState::PrepareAbort);
}

#[test]
fn id_that_nobody_uses_is_forgotten_and_begins_anew() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.pass(7 * 24 * 3600 * 1000 - 1);
    assert!(!desk.machine.state().is_empty());
    desk.pass(10_000);
    assert!(desk.machine.state().is_empty());
    assert_eq!(desk.add(first, Version::Tv1), Err(TxnError::WrongProducer));
    let next = desk.init(Some(first)).unwrap();
    assert!(next.id != first.id && next.epoch == 0);
}

#[test]
fn clock_that_falls_stands() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    desk.add(first, Version::Tv1).unwrap();
    desk.pass(-500);
    assert_eq!(desk.txn().state, TxnState::Ongoing);
    desk.pass(i64::from(TIMEOUT_MS) + 10_500);
    assert_eq!(desk.txn().state, TxnState::PrepareAbort);
}

#[test]
fn operators_see_and_end_what_is_open() {
    let mut desk = Desk::new();
    let first = desk.init(None).unwrap();
    let abort = || Request::Abort { id: ID.into() };
    let nothing = desk.ask(abort());
    assert!(matches!(
        nothing,
        Answer::Aborted(Err(TxnError::InvalidState(_)))
    ));
    desk.add(first, Version::Tv1).unwrap();
    desk.now += 5_000;
    let listing = Listing {
        id: ID.into(),
        producer: first,
        state: TxnState::Ongoing,
        open_ms: 5_000,
    };
    // A look brings no time with it; the tick does.
    desk.input(Input::Tick);
    assert_eq!(desk.ask(Request::List), Answer::Listed(vec![listing]));
    let described = desk.ask(Request::Describe { id: ID.into() });
    let Answer::Described(Ok(txn)) = described else {
        panic!("{described:?}");
    };
    assert_eq!(txn.participants, data(0));
    assert_eq!(desk.ask(abort()), Answer::Aborted(Ok(())));
    assert_eq!(
        desk.ask(abort()),
        Answer::Aborted(Err(TxnError::Concurrent))
    );
    desk.settle();
    let fenced = desk.end(first, Version::Tv1, true);
    assert!(matches!(fenced, Err(TxnError::Fenced { .. })));
    let unknown = Request::Abort { id: "x".into() };
    assert_eq!(desk.ask(unknown), Answer::Aborted(Err(TxnError::NotFound)));
}
