//! Partitions without a task: nearly all of thousands of open ones have nothing to do.
//!
//! A task that had nothing to do for a while leaves its state in its mailbox and ends; the next command starts it again. What comes with
//! time alone (a ledger that is rolled by age, memory that is wanted elsewhere) is looked for here, by one task for all that rest.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bookie_client::mailbox::{Inbox, WeakSender};
use hulse_proto::id::{OwnerEpoch, PartitionId};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::handle::Command;
use super::shown::EndedOnDrop;
use super::task::{TICK, Task, start};

/// Partitions that are looked after before others have a turn.
const AT_ONCE: usize = 64;

type Resting = WeakSender<Command, Box<Task>>;
/// One that was taken over again is another: its former task may come here late.
type Key = (PartitionId, OwnerEpoch);

#[derive(Default)]
struct State {
    /// Not kept by this; one that was woken or dropped is found out at the next look.
    all: BTreeMap<Key, Resting>,
    /// There is a task that looks after them.
    looked_after: bool,
}

/// Every partition of a broker that rests. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RestingPartitions(Arc<Mutex<State>>);

impl RestingPartitions {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One went to rest. Needs a runtime.
    pub(super) fn add(&self, key: Key, resting: Resting) {
        let mut state = self.lock();
        state.all.insert(key, resting);
        if !std::mem::replace(&mut state.looked_after, true) {
            tokio::spawn(self.clone().look_after());
        }
    }

    /// Ends when none rests.
    async fn look_after(self) {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first one is over at once.
        tick.tick().await;
        loop {
            tick.tick().await;
            let mut last = None;
            loop {
                let some = self.after(last);
                if some.is_empty() {
                    break;
                }
                last = some.last().copied();
                some.into_iter().for_each(|key| self.visit(key));
                tokio::task::yield_now().await;
            }
            let mut state = self.lock();
            if state.all.is_empty() {
                state.looked_after = false;
                return;
            }
        }
    }

    /// The next ones.
    fn after(&self, last: Option<Key>) -> Vec<Key> {
        let begin = last.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        let next = state.all.range((begin, Bound::Unbounded)).take(AT_ONCE);
        next.map(|(key, _)| *key).collect()
    }

    /// Time passed for one. When it rests on, or again, it is added again. Should it panic, it ends as one with a task does
    /// (ARCHITECTURE D16), and the others are looked after all the same.
    fn visit(&self, key: Key) {
        let resting = self.lock().all.remove(&key);
        let Some((mut task, inbox)) = resting.and_then(|resting| resting.take_resting()) else {
            return;
        };
        // The hook has told of a panic, and the handles know.
        let _ = catch_unwind(AssertUnwindSafe(move || {
            let ends = EndedOnDrop::new(task.shown.clone());
            task.turn_at_rest();
            rest_or_go_on(task, inbox);
            ends.disarm();
        }));
    }
}

/// Puts a partition to rest, unless something is to do.
pub(super) fn rest_or_go_on(mut task: Box<Task>, inbox: Inbox<Command, Box<Task>>) {
    if !task.is_idle() {
        return start(task, inbox);
    }
    task.shrink();
    let key = (task.partition, task.epoch);
    let (all, weak) = (task.with.resting.clone(), inbox.downgrade());
    match inbox.rest(task) {
        Ok(()) => all.add(key, weak),
        Err((inbox, task)) => start(task, inbox),
    }
}

impl Task {
    /// It waited for a while; from `due` on time counts as passed. True: nothing happened since the last look, and nothing is under way.
    pub(super) fn lingered(&mut self, due: &mut Instant) -> bool {
        if Instant::now() >= *due {
            *due = Instant::now() + TICK;
            self.ticked();
            self.go_on();
        }
        !std::mem::take(&mut self.busy) && self.is_idle()
    }

    /// True when nothing is under way and nothing waits: only a command can change anything, or a tick.
    pub(super) fn is_idle(&self) -> bool {
        self.appends.is_empty()
            && self.core.is_idle()
            && self.chain.is_some()
            && self.ledger_work.is_none()
            && self.until_room.is_none()
            && self.state_writer.is_some()
            && self.snapshot_work.is_none()
            && self.trimming.is_idle()
            && self.cursors.is_idle()
    }

    /// Time passed, and it rests.
    fn turn_at_rest(&mut self) {
        self.ticked();
        self.go_on();
    }

    /// Before a rest: the room goes back that only work needs.
    fn shrink(&mut self) {
        self.until_full = None;
        self.appends = VecDeque::new();
        self.shown.cool();
    }
}
