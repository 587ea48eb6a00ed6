//! A consumer of a QUEUE or KEYED subscription: it comes and goes, closes or crashes, answers in all ways, stalls beyond its locks, and
//! acks at a new owner what it was given by the one before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::batch::decode;
use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, OwnerEpoch, SubscriptionId};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use serving_broker::state::{OffsetRange, OffsetRanges};
use serving_broker::{AckStatus, NewSharer, PartitionHandle, Said, ShareItem, SharePlan, ShareTie};
use serving_dispatch::{Delay, Policy, Unit, Verdict};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::broker::{Cluster, SimBroker};
use crate::consumer::start_of;
use crate::cursor_truth::Place;
use crate::sharing_truth::{Given, SharingTruth};
use crate::trace;

/// Without an answer for this long something is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Steps of one attachment before it is left.
const STEPS_MAX: u32 = 60;
/// What may wait for a consumer, records.
const CREDIT_MAX: u64 = 12;
/// Bytes never hold anything up here.
const CREDIT_BYTES: u64 = 1 << 30;
/// A healed world is emptied within this.
const EMPTIED: Duration = Duration::from_secs(180);
/// Between two looks whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a consumer behaves.
#[derive(Debug, Clone, Copy)]
pub struct Temper {
    /// Its number.
    pub number: u32,
    /// It sometimes does nothing for longer than its locks last.
    pub stalls: bool,
    /// It sometimes turns to the wrong broker.
    pub strays: bool,
    /// Longest pause between two steps, ms.
    pub pause_ms: u64,
}

/// A subscription whose records are shared.
#[derive(Debug, Clone)]
pub struct SharedSubscription {
    /// Which.
    pub id: SubscriptionId,
    /// How.
    pub policy: Policy,
    /// What its consumers know.
    pub truth: Arc<Mutex<SharingTruth>>,
}

impl SharedSubscription {
    fn truth(&self) -> MutexGuard<'_, SharingTruth> {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sharer(&self, name: String, handed: Offset) -> NewSharer {
        NewSharer {
            plan: SharePlan {
                subscription: self.id,
                policy: self.policy.clone(),
                dead_letters: None,
                paused_until: 0,
            },
            name: name.into(),
            client: "simulated".into(),
            priority: 0,
            slots: Vec::new(),
            handed,
        }
    }
}

/// Who listens.
#[derive(Clone)]
struct Listener {
    cluster: Arc<Cluster>,
    subscription: SharedSubscription,
    owner: OwnerEpoch,
    attachment: u64,
}

/// What a consumer hears: offsets of a delivery, or that it is over.
enum Heard {
    Given(Vec<u64>),
    Over(Option<Fault>),
}

/// Judges each delivery when it leaves the owner, whoever hears of it when.
fn listen(
    listener: Listener,
    mut items: mpsc::UnboundedReceiver<ShareItem>,
) -> mpsc::UnboundedReceiver<Heard> {
    let (heard, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(item) = items.recv().await {
            let item = match item {
                ShareItem::Unit { unit, batch, .. } => {
                    Heard::Given(listener.judge(&unit, &given(&unit, &batch, Instant::now())))
                }
                ShareItem::Blocked { .. } => continue,
                ShareItem::Ended(fault) => Heard::Over(Some(fault)),
                // Nobody moves these cursors, so that a restart is an end like any other.
                ShareItem::Restart { .. } => Heard::Over(None),
            };
            // Whoever listened may be gone; what is given is judged all the same.
            let _ = heard.send(item);
        }
    });
    receiver
}

