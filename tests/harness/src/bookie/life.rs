//! One boot of a bookie: the step-wise node, who waits for its answers, and the turns of its disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bookie_node::core::{Ticket, Verdict};
use bookie_node::step::{StepAnswer, StepNode, StepOutput};
use hulse_proto::id::LedgerId;
use rand::Rng;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use super::request::{Reply, Request};
use super::sim_bookie::{PowerLoss, Reported, SimBookie, heads};
use crate::crash_point::{CrashPoint, Side};
use crate::trace;

/// An idle log is marked after about this long.
const IDLE: Duration = Duration::from_millis(50);
/// Reclaim rests at most so long between pieces, ms.
const RECLAIM_REST_MS: u64 = 400;
/// It does fewer pieces than this at a time.
const RECLAIM_PIECES_MAX: u32 = 6;
/// A full disk is looked at again after this long.
const FULL_AGAIN: Duration = Duration::from_millis(300);

/// One boot.
pub(super) struct Life {
    pub(super) node: StepNode,
    /// Wakes the disk of this boot, and of no other.
    pub(super) wake: Arc<Notify>,
    waiting: BTreeMap<Ticket, (Request, oneshot::Sender<Reply>)>,
    advanced: Duration,
    file: Option<String>,
}

type Asked = (Vec<LedgerId>, Vec<Reported>);

impl Life {
    pub(super) fn new(node: StepNode, now: Duration) -> Self {
        Self {
            node,
            wake: Arc::default(),
            waiting: BTreeMap::new(),
            advanced: now,
            file: None,
        }
    }

    fn advance(&mut self, now: Duration) {
        self.node.advance(now.saturating_sub(self.advanced));
        self.advanced = now;
    }

    /// Takes a request: ledgers to be verified, and replies that are due.
    pub(super) fn submit(
        &mut self,
        now: Duration,
        request: Request,
        answer: oneshot::Sender<Reply>,
    ) -> Asked {
        self.advance(now);
        if let Some(reply) = self.at_once(&request) {
            return (
                Vec::new(),
                vec![Reported {
                    request,
                    reply,
                    answer,
                }],
            );
        }
        let (ticket, output) = match request.clone() {
            Request::Add(add) => self.node.add(add),
            Request::Fence(fence) => self.node.fence(fence),
            Request::RecoveryRead(read) => self.node.recovery_read(read),
            Request::Delete(to) => self.node.delete(to),
            Request::Read(_) | Request::Heads(_) | Request::Inventory(_) => {
                unreachable!("reads are answered at once")
            }
        };
        self.waiting.insert(ticket, (request, answer));
        self.due(output)
    }

    /// Reads.
    fn at_once(&mut self, request: &Request) -> Option<Reply> {
        match request {
            Request::Read(read) => Some(Reply::Read(self.node.read(read))),
            Request::Heads(read) => Some(Reply::Heads(self.node.read(read).map(heads))),
            Request::Inventory(asked) => Some(Reply::Inventory(self.node.inventory(asked))),
            _ => None,
        }
    }

    pub(super) fn verified(
        &mut self,
        now: Duration,
        ledger: LedgerId,
        verdict: Verdict,
    ) -> Vec<Reported> {
        self.advance(now);
        let output = self.node.verified(ledger, verdict);
        self.due(output).1
    }

    fn due(&mut self, output: StepOutput) -> Asked {
        let mut replies = Vec::new();
        for (ticket, answer) in output.answers {
            let Some((request, sender)) = self.waiting.remove(&ticket) else {
                continue;
            };
            let reply = match answer {
                StepAnswer::Add(result) => Reply::Add(result),
                StepAnswer::Fence(result) => Reply::Fence(result),
                StepAnswer::RecoveryRead(result) => Reply::RecoveryRead(result),
                StepAnswer::Delete(result) => Reply::Delete(result),
            };
            replies.push(Reported {
                request,
                reply,
                answer: sender,
            });
        }
        (output.verify, replies)
    }

    /// True when a deletion waits in the group that is to be written, or for it.
    fn deletes(&self) -> bool {
        let mut waiting = self.waiting.values();
        waiting.any(|(request, _)| matches!(request, Request::Delete(_)))
    }

    /// True when a fence waits in the group that is to be written.
    fn fences(&self) -> bool {
        self.waiting
            .values()
            .any(|(request, _)| matches!(request, Request::Fence(_) | Request::RecoveryRead(_)))
    }
}

/// A turn of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Write,
    Sync,
    /// The next log file in advance.
    Spare,
    /// The sync of the interval mode.
    Timer,
    /// The mark after rest, and the next log file.
    Idle,
    /// A piece of reclaim: a removal, a part of a copy, its name, a check.
    Reclaim,
}

impl SimBookie {
    /// The disk's turns, until this boot ends.
    pub(super) async fn serve(self: Arc<Self>, boot: u64, wake: Arc<Notify>) {
        while let Some(busy) = self.busy(boot) {
            if !busy {
                tokio::select! {
                    biased;
                    () = wake.notified() => {}
                    () = sleep(IDLE) => {
                        if !self.turn(boot, Turn::Idle) {
                            return;
                        }
                        // On a full disk the next file is tried again and again.
                        tokio::select! {
                            biased;
                            () = wake.notified() => {}
                            () = self.sleep_while_full() => {}
                        }
                    }
                }
                continue;
            }
            sleep(self.disk_delay()).await;
            if !self.turn(boot, Turn::Write) {
                return;
            }
            sleep(self.disk_delay()).await;
            if !self.turn(boot, Turn::Sync) || !self.turn(boot, Turn::Spare) {
                return;
            }
        }
    }

