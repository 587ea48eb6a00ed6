//! What is true between two calls: counters, queues, holds and slots say the same.

use std::collections::BTreeMap;

use crate::dispatcher::Dispatcher;
use crate::facts::SessionId;
use crate::runs::{COUNTED, NO_HOLD, State};

pub(super) fn check(d: &Dispatcher) {
    let mut at = None;
    let (mut records, mut waiting, mut gaps) = (0, 0, 0);
    let mut unacked: BTreeMap<SessionId, u64> = BTreeMap::new();
    let mut named: BTreeMap<u32, u64> = BTreeMap::new();
    let mut held = 0;
    for (first, run) in d.runs.iter() {
        let len = u64::from(run.len);
        assert!(len > 0);
        if let Some(before) = at {
            assert!(before <= first, "runs overlap at {first}");
            gaps += usize::from(before != first);
        }
        at = Some(first + len);
        records += len;
        waiting += if run.state.is_waiting() { len } else { 0 };
        if run.hold != NO_HOLD {
            *named.entry(run.hold).or_default() += len;
        }
        if run.state == State::Held {
            *unacked.entry(d.holds.get(run.hold).session).or_default() += len;
        }
        assert!(run.state != State::Loose, "{first} is loose");
        is_queued(d, first);
        if run.has(COUNTED) {
            let (from, to) = run.slots().unwrap();
            held += len * (to - from + 1) as u64;
        }
    }
    if let Some(end) = at {
        assert!(end <= d.runs.next());
        gaps += usize::from(end != d.runs.next());
    }
    assert_eq!((records, waiting), (d.runs.records(), d.waiting));
    assert_eq!(gaps, d.runs.gaps());
    for ((_, hold), run) in &d.ghosts {
        *named.entry(*hold).or_default() += u64::from(run.len);
        let (from, to) = run.slots().unwrap();
        held += u64::from(run.len) * (to - from + 1) as u64;
    }
    assert_eq!(named.len(), d.holds.len(), "holds that nothing names");
    for (hold, records) in named {
        assert_eq!(d.holds.records(hold), records, "hold {hold}");
    }
    for (id, session) in &d.sessions {
        let expected = unacked.get(id).copied().unwrap_or(0);
        assert_eq!(session.unacked, expected, "{id:?}");
    }
    if let Some(slots) = &d.slots {
        assert_eq!(slots.held_total(), held);
    }
    queues_name_runs(d);
}

/// The run is in the queue of its state.
fn is_queued(d: &Dispatcher, first: u64) {
    let run = d.runs.get(first);
    let q = &d.queues;
    let there = match run.state {
        State::Shared => q.shared.contains(&first),
        State::Suspect => q.suspects.contains(&first),
        State::Stalled => q.stalled[&(run.hashes.0 >> 4)].contains(&first),
        State::StalledStamp => q.stalled_stamps.contains(&first),
        State::Hashless => q.hashless.contains(&first),
        State::Delayed => q.delayed.contains_key(&first),
        State::Member => d.sessions[&d.target_of(&run)].queue.contains(&first),
        State::Dying => q.dying.contains(&first) || d.letters.has(first),
        _ => true,
    };
    assert!(there, "{first} is {:?} and not queued", run.state);
}

fn queues_name_runs(d: &Dispatcher) {
    let q = &d.queues;
    let is = |first: &u64, state: State| assert_eq!(d.runs.get(*first).state, state, "{first}");
    q.shared.iter().for_each(|first| is(first, State::Shared));
    q.suspects
        .iter()
        .for_each(|first| is(first, State::Suspect));
    q.dying.iter().for_each(|first| is(first, State::Dying));
    q.hashless
        .iter()
        .for_each(|first| is(first, State::Hashless));
    let stalled = q.stalled.values().flatten();
    stalled.for_each(|first| is(first, State::Stalled));
    q.delayed.keys().for_each(|first| is(first, State::Delayed));
    let stamps = q.stalled_stamps.iter();
    stamps.for_each(|first| is(first, State::StalledStamp));
    let members = d.sessions.values().flat_map(|session| &session.queue);
    members.for_each(|first| is(first, State::Member));
}