impl Listener {
    fn judge(&self, unit: &Unit, all: &[Given]) -> Vec<u64> {
        let world = &self.cluster.world;
        for given in all {
            trace!(
                world.trace,
                "attachment {} of {} has {} from {}, {} failed",
                self.attachment,
                self.subscription.id,
                given.offset,
                self.owner,
                given.failed
            );
            let mut truth = self.subscription.truth();
            let found = truth.give(self.owner, self.attachment, given);
            drop(truth);
            for wrong in found {
                world.violations.add(wrong);
            }
            if given.failed > 0 {
                world.counts.add("shared records that came after a failure");
            }
        }
        world.violations.check(!all.is_empty(), || {
            format!("a delivery of {:?} has no record", unit.acquired)
        });
        all.iter().map(|given| given.offset).collect()
    }
}

/// The records of a delivery that are meant.
fn given(unit: &Unit, batch: &bytes::Bytes, at: Instant) -> Vec<Given> {
    let mut all = Vec::new();
    let base = unit.batch.first.0;
    for record in decode(batch).unwrap_or_default() {
        let offset = base + u64::from(record.offset_delta);
        let meant = |range: &OffsetRange| (range.first.0..range.end.0).contains(&offset);
        if let Some(item) = unit.acquired.iter().find(|item| meant(&item.range)) {
            all.push(Given {
                offset,
                key: record.key,
                failed: item.failed,
                at,
            });
        }
    }
    all
}

/// A consumer.
pub struct Sharer {
    cluster: Arc<Cluster>,
    subscription: SharedSubscription,
    temper: Temper,
    rng: ChaCha12Rng,
    /// Highest leader epoch seen.
    seen: OwnerEpoch,
    /// What it was given before and has not answered, and everything that it was handed lies below.
    left: (Vec<u64>, Offset),
}

/// One attachment.
struct Attachment {
    number: u64,
    tie: ShareTie,
    items: mpsc::UnboundedReceiver<Heard>,
    /// Not answered; whether by this attachment it was delivered.
    held: BTreeMap<u64, bool>,
    owner: OwnerEpoch,
}

impl Sharer {
    /// One that has attached nowhere.
    pub fn new(cluster: &Arc<Cluster>, subscription: &SharedSubscription, temper: Temper) -> Self {
        let name = format!("sharer {} of {}", temper.number, subscription.id);
        Self {
            cluster: cluster.clone(),
            subscription: subscription.clone(),
            temper,
            rng: cluster.world.seeds.stream(&name),
            seen: OwnerEpoch(0),
            left: (Vec::new(), Offset(0)),
        }
    }

