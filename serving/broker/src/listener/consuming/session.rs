//! The one task of a session: reads what the client says and hands it on; its lanes send by themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::limits::PROTOCOL_VERSION;
use hulse_proto::wire::v1::{self, consume_down, consume_up};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::ahead::Ahead;
use super::answers::{self, ACK_RANGES_MAX, Done, What};
use super::attaching::{Attached, Tied, attach};
use super::credit::Credit;
use super::lane::{Ended, Lane, Sent, Shared};
use super::sharing::{ShareCredit, ShareLane};
use crate::listener::front::Front;
use crate::listener::wire::{check_hello, first_item, invalid, no_hello, read_fault};
use crate::partition::Tie;

/// The broker speaks at least this often (serving.md E1.4).
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// Acks of one lane that have no answer yet; more are to be sent again.
const ACKS_WAITING_MAX: usize = 1_000;
/// What is kept of all acks of a session that have no answer yet, by [`answers::weight`]; more are to be sent again.
const ACK_WEIGHT_MAX: usize = 1 << 20;
/// Lanes of one session.
const LANES_MAX: usize = 10_000;
/// What is left to answer when the broker goes down is answered within this.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// A lane, as the session sees it.
struct Seat {
    /// Which opening of this lane number.
    opening: u64,
    /// `None`: it is being attached.
    tie: Option<Bond>,
    stop: CancellationToken,
    acks: usize,
    seeking: bool,
    /// The newest seek that waits for the one under way.
    next_seek: Option<v1::SeekLane>,
}

/// What ties a lane to the owner.
#[derive(Clone)]
pub(super) enum Bond {
    Single(Arc<Tie>),
    Sharing(Arc<ShareCredit>),
}

/// An attach came to its end.
struct Opened {
    lane: u32,
    opening: u64,
    tell_end: bool,
    result: Result<Attached, Fault>,
}

enum Event {
    Gone,
    Drain,
    Up(Option<Result<v1::ConsumeUp, Status>>),
    Done(Done),
    Opened(Opened),
    LaneEnded(Result<Ended, JoinError>),
    Tick,
}

/// One session.
pub(super) struct Session {
    shared: Shared,
    up: Streaming<v1::ConsumeUp>,
    client: Arc<str>,
    /// Names the session's credit.
    epoch: u64,
    seats: BTreeMap<u32, Seat>,
    openings: u64,
    opening: FuturesUnordered<BoxFuture<'static, Opened>>,
    pending: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Of the acks among them.
    ack_weight: usize,
    lanes: JoinSet<Ended>,
    out: Vec<consume_down::Item>,
    draining: bool,
    /// Shared with the stream that numbers deliveries.
    _last_seq: Arc<AtomicU64>,
}

impl Session {
    pub(super) fn new(
        front: Arc<Front>,
        up: Streaming<v1::ConsumeUp>,
        down: mpsc::Sender<Sent>,
        last_seq: Arc<AtomicU64>,
    ) -> Self {
        let epoch = front.next_credit_epoch();
        let shared = Shared {
            credit: Arc::new(Credit::default()),
            ahead: Arc::new(Ahead::new(front.read_ahead.clone())),
            front,
            out: down,
        };
        Self {
            shared,
            up,
            client: "".into(),
            epoch,
            seats: BTreeMap::new(),
            openings: 0,
            opening: FuturesUnordered::new(),
            pending: FuturesUnordered::new(),
            ack_weight: 0,
            lanes: JoinSet::new(),
            out: Vec::new(),
            draining: false,
            _last_seq: last_seq,
        }
    }

