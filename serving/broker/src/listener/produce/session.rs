//! The one task of a session: reads, hands on, answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::ProducerId;
use hulse_proto::limits::{BATCHES_IN_FLIGHT_MAX, PROTOCOL_VERSION};
use hulse_proto::wire::v1::{self, produce_down, produce_up};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tonic::{Status, Streaming};

use super::lane::Lane;
use super::pending::{Done, Pending, Received};
use super::room::Allowance;
use crate::PartitionHandle;
use crate::listener::front::{Front, shutting_down};
use crate::listener::ingress::IngressPermit;
use crate::listener::wire::{check_hello, first_item, no_hello, read_fault};

/// The broker speaks at least this often (serving.md E1.4).
const HEARTBEAT_EVERY: Duration = Duration::from_secs(5);
/// Partitions that ended are noticed at least this often where no batch is in flight.
const TICK: Duration = Duration::from_secs(1);
/// Client heartbeats that are echoed: one per this, so that two echoes never chase each other.
const ECHO_EVERY: Duration = Duration::from_secs(1);
/// Items read before completions are looked at again.
const READS_AT_ONCE: usize = 64;
/// Batches of one session without an answer, refused ones included; then nothing is read.
const BATCHES_HELD_MAX: usize = 8192;

/// A lane and what it needs outside its state machine.
pub(super) struct Seat {
    pub(super) lane: Lane<Received>,
    pub(super) handle: Option<PartitionHandle>,
    /// Which opening of this lane number.
    pub(super) opening: u64,
    pub(super) producer: ProducerId,
    /// The client asked to close it.
    pub(super) asked: bool,
    /// It may have something to say.
    pub(super) dirty: bool,
    /// Its unanswered batches as counted in [`Session::held`].
    pub(super) counted: usize,
}

/// A partition was opened for a lane, or was not.
pub(super) struct Opening {
    pub(super) lane: u32,
    pub(super) opening: u64,
    pub(super) result: Result<(PartitionHandle, Option<(i16, i32)>), Fault>,
}

/// A batch that waits for room in the broker; nothing is read meanwhile.
pub(super) struct Waiting {
    pub(super) batch: v1::ProduceBatch,
    pub(super) room: BoxFuture<'static, IngressPermit>,
}

/// Why nothing more is read.
enum Ending {
    /// The client is done.
    Eof,
    /// The broker goes down.
    Drain,
    /// The client broke the protocol.
    Fault(Fault),
}

enum Event {
    Gone,
    Drain,
    Done(Done),
    Opened(Opening),
    Room(IngressPermit),
    Up(Option<Result<v1::ProduceUp, Status>>),
    Tick,
}

/// One session.
pub(super) struct Session {
    pub(super) front: Arc<Front>,
    up: Streaming<v1::ProduceUp>,
    down: mpsc::Sender<Result<v1::ProduceDown, Status>>,
    /// Ordered, since it is walked.
    pub(super) seats: BTreeMap<u32, Seat>,
    pub(super) dirty: Vec<u32>,
    pub(super) pending: FuturesUnordered<Pending>,
    pub(super) opening: FuturesUnordered<BoxFuture<'static, Opening>>,
    pub(super) openings: u64,
    pub(super) waiting: Option<Waiting>,
    pub(super) out: Vec<produce_down::Item>,
    pub(super) allowance: Allowance,
    pub(super) held: usize,
    ending: Option<Ending>,
    last_sent: Instant,
    last_echo: Option<Instant>,
}

impl Session {
    pub(super) fn new(
        front: Arc<Front>,
        up: Streaming<v1::ProduceUp>,
        down: mpsc::Sender<Result<v1::ProduceDown, Status>>,
    ) -> Self {
        let allowance = Allowance::new(front.config.ingress_bytes, front.config.max_batch_bytes);
        Self {
            front,
            up,
            down,
            seats: BTreeMap::new(),
            dirty: Vec::new(),
            pending: FuturesUnordered::new(),
            opening: FuturesUnordered::new(),
            openings: 0,
            waiting: None,
            out: Vec::new(),
            allowance,
            held: 0,
            ending: None,
            last_sent: Instant::now(),
            last_echo: None,
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
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.speak();
            if !self.send_out().await {
                return Ok(());
            }
            if let Some(result) = self.result() {
                return result;
            }
            match self.next_event(&mut tick).await {
                Event::Gone => return Ok(()),
                Event::Drain => self.drain(),
                Event::Done(done) => {
                    self.on_done(done);
                    while let Some(Some(done)) = self.pending.next().now_or_never() {
                        self.on_done(done);
                    }
                }
                Event::Opened(opened) => self.on_opened(opened),
                Event::Room(room) => {
                    if let Some(waiting) = self.waiting.take() {
                        self.enter(waiting.batch, room);
                    }
                }
                Event::Up(item) => self.on_up(item),
                Event::Tick => self.on_tick(),
            }
        }
    }