    /// Consumes until it is dropped.
    pub async fn run(mut self) {
        loop {
            let stale = self.temper.strays && self.rng.random_bool(0.05);
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

    async fn attach(
        &mut self,
        broker: &Arc<SimBroker>,
        handle: &PartitionHandle,
    ) -> Option<Attachment> {
        let made = broker
            .process
            .heard(handle.make_cursor(start_of(self.subscription.id)));
        timeout(ANSWER_TIMEOUT, made).await.ok()??.ok()?;
        let name = format!("s{}", self.temper.number);
        let sharer = self.subscription.sharer(name, self.left.1);
        let shared = broker.process.heard(handle.share(sharer));
        let (tie, items) = timeout(ANSWER_TIMEOUT, shared).await.ok()??.ok()?;
        self.cluster.world.counts.add("sharers that attached");
        let tickets = std::mem::take(&mut self.left.0).into_iter();
        let listener = Listener {
            cluster: self.cluster.clone(),
            subscription: self.subscription.clone(),
            owner: handle.leader_epoch(),
            attachment: self.subscription.truth().cursor.attach(),
        };
        Some(Attachment {
            number: listener.attachment,
            tie,
            items: listen(listener, items),
            held: tickets.map(|offset| (offset, false)).collect(),
            owner: handle.leader_epoch(),
        })
    }

    async fn attachment(&mut self, broker: &Arc<SimBroker>, handle: &PartitionHandle) {
        let Some(mut at) = self.attach(broker, handle).await else {
            return;
        };
        at.tie
            .grant(self.rng.random_range(1..=CREDIT_MAX), CREDIT_BYTES);
        let steps = self.rng.random_range(1..STEPS_MAX);
        for _ in 0..steps {
            let pause = Duration::from_millis(self.rng.random_range(0..self.temper.pause_ms));
            let goes_on = self.wait(broker, &mut at, pause).await;
            if !goes_on || broker.process.is_dead() || handle.ended().is_some() {
                break;
            }
            self.step(broker, &mut at).await;
        }
        let crashes = self.rng.random_bool(0.4);
        if crashes {
            at.tie.broke();
            self.cluster.world.counts.add("sharers that crashed");
        }
        self.subscription.truth().leave(at.owner, at.number);
        let keeps = self.rng.random_bool(0.5);
        self.left.0 = at.held.into_keys().filter(|_| keeps).collect();
    }

    /// Takes what comes meanwhile. False: the attachment is over.
    async fn wait(&mut self, broker: &SimBroker, at: &mut Attachment, pause: Duration) -> bool {
        let over = Instant::now() + pause;
        loop {
            let left = over.saturating_duration_since(Instant::now());
            let next = broker.process.heard(at.items.recv());
            match timeout(left, next).await {
                Err(_) => return true,
                Ok(Some(Some(Heard::Given(offsets)))) => {
                    for offset in offsets {
                        at.held.insert(offset, true);
                        self.left.1 = self.left.1.max(Offset(offset + 1));
                    }
                }
                Ok(_) => return false,
            }
        }
    }

    async fn step(&mut self, broker: &Arc<SimBroker>, at: &mut Attachment) {
        let roll = self.rng.random_range(0..100);
        if roll < 25 {
            let records = self.rng.random_range(1..=CREDIT_MAX);
            at.tie.grant(records, CREDIT_BYTES);
            return;
        }
        if roll < 28 && self.temper.stalls {
            let lock = u64::try_from(self.subscription.policy.lock_ms).unwrap_or(0);
            self.cluster.world.counts.add("sharers that stalled");
            // What comes meanwhile is heard afterwards.
            sleep(Duration::from_millis(lock.min(3_000) * 3 / 2)).await;
            return;
        }
        let count = at.held.len();
        let Some((offset, here)) = (count > 0)
            .then(|| self.rng.random_range(0..count))
            .and_then(|nth| at.held.iter().nth(nth))
            .map(|(offset, here)| (*offset, *here))
        else {
            return;
        };
        let delay = [Delay::None, Delay::For(40), Delay::Policy][self.rng.random_range(0..3)];
        let verdict = match self.rng.random_range(0..20) {
            _ if !here => Verdict::Ack,
            0..14 => Verdict::Ack,
            14..17 => Verdict::Nack {
                failed: true,
                delay,
            },
            17..19 => Verdict::Nack {
                failed: false,
                delay,
            },
            _ => Verdict::Renew,
        };
        self.say(broker, at, verdict, offset);
    }

    /// Neighbours that it holds go along.
    fn say(&mut self, broker: &Arc<SimBroker>, at: &mut Attachment, verdict: Verdict, offset: u64) {
        let here = at.held.get(&offset).copied().unwrap_or(true);
        let mut end = offset + 1;
        while self.rng.random_bool(0.6) && at.held.get(&end) == Some(&here) {
            end += 1;
        }
        let range = OffsetRange::new(offset, end);
        let mut truth = self.subscription.truth();
        if verdict != Verdict::Renew {
            for offset in offset..end {
                at.held.remove(&offset);
                truth.let_go(at.owner, at.number, offset);
            }
        }
        if verdict == Verdict::Ack {
            truth.cursor.ask(at.tie.state_epoch(), range);
        }
        drop(truth);
        let answer = at.tie.say(Said {
            state_epoch: at.tie.state_epoch(),
            ranges: vec![range],
            verdict,
            before: !here,
        });
        let (broker, cluster) = (broker.clone(), self.cluster.clone());
        let (subscription, owner) = (self.subscription.clone(), at.owner);
        let (number, epoch) = (self.temper.number, at.tie.state_epoch());
        tokio::spawn(async move {
            let heard = timeout(ANSWER_TIMEOUT, broker.process.heard(answer)).await;
            let Ok(Some(Ok(acked))) = heard else {
                return;
            };
            if verdict == Verdict::Ack && acked.statuses == [AckStatus::Ok] {
                trace!(
                    cluster.world.trace,
                    "sharer {number} has a receipt of {range:?}"
                );
                let mut truth = subscription.truth();
                truth.cursor.receive(epoch, range, owner, number);
                for offset in range.first.0..range.end.0 {
                    truth.receive(owner, offset, Instant::now());
                }
                cluster.world.counts.add("shared acks with a receipt");
            }
        });
    }
}

/// The last word: what the owner of a healed world shows is what was acked, everything else is given out, and then all is processed.
///
/// # Errors
/// The fault with which the owner ended meanwhile: another one is to be asked.
pub async fn judge_sharing(
    cluster: &Arc<Cluster>,
    handle: &PartitionHandle,
    subscription: &SharedSubscription,
) -> Result<(), Fault> {
    let violations = &cluster.world.violations;
    handle.make_cursor(start_of(subscription.id)).await?;
    let views = handle.cursors(Some(subscription.id), usize::MAX).await?;
    let Some(view) = views.into_iter().next() else {
        violations.add("the cursor is gone");
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
    if let Some(wrong) = subscription.truth().cursor.judge(&place) {
        violations.add(wrong);
    }
    match timeout(EMPTIED, empty(cluster, handle, subscription)).await {
        Ok(emptied) => emptied,
        Err(_) => {
            let views = handle.cursors(Some(subscription.id), 10).await?;
            violations.add(format!("STUCK: not everything is given out: {views:?}"));
            Ok(())
        }
    }
}

/// Takes and acks everything that is left.
async fn empty(
    cluster: &Arc<Cluster>,
    handle: &PartitionHandle,
    subscription: &SharedSubscription,
) -> Result<(), Fault> {
    let owner = handle.leader_epoch();
    let number = subscription.truth().cursor.attach();
    let sharer = subscription.sharer("last".to_owned(), Offset(0));
    let (tie, items) = handle.share(sharer).await?;
    let listener = Listener {
        cluster: cluster.clone(),
        subscription: subscription.clone(),
        owner,
        attachment: number,
    };
    let mut items = listen(listener, items);
    loop {
        tie.grant(1_000, CREDIT_BYTES);
        while let Ok(Some(heard)) = timeout(LOOK_EVERY, items.recv()).await {
            match heard {
                Heard::Over(Some(fault)) => return Err(fault),
                Heard::Over(None) => cluster.world.violations.add("a cursor was moved"),
                Heard::Given(offsets) => {
                    for offset in offsets {
                        ack_last(&tie, subscription, (owner, number), offset).await?;
                    }
                }
            }
        }
        if let Some(fault) = handle.ended() {
            return Err(fault);
        }
        let views = handle.cursors(Some(subscription.id), 0).await?;
        if views.iter().all(|view| view.backlog == 0) {
            return Ok(());
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn ack_last(
    tie: &ShareTie,
    subscription: &SharedSubscription,
    (owner, number): (OwnerEpoch, u64),
    offset: u64,
) -> Result<(), Fault> {
    let range = OffsetRange::new(offset, offset + 1);
    {
        let mut truth = subscription.truth();
        truth.cursor.ask(tie.state_epoch(), range);
        truth.let_go(owner, number, offset);
    }
    let said = tie.say(Said {
        state_epoch: tie.state_epoch(),
        ranges: vec![range],
        verdict: Verdict::Ack,
        before: false,
    });
    let acked = said.await?;
    if acked.statuses == [AckStatus::Ok] {
        subscription.truth().receive(owner, offset, Instant::now());
    }
    Ok(())
}
