//! A consumer as a lane of the SDK is one: attaches, reads from where the owner says, acks in all ways, seeks, and goes without a word.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, OwnerEpoch, SubscriptionId};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use serving_broker::state::{OffsetRange, OffsetRanges};
use serving_broker::{
    AckKind, AckStatus, Begin, CursorStart, Handed, NewConsumer, PartitionHandle, Stand,
    SubscriptionKind, Tie,
};
use tokio::time::{sleep, timeout};

use crate::broker::{Cluster, SimBroker};
use crate::cursor_truth::{CursorTruth, Place};
use crate::trace;

/// Without an answer for this long an attachment is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Looks at one attachment before it is left.
const STEPS_MAX: u32 = 60;

/// How a consumer behaves.
#[derive(Debug, Clone, Copy)]
pub struct Habit {
    /// Its number.
    pub number: u32,
    /// Whether others stand by.
    pub kind: SubscriptionKind,
    /// It moves its cursor now and then.
    pub seeks: bool,
    /// It sometimes turns to the wrong broker.
    pub strays: bool,
    /// Longest pause between two looks, ms.
    pub pause_ms: u64,
}

/// A consumer.
pub struct Consumer {
    cluster: Arc<Cluster>,
    subscription: SubscriptionId,
    truth: Arc<Mutex<CursorTruth>>,
    habit: Habit,
    rng: ChaCha12Rng,
    /// Highest leader epoch seen: an owner of a lower one does not know yet that it is none.
    seen: OwnerEpoch,
    seeks: u64,
    /// State epoch and end of what the attachments before were sent.
    handed: Option<(u32, Offset)>,
}

/// One attachment of it.
struct Attachment {
    /// Its number in the truth.
    number: u64,
    /// State epoch and end of what it was sent, in whichever turns: what it was sent before a rival's visit may be acked after it.
    sent: (u32, Offset),
    /// Where it stands while it is active.
    reading: Option<Reading>,
}

struct Reading {
    turn: u64,
    begin: Begin,
    position: Offset,
}

impl Attachment {
    /// It is active anew, or was sent more.
    fn is_sent(&mut self, state_epoch: u32, to: Offset) {
        if self.sent.0 != state_epoch {
            self.sent = (state_epoch, to);
        }
        self.sent.1 = self.sent.1.max(to);
    }
}

/// The truth, whoever panicked over it.
pub fn locked(truth: &Mutex<CursorTruth>) -> MutexGuard<'_, CursorTruth> {
    truth.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cursor that a subscription has in these runs, made at the log's begin.
pub fn start_of(subscription: SubscriptionId) -> CursorStart {
    CursorStart {
        subscription,
        name: format!("t/n/{subscription}").into(),
        hold: true,
        base: Offset(0),
    }
}

/// An ack that is about to be asked for.
struct Asked {
    kind: AckKind,
    range: OffsetRange,
    /// Of more than was sent.
    beyond: bool,
}

impl Consumer {
    /// One that has attached nowhere.
    pub fn new(
        cluster: &Arc<Cluster>,
        subscription: SubscriptionId,
        truth: &Arc<Mutex<CursorTruth>>,
        habit: Habit,
    ) -> Self {
        let rng = cluster
            .world
            .seeds
            .stream(&format!("consumer {}", habit.number));
        Self {
            cluster: cluster.clone(),
            subscription,
            truth: truth.clone(),
            habit,
            rng,
            seen: OwnerEpoch(0),
            seeks: 0,
            handed: None,
        }
    }

    /// Consumes until it is dropped.
    pub async fn run(mut self) {
        loop {
            let stale = self.habit.strays && self.rng.random_bool(0.05);
            if let Some((broker, handle)) = self.cluster.route(stale).await {
                if handle.leader_epoch() >= self.seen {
                    self.seen = handle.leader_epoch();
                    self.attachment(&broker, &handle).await;
                } else {
                    self.cluster.prefer_other();
                }
            }
            sleep(Duration::from_millis(self.rng.random_range(10..300))).await;
        }
    }

    async fn attachment(&mut self, broker: &Arc<SimBroker>, handle: &PartitionHandle) {
        let made = broker
            .process
            .heard(handle.make_cursor(start_of(self.subscription)));
        let Ok(Some(Ok(()))) = timeout(ANSWER_TIMEOUT, made).await else {
            return;
        };
        let handed = self.handed.filter(|_| self.rng.random_bool(0.7));
        let consumer = NewConsumer {
            subscription: self.subscription,
            kind: self.habit.kind,
            name: format!("c{}", self.habit.number).into(),
            client: "simulated".into(),
            priority: self.rng.random_range(0..2),
            takeover: true,
            handed: handed.map(|(state_epoch, end)| Handed { end, state_epoch }),
        };
        let attached = broker.process.heard(handle.attach(consumer));
        let Ok(Some(Ok(tie))) = timeout(ANSWER_TIMEOUT, attached).await else {
            return;
        };
        self.cluster.world.counts.add("consumers that attached");
        trace!(
            self.cluster.world.trace,
            "consumer {} attaches, handed {handed:?}", self.habit.number
        );
        let mut attachment = Attachment {
            number: locked(&self.truth).attach(),
            sent: handed.unwrap_or_default(),
            reading: None,
        };
        let steps = self.rng.random_range(1..STEPS_MAX);
        for _ in 0..steps {
            if broker.process.is_dead() || handle.ended().is_some() {
                return;
            }
            let goes_on = self.step(broker, &tie, &mut attachment).await;
            self.handed = Some(attachment.sent);
            if !goes_on {
                return;
            }
            sleep(Duration::from_millis(
                self.rng.random_range(0..self.habit.pause_ms),
            ))
            .await;
        }
    }