    /// Hello and Welcome. False: the client is gone.
    async fn greet(&mut self) -> Result<bool, Fault> {
        let front = self.front.clone();
        let hello = match first_item(&mut self.up, &front.drain).await? {
            None => return Ok(false),
            Some(v1::ProduceUp {
                item: Some(produce_up::Item::Hello(hello)),
            }) => hello,
            Some(_) => return Err(no_hello()),
        };
        check_hello(&hello.client_id, hello.protocol_version)?;
        let config = &front.config;
        self.out.push(produce_down::Item::Welcome(v1::Welcome {
            protocol_version: PROTOCOL_VERSION,
            max_batch_bytes: u32::try_from(config.max_batch_bytes).unwrap_or(u32::MAX),
            max_inflight_batches: BATCHES_IN_FLIGHT_MAX as u32,
            max_inflight_bytes: self.allowance.max(),
            broker: config.name.as_str().to_owned(),
        }));
        let credit = v1::Credit {
            bytes: self.allowance.max(),
            throttle_ms: 0,
        };
        self.out.push(produce_down::Item::Credit(credit));
        Ok(true)
    }

    async fn next_event(&mut self, tick: &mut Interval) -> Event {
        let reads = self.may_read();
        let drains = self.ending.is_none();
        let Self {
            front,
            up,
            down,
            pending,
            opening,
            waiting,
            ..
        } = self;
        tokio::select! {
            biased;
            () = front.kill.cancelled() => Event::Gone,
            () = down.closed() => Event::Gone,
            () = front.drain.cancelled(), if drains => Event::Drain,
            Some(done) = pending.next(), if !pending.is_empty() => Event::Done(done),
            Some(opened) = opening.next(), if !opening.is_empty() => Event::Opened(opened),
            room = room_of(waiting), if waiting.is_some() => Event::Room(room),
            item = up.next(), if reads => Event::Up(item),
            _ = tick.tick() => Event::Tick,
        }
    }

    fn may_read(&self) -> bool {
        self.ending.is_none()
            && self.waiting.is_none()
            && self.held < BATCHES_HELD_MAX
            && self.allowance.has_room()
    }

    fn on_up(&mut self, item: Option<Result<v1::ProduceUp, Status>>) {
        let mut next = Some(item);
        let mut reads = 0;
        while let Some(item) = next {
            match item {
                None => self.ending = Some(Ending::Eof),
                Some(Ok(item)) => {
                    if let Err(fault) = self.on_item(item) {
                        self.ending = Some(Ending::Fault(fault));
                    }
                }
                Some(Err(status)) => {
                    self.ending = Some(read_fault(&status).map_or(Ending::Eof, Ending::Fault));
                }
            }
            reads += 1;
            if reads == READS_AT_ONCE || !self.may_read() {
                return;
            }
            next = self.up.next().now_or_never();
        }
    }

    fn on_tick(&mut self) {
        let mut ended = Vec::new();
        for (number, seat) in &mut self.seats {
            if let Some(fault) = seat.handle.as_ref().and_then(PartitionHandle::ended)
                && seat.lane.is_live()
            {
                seat.lane.end(fault);
                ended.push(*number);
            }
        }
        for lane in ended {
            self.touch(lane);
        }
        if self.last_sent.elapsed() >= HEARTBEAT_EVERY {
            self.out
                .push(produce_down::Item::Heartbeat(v1::Heartbeat {}));
        }
    }

    /// Echoes a client's heartbeat.
    pub(super) fn on_heartbeat(&mut self) {
        if self
            .last_echo
            .is_none_or(|echo| echo.elapsed() >= ECHO_EVERY)
        {
            self.last_echo = Some(Instant::now());
            self.out
                .push(produce_down::Item::Heartbeat(v1::Heartbeat {}));
        }
    }

    /// Nothing more is read; what waits for room or for a partition was not taken.
    fn drain(&mut self) {
        self.ending = Some(Ending::Drain);
        self.waiting = None;
        self.opening = FuturesUnordered::new();
    }

    /// How the session ends, once all that was taken is answered.
    fn result(&mut self) -> Option<Result<(), Fault>> {
        let ending = self.ending.as_ref()?;
        if !self.pending.is_empty() || self.waiting.is_some() || !self.opening.is_empty() {
            return None;
        }
        Some(match ending {
            Ending::Eof => Ok(()),
            Ending::Drain => Err(shutting_down()),
            Ending::Fault(fault) => Err(fault.clone()),
        })
    }

    /// Sends what was said. False: the client is gone.
    async fn send_out(&mut self) -> bool {
        if let Some(bytes) = self.allowance.grant() {
            let credit = v1::Credit {
                bytes,
                throttle_ms: 0,
            };
            self.out.push(produce_down::Item::Credit(credit));
        }
        if self.out.is_empty() {
            return true;
        }
        self.last_sent = Instant::now();
        for item in self.out.drain(..) {
            let down = v1::ProduceDown { item: Some(item) };
            let sent = match self.down.try_send(Ok(down)) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Closed(_)) => false,
                // The client does not listen: nothing is read from it either, until it does.
                Err(mpsc::error::TrySendError::Full(item)) => tokio::select! {
                    biased;
                    () = self.front.kill.cancelled() => false,
                    sent = self.down.send(item) => sent.is_ok(),
                },
            };
            if !sent {
                return false;
            }
        }
        true
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.front.metrics.lanes().dec_by(self.seats.len() as i64);
    }
}

async fn room_of(waiting: &mut Option<Waiting>) -> IngressPermit {
    match waiting {
        Some(waiting) => (&mut waiting.room).await,
        None => std::future::pending().await,
    }
}