    /// The syncs of the interval mode, until this boot ends.
    pub(super) async fn sync_every(self: Arc<Self>, boot: u64, every: Duration) {
        loop {
            sleep(every).await;
            if !self.turn(boot, Turn::Timer) {
                return;
            }
        }
    }

    /// Reclaim, a piece now and then, until this boot ends. Its chance is its own: others draw as they did without it.
    pub(super) async fn reclaim_now_and_then(self: Arc<Self>, boot: u64) {
        let mut rng = self
            .setup
            .seeds
            .stream(&format!("reclaim {} {boot}", self.name));
        loop {
            sleep(Duration::from_millis(rng.random_range(1..RECLAIM_REST_MS))).await;
            for _ in 0..rng.random_range(1..RECLAIM_PIECES_MAX) {
                if !self.turn(boot, Turn::Reclaim) {
                    return;
                }
            }
        }
    }

    fn reclaim(&self, life: &mut Life) -> StepOutput {
        let before = self.disk.used();
        let done = life.node.reclaim();
        let freed = before.saturating_sub(self.disk.used());
        if freed > 0 {
            self.setup.counts.add("log files freed");
        }
        if done.compacted {
            self.setup.counts.add("log files compacted");
        }
        life.wake.notify_one();
        done.output
    }

    /// A while on a full disk, else for ever.
    async fn sleep_while_full(&self) {
        match self.is_writable() {
            true => std::future::pending().await,
            false => sleep(FULL_AGAIN).await,
        }
    }

    fn busy(&self, boot: u64) -> Option<bool> {
        let state = self.state();
        (state.boot == boot).then(|| state.life.as_ref().is_some_and(|life| life.node.busy()))
    }

    /// One turn; false when this boot has ended.
    fn turn(self: &Arc<Self>, boot: u64, turn: Turn) -> bool {
        let mut state = self.state();
        if state.boot != boot {
            return false;
        }
        let now = self.now();
        let Some(life) = state.life.as_mut() else {
            return false;
        };
        life.advance(now);
        let hit = self.pass(turn, life);
        if let Some(left) = state.doom.as_mut() {
            if *left == 0 {
                state.doom = None;
                drop(state);
                trace!(self.setup.trace, "{} was doomed", self.name);
                self.setup.counts.add("bookies that died at a turn");
                self.crash(PowerLoss::Yes);
                return false;
            }
            *left -= 1;
        }
        let Some(life) = state.life.as_mut() else {
            return false;
        };
        if let Some((point, Side::Before)) = hit {
            drop(state);
            self.die(boot, point, Side::Before);
            return false;
        }
        let output = match turn {
            Turn::Write => life.node.write_group(),
            Turn::Sync => life.node.sync_group(),
            Turn::Spare => life.node.make_spare(),
            Turn::Timer => life.node.sync_now(),
            Turn::Idle => life.node.idle(),
            Turn::Reclaim => self.reclaim(life),
        };
        let failed = life.node.core().failed().is_some();
        let (_, replies) = life.due(output);
        let rolled = turn == Turn::Write && self.rolled(&mut state);
        let silent = self.setup.crashes.is_armed(CrashPoint(3)) && !replies.is_empty();
        let acked = silent
            .then(|| self.setup.crashes.pass(CrashPoint(3)))
            .flatten();
        if acked != Some(Side::Before) {
            self.settle(&mut state, replies);
        }
        drop(state);
        let eighth = rolled
            .then(|| self.setup.crashes.pass(CrashPoint(8)))
            .flatten();
        let death = hit
            .or(acked.map(|side| (CrashPoint(3), side)))
            .or(eighth.map(|side| (CrashPoint(8), side)));
        if let Some((point, side)) = death {
            self.die(boot, point, side);
            return false;
        }
        if failed {
            // The process exits (storage.md E1); what the page cache shows is not what is on the medium.
            self.state().note_lost_tail();
            let loss = match self.state().rng.random_bool(0.5) {
                true => PowerLoss::Yes,
                false => PowerLoss::No,
            };
            self.crash(loss);
            return false;
        }
        true
    }

    fn pass(&self, turn: Turn, life: &Life) -> Option<(CrashPoint, Side)> {
        let point = match turn {
            Turn::Write => CrashPoint(1),
            Turn::Sync => CrashPoint(2),
            Turn::Spare | Turn::Idle if life.node.wants_seal() => CrashPoint(7),
            Turn::Spare if life.node.wants_spare() => CrashPoint(6),
            Turn::Reclaim if life.node.reclaims() => CrashPoint(10),
            Turn::Spare | Turn::Timer | Turn::Idle | Turn::Reclaim => return None,
        };
        let fence = life.fences().then_some(CrashPoint(4));
        let raises = life.node.core().raises_watermark();
        let watermark = raises.then_some(CrashPoint(12));
        let tombstone = life.deletes().then_some(CrashPoint(11));
        fence
            .into_iter()
            .chain(watermark)
            .chain(tombstone)
            .chain([point])
            .find_map(|point| self.setup.crashes.pass(point).map(|side| (point, side)))
    }

    /// True when the last write opened a log file: its first group is written and not synced.
    fn rolled(&self, state: &mut super::sim_bookie::State) -> bool {
        let Some(life) = state.life.as_mut() else {
            return false;
        };
        let newest = self.newest_unsynced();
        let rolled = newest.is_some() && life.file.is_some() && newest != life.file;
        life.file = newest.or(life.file.take());
        rolled
    }
}