    /// One look. False: the attachment is over.
    async fn step(
        &mut self,
        broker: &Arc<SimBroker>,
        tie: &Tie,
        attachment: &mut Attachment,
    ) -> bool {
        let view = tie.view().borrow().clone();
        if view.ended.is_some() {
            return false;
        }
        let Stand::Active(begin) = view.stand else {
            attachment.reading = None;
            if matches!(view.stand, Stand::Yielding(_)) && self.rng.random_bool(0.3) {
                tie.yielded();
            }
            return true;
        };
        let owner = tie.partition().leader_epoch();
        let reading = attachment.reading.as_ref();
        if reading.is_none_or(|now| now.turn != view.turn) {
            self.trace_begin(&begin, tie);
            self.judge(&begin, tie);
            locked(&self.truth).activate(owner, attachment.number);
            tie.sent(view.turn, begin.base);
            attachment.is_sent(begin.state_epoch, begin.base);
            attachment.reading = Some(Reading {
                turn: view.turn,
                position: begin.base,
                begin,
            });
        } else if let Some(wrong) = locked(&self.truth).judge_active(owner, attachment.number) {
            self.cluster.world.violations.add(wrong);
        }
        match self.rng.random_range(0..100) {
            0..45 => self.read(broker, tie, attachment).await,
            45..95 => self.ack(broker, tie, attachment).await,
            _ if self.habit.seeks => self.seek(broker, tie).await,
            _ => true,
        }
    }

    fn place<'a>(&self, begin: &'a Begin, tie: &Tie) -> Place<'a> {
        Place {
            base: begin.base,
            acked: &begin.acked,
            state_epoch: begin.state_epoch,
            owner: tie.partition().leader_epoch(),
            log_start: tie.partition().offsets().log_start,
            requested: self.cluster.trims().requested(),
            to: Some(self.habit.number),
        }
    }

    fn trace_begin(&self, begin: &Begin, tie: &Tie) {
        trace!(
            self.cluster.world.trace,
            "consumer {} begins at {} in state epoch {}, acks to {}, acked {:?}, log start {}",
            self.habit.number,
            begin.base,
            begin.state_epoch,
            begin.acks_to,
            begin.acked.iter().collect::<Vec<_>>(),
            tie.partition().offsets().log_start
        );
    }

    fn judge(&self, begin: &Begin, tie: &Tie) {
        let place = self.place(begin, tie);
        if let Some(wrong) = locked(&self.truth).judge(&place) {
            self.cluster.world.violations.add(wrong);
        }
    }

    async fn read(&mut self, broker: &SimBroker, tie: &Tie, attachment: &mut Attachment) -> bool {
        let Some(reading) = &mut attachment.reading else {
            return true;
        };
        let read = broker
            .process
            .heard(tie.partition().read(reading.position, 1_500));
        let Ok(Some(Ok(chunk))) = timeout(ANSWER_TIMEOUT, read).await else {
            return false;
        };
        tie.sent(reading.turn, chunk.end);
        reading.position = chunk.end;
        let state_epoch = reading.begin.state_epoch;
        trace!(
            self.cluster.world.trace,
            "consumer {} was sent up to {}", self.habit.number, chunk.end
        );
        attachment.is_sent(state_epoch, chunk.end);
        true
    }

    /// What is acked: of `lowest..end`, or by mistake of what comes after `sent`.
    fn draw_ack(&mut self, lowest: u64, end: u64, sent: Offset) -> Asked {
        let kind = match self.rng.random_bool(0.4) {
            true => AckKind::Cumulative,
            false => AckKind::Individual,
        };
        let beyond = self.rng.random_bool(0.05);
        let first = self.rng.random_range(lowest..=end);
        let until = match beyond {
            true => sent.0 + self.rng.random_range(1..50),
            false => self.rng.random_range(first..=end.min(first + 6)),
        };
        Asked {
            kind,
            range: OffsetRange {
                first: Offset(first),
                end: Offset(until),
            },
            beyond,
        }
    }

    /// Something of what it was sent, or by mistake more.
    async fn ack(&mut self, broker: &SimBroker, tie: &Tie, attachment: &Attachment) -> bool {
        let Some(reading) = &attachment.reading else {
            return true;
        };
        let (end, sent) = (
            reading.position.max(reading.begin.acks_to).0,
            attachment.sent.1,
        );
        let lowest = reading.begin.base.0.min(end);
        let Asked {
            kind,
            range,
            beyond,
        } = self.draw_ack(lowest, end, sent);
        let (first, until) = (range.first.0, range.end.0);
        let meant = match kind {
            AckKind::Individual => range,
            AckKind::Cumulative => OffsetRange {
                first: Offset(0),
                end: range.end,
            },
        };
        let state_epoch = reading.begin.state_epoch;
        trace!(
            self.cluster.world.trace,
            "consumer {} acks {first} to {until} {kind:?}, sent {sent}, mistaken: {beyond}",
            self.habit.number
        );
        if !beyond {
            locked(&self.truth).ask(state_epoch, meant);
        }
        let acking = broker
            .process
            .heard(tie.ack(state_epoch, kind, vec![range]));
        if self.rng.random_bool(0.1) {
            // The client does not wait; what it asked for may be done.
            drop(acking);
            return true;
        }
        let Ok(Some(Ok(acked))) = timeout(ANSWER_TIMEOUT, acking).await else {
            return false;
        };
        let ok = acked.statuses == [AckStatus::Ok];
        if ok && beyond {
            // What lies below the base is processed, whoever says so, and nothing above is taken.
            let place = self.place(&reading.begin, tie);
            let base = locked(&self.truth).base_may_be(&place, sent);
            self.cluster
                .world
                .violations
                .check(until <= base.0, || {
                    format!("an ack up to {until} is taken, {sent} was sent, and all is processed up to {base} at most")
                });
        }
        if ok {
            let owner = tie.partition().leader_epoch();
            trace!(
                self.cluster.world.trace,
                "consumer {} has a receipt of {first} to {until}", self.habit.number
            );
            locked(&self.truth).receive(state_epoch, meant, owner, self.habit.number);
            self.cluster.world.counts.add("acks with a receipt");
        }
        true
    }

    async fn seek(&mut self, broker: &SimBroker, tie: &Tie) -> bool {
        let high = tie.partition().offsets().high_watermark.0;
        let to = Offset(self.rng.random_range(0..=high));
        self.seeks += 1;
        locked(&self.truth).aim(to);
        let seeking = broker.process.heard(tie.seek(to, self.seeks));
        let Ok(Some(Ok(moved))) = timeout(ANSWER_TIMEOUT, seeking).await else {
            return false;
        };
        trace!(
            self.cluster.world.trace,
            "consumer {} moved the cursor to {to}", self.habit.number
        );
        locked(&self.truth).moved(moved.state_epoch, moved.new_base);
        self.cluster.world.counts.add("cursors that were moved");
        true
    }
}