    /// Serves until the client is done or gone, breaks the protocol, or the broker goes down.
    ///
    /// # Errors
    /// The fault that the stream is to end with.
    pub(super) async fn run(mut self) -> Result<(), Fault> {
        if !self.greet().await? {
            return Ok(());
        }
        let mut tick = tokio::time::interval(HEARTBEAT_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await;
        loop {
            if !self.send_out().await {
                return Ok(());
            }
            if self.draining && self.pending.is_empty() {
                return Ok(());
            }
            match self.next_event(&mut tick).await {
                Event::Gone => {
                    self.broke();
                    return Ok(());
                }
                Event::Up(None) => return Ok(()),
                Event::Drain => self.drain(),
                Event::Up(Some(Ok(item))) => self.on_item(item)?,
                Event::Up(Some(Err(status))) => {
                    self.broke();
                    return read_fault(&status).map_or(Ok(()), Err);
                }
                Event::Done(done) => self.on_done(done),
                Event::Opened(opened) => self.on_opened(opened),
                Event::LaneEnded(ended) => self.on_lane_ended(ended)?,
                Event::Tick => self.out.push(heartbeat()),
            }
        }
    }

    /// Hello and Welcome. False: the client is gone.
    async fn greet(&mut self) -> Result<bool, Fault> {
        let front = self.shared.front.clone();
        let hello = match first_item(&mut self.up, &front.drain).await? {
            None => return Ok(false),
            Some(v1::ConsumeUp {
                item: Some(consume_up::Item::Hello(hello)),
            }) => hello,
            Some(_) => return Err(no_hello()),
        };
        check_hello(&hello.client_id, hello.protocol_version)?;
        self.client = hello.client_id.into();
        self.out
            .push(consume_down::Item::Welcome(v1::ConsumeWelcome {
                protocol_version: PROTOCOL_VERSION,
                broker: front.config.name.as_str().to_owned(),
                credit_epoch: self.epoch,
                unacked_records_max: front.config.unacked_records_max,
                ack_ranges_max: ACK_RANGES_MAX as u32,
                acks_waiting_max: ACKS_WAITING_MAX as u32,
                lanes_max: LANES_MAX as u32,
                features: Vec::new(),
            }));
        Ok(true)
    }

    async fn next_event(&mut self, tick: &mut Interval) -> Event {
        let reads = !self.draining;
        let Self {
            shared,
            up,
            opening,
            pending,
            lanes,
            ..
        } = self;
        tokio::select! {
            biased;
            () = shared.front.kill.cancelled() => Event::Gone,
            () = shared.out.closed() => Event::Gone,
            () = shared.front.drain.cancelled(), if reads => Event::Drain,
            Some(done) = pending.next(), if !pending.is_empty() => Event::Done(done),
            Some(opened) = opening.next(), if !opening.is_empty() => Event::Opened(opened),
            Some(ended) = lanes.join_next(), if !lanes.is_empty() => Event::LaneEnded(ended),
            item = up.next(), if reads => Event::Up(item),
            _ = tick.tick() => Event::Tick,
        }
    }

    fn on_item(&mut self, item: v1::ConsumeUp) -> Result<(), Fault> {
        match item.item {
            Some(consume_up::Item::Attach(attach)) => self.on_attach(attach)?,
            Some(consume_up::Item::Credit(credit)) => {
                if credit.credit_epoch == self.epoch {
                    self.on_credit(&credit);
                }
            }
            Some(consume_up::Item::Ack(ack)) => self.on_ack(ack),
            Some(consume_up::Item::Seek(seek)) => self.on_seek(seek),
            Some(consume_up::Item::Yielded(yielded)) => {
                if let Some(Bond::Single(tie)) = self.tie(yielded.lane) {
                    tie.yielded();
                }
            }
            Some(consume_up::Item::Detach(detach)) => self.on_detach(detach.lane),
            Some(consume_up::Item::Heartbeat(_)) => {}
            Some(consume_up::Item::Hello(_)) => return Err(invalid("Hello came twice")),
            None => {
                return Err(invalid(
                    "an item of the session is of no kind that this broker knows",
                ));
            }
        }
        Ok(())
    }

    fn tie(&self, lane: u32) -> Option<Bond> {
        self.seats.get(&lane)?.tie.clone()
    }

    fn on_credit(&self, credit: &v1::ConsumeCredit) {
        let Some(lane) = credit.lane else {
            return self.shared.credit.grant(credit.records, credit.bytes);
        };
        // A lane that has ended needs none.
        if let Some(Bond::Sharing(own)) = self.tie(lane) {
            own.grant(credit.records, credit.bytes);
        }
    }

    /// The client is gone without a word; a broker that goes down is no reason to blame anybody.
    fn broke(&self) {
        if self.shared.front.kill.is_cancelled() || self.shared.front.drain.is_cancelled() {
            return;
        }
        for seat in self.seats.values() {
            if let Some(Bond::Sharing(own)) = &seat.tie {
                own.tie().broke();
            }
        }
    }

    fn on_attach(&mut self, request: v1::Attach) -> Result<(), Fault> {
        let lane = request.lane;
        if self.seats.contains_key(&lane) {
            return Err(invalid(format!("lane {lane} is attached already")));
        }
        if self.seats.len() >= LANES_MAX {
            return Err(invalid(format!("a session has at most {LANES_MAX} lanes")));
        }
        self.openings += 1;
        let opening = self.openings;
        self.seats.insert(
            lane,
            Seat {
                opening,
                tie: None,
                stop: CancellationToken::new(),
                acks: 0,
                seeking: false,
                next_seek: None,
            },
        );
        let (front, client) = (self.shared.front.clone(), self.client.clone());
        let tell_end = request.tell_end;
        let opened = async move {
            let result = attach(front, client, request).await;
            Opened {
                lane,
                opening,
                tell_end,
                result,
            }
        };
        self.opening.push(opened.boxed());
        Ok(())
    }

    fn on_opened(&mut self, opened: Opened) {
        let lane = opened.lane;
        let seat = self.seats.get_mut(&lane);
        let Some(seat) = seat.filter(|seat| seat.opening == opened.opening) else {
            // Detached meanwhile: the tie goes, and the consumer with it.
            return;
        };
        match opened.result {
            Ok(Attached { tied, name }) => {
                let counts = self
                    .shared
                    .front
                    .metrics
                    .subscriptions()
                    .consuming(name.as_str());
                let names = (lane, opened.opening);
                let stop = seat.stop.clone();
                let shared = self.shared.clone();
                match tied {
                    Tied::Single(tie) => {
                        let tie = Arc::new(tie);
                        seat.tie = Some(Bond::Single(tie.clone()));
                        let mut running = Lane::new(names, shared, tie, stop, counts);
                        running.tell_end = opened.tell_end;
                        self.lanes.spawn(running.run());
                    }
                    Tied::Sharing(tie, items) => {
                        let credit = Arc::new(ShareCredit::new(Arc::new(tie)));
                        seat.tie = Some(Bond::Sharing(credit.clone()));
                        let (number, opening) = names;
                        let running = ShareLane {
                            number,
                            opening,
                            shared,
                            credit,
                            items,
                            stop,
                            counts,
                        };
                        self.lanes.spawn(running.run());
                    }
                }
            }
            Err(fault) => {
                self.seats.remove(&lane);
                self.shared.front.metrics.fault(fault.reason);
                self.out.push(detached(lane, Some(&fault)));
            }
        }
    }

    fn on_detach(&mut self, lane: u32) {
        match self.seats.get(&lane) {
            // The lane says so when it has stopped.
            Some(seat) if seat.tie.is_some() => seat.stop.cancel(),
            _ => {
                self.seats.remove(&lane);
                self.out.push(detached(lane, None));
            }
        }
    }

    fn on_lane_ended(&mut self, ended: Result<Ended, JoinError>) -> Result<(), Fault> {
        let Ok(ended) = ended else {
            let words = "a lane of this session met a bug; attach again";
            return Err(Fault::new(Reason::Internal, words));
        };
        let seat = self.seats.get(&ended.lane);
        if seat.is_some_and(|seat| seat.opening == ended.opening) {
            // The tie goes, and the consumer with it.
            self.seats.remove(&ended.lane);
        }
        if !self.draining {
            self.out.push(ended.item);
        }
        Ok(())
    }

    fn on_ack(&mut self, ack: v1::AckRecords) {
        let seat = self.seats.get_mut(&ack.lane);
        let Some((seat, tie)) = seat.and_then(|seat| {
            let tie = seat.tie.clone()?;
            Some((seat, tie))
        }) else {
            let fault = Fault::new(
                Reason::NotOwned,
                "the lane has ended, or was never attached",
            );
            self.out
                .push(answers::refused(&ack, v1::AckStatus::NotOwned, &fault));
            return;
        };
        let weight = answers::weight(&ack);
        if seat.acks >= ACKS_WAITING_MAX || self.ack_weight + weight > ACK_WEIGHT_MAX {
            let words = "too many acks of the lane or of the session wait to become durable; send this one again later";
            let fault = Fault::new(Reason::Overloaded, words);
            self.out
                .push(answers::refused(&ack, v1::AckStatus::Retry, &fault));
            return;
        }
        match answers::ack(&tie, seat.opening, ack) {
            Ok(acking) => {
                seat.acks += 1;
                self.ack_weight += weight;
                self.pending.push(acking);
            }
            Err(refused) => self.out.push(*refused),
        }
    }

    fn on_seek(&mut self, seek: v1::SeekLane) {
        let seat = self.seats.get_mut(&seek.lane);
        let Some((seat, tie)) = seat.and_then(|seat| {
            let tie = seat.tie.clone()?;
            Some((seat, tie))
        }) else {
            let fault = Fault::new(
                Reason::NotOwned,
                "the lane has ended, or was never attached",
            );
            self.out
                .push(answers::seek_refused(seek.lane, seek.seek_id, &fault));
            return;
        };
        if seat.seeking {
            // Seeks that come faster than they can be made are one, to the last place.
            seat.next_seek = Some(seek);
            return;
        }
        seat.seeking = true;
        let front = self.shared.front.clone();
        self.pending
            .push(answers::seek(front, tie, seat.opening, seek));
    }

    fn on_done(&mut self, done: Done) {
        self.ack_weight -= done.weight;
        self.out.extend(done.item);
        let seat = self.seats.get_mut(&done.lane);
        let Some(seat) = seat.filter(|seat| seat.opening == done.opening) else {
            return;
        };
        match done.what {
            What::Ack => seat.acks -= 1,
            What::Seek => {
                seat.seeking = false;
                if let Some(next) = seat.next_seek.take() {
                    self.on_seek(next);
                }
            }
        }
    }

    /// Nothing more is read; what was taken is answered.
    fn drain(&mut self) {
        self.draining = true;
        self.opening = FuturesUnordered::new();
        for seat in self.seats.values_mut() {
            seat.stop.cancel();
            seat.next_seek = None;
        }
        self.out.push(consume_down::Item::Drain(v1::Drain {
            deadline_ms: DRAIN_MAX.as_millis() as u32,
        }));
    }

    /// Sends what was said. False: the client is gone.
    async fn send_out(&mut self) -> bool {
        for item in self.out.drain(..) {
            let down = v1::ConsumeDown { item: Some(item) };
            let sent = tokio::select! {
                biased;
                () = self.shared.front.kill.cancelled() => false,
                sent = self.shared.out.send((Ok(down), None)) => sent.is_ok(),
            };
            if !sent {
                return false;
            }
        }
        true
    }
}

fn heartbeat() -> consume_down::Item {
    // The stream fills the number in.
    consume_down::Item::Heartbeat(v1::ConsumeHeartbeat::default())
}

fn detached(lane: u32, fault: Option<&Fault>) -> consume_down::Item {
    consume_down::Item::Detached(v1::Detached {
        lane,
        fault: fault.map(Fault::to_wire),
    })
}