/// The last word: what the owner of a healed world shows is what was acked, and the rest can be acked.
///
/// # Errors
/// The fault with which the owner ended meanwhile: another one is to be asked.
pub async fn judge_cursor(
    cluster: &Cluster,
    handle: &PartitionHandle,
    subscription: SubscriptionId,
    truth: &Mutex<CursorTruth>,
) -> Result<(), Fault> {
    let violations = &cluster.world.violations;
    let views = handle.cursors(Some(subscription), usize::MAX).await?;
    let Some(view) = views.into_iter().next() else {
        let told = locked(truth).receipts();
        violations.check(told == 0, || {
            format!("the cursor is gone, and {told} receipts were given")
        });
        return Ok(());
    };
    let acked: OffsetRanges = view.ranges.iter().copied().collect();
    let place = Place {
        base: view.base,
        acked: &acked,
        state_epoch: view.state_epoch,
        owner: handle.leader_epoch(),
        log_start: handle.offsets().log_start,
        requested: cluster.trims().requested(),
        to: None,
    };
    if let Some(wrong) = locked(truth).judge(&place) {
        violations.add(wrong);
    }
    let high = handle.offsets().high_watermark;
    let consumer = NewConsumer {
        subscription,
        kind: SubscriptionKind::Exclusive,
        name: "last".into(),
        client: "simulated".into(),
        priority: 0,
        takeover: true,
        handed: None,
    };
    let emptied = async {
        let tie = handle.attach(consumer).await?;
        let turn = tie.view().borrow().turn;
        tie.sent(turn, high);
        let all = OffsetRange {
            first: Offset(0),
            end: high,
        };
        locked(truth).ask(view.state_epoch, all);
        let acked = tie.ack(view.state_epoch, AckKind::Cumulative, vec![all]);
        let acked = acked.await?;
        let left = handle.cursors(Some(subscription), 0).await?;
        Ok::<_, Fault>((acked, left))
    };
    match timeout(Duration::from_secs(60), emptied).await {
        Ok(Ok((acked, left))) => {
            let empty = acked.statuses == [AckStatus::Ok] && left.iter().all(|c| c.backlog == 0);
            violations.check(empty, || {
                format!("everything was acked: {acked:?}, and there is a backlog: {left:?}")
            });
        }
        Ok(Err(fault)) => return Err(fault),
        Err(_) => violations.add("STUCK: acks are not answered in a healed world"),
    }
    Ok(())
}
