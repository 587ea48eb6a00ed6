//! What a session does with each thing that a client sends or a partition answers.

use futures::FutureExt;
use hulse_proto::batch::BatchHeader;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, ProducerId};
use hulse_proto::limits::BATCHES_IN_FLIGHT_MAX;
use hulse_proto::wire::v1::{self, produce_down, produce_up};
use tokio::time::Instant;

use super::lane::{Lane, LaneConfig, Take, nacked_before};
use super::pending::{Done, Pending, Received, Ticket};
use super::session::{Opening, Seat, Session, Waiting};
use crate::authorise::{Action, Resource};
use crate::listener::ingress::IngressPermit;
use crate::listener::wire::{invalid, partition};

/// Lanes of one session.
const LANES_MAX: usize = 10_000;

impl Session {
    /// Takes one item of the client.
    ///
    /// # Errors
    /// The client broke the protocol of the session as a whole, which ends it.
    pub(super) fn on_item(&mut self, item: v1::ProduceUp) -> Result<(), Fault> {
        match item.item {
            Some(produce_up::Item::Batch(batch)) => self.on_batch(batch),
            Some(produce_up::Item::Open(open)) => self.on_open(open)?,
            Some(produce_up::Item::Resume(resume)) => {
                self.with_lane(resume.lane, |lane| lane.resume(resume.from_seq));
            }
            Some(produce_up::Item::Flush(flush)) => {
                self.with_lane(flush.lane, |lane| lane.flush(flush.seq));
            }
            Some(produce_up::Item::Close(close)) => self.on_close(close.lane),
            Some(produce_up::Item::Heartbeat(_)) => self.on_heartbeat(),
            Some(produce_up::Item::Hello(_)) => return Err(invalid("a second Hello came")),
            None => return Err(invalid("an item came that this broker does not know")),
        }
        Ok(())
    }

    fn on_batch(&mut self, batch: v1::ProduceBatch) {
        let bytes = batch.batch.len();
        if !self.seats.contains_key(&batch.lane) {
            self.allowance.owe(bytes);
            let fault = not_open(batch.lane);
            let nack = v1::Nack {
                lane: batch.lane,
                seq: batch.seq,
                fault: Some(fault.to_wire()),
            };
            self.out.push(produce_down::Item::Nack(nack));
            return;
        }
        match self.front.ingress.try_take(bytes) {
            Some(room) => self.enter(batch, room),
            None => {
                let room = self.front.ingress.take(bytes).boxed();
                self.waiting = Some(Waiting { batch, room });
            }
        }
    }

    /// A batch has its room: it goes to its lane, and where the lane says so, to the partition.
    pub(super) fn enter(&mut self, batch: v1::ProduceBatch, room: IngressPermit) {
        let v1::ProduceBatch {
            lane: number,
            seq,
            batch,
        } = batch;
        let room = self.allowance.enter(batch.len(), room);
        let received = Received {
            batch,
            at: Instant::now(),
            room,
        };
        if let Some(seat) = self.seats.get_mut(&number) {
            if let Take::Produce(ticket, received) = seat.lane.take(seq, received) {
                let pending = hand_over(seat, number, ticket, received);
                self.pending.extend(pending);
            }
            self.touch(number);
        }
    }

    fn on_open(&mut self, open: v1::OpenLane) -> Result<(), Fault> {
        let number = open.lane;
        if self
            .seats
            .get(&number)
            .is_some_and(|seat| !seat.lane.is_gone())
        {
            return Err(invalid(format!("lane {number} was opened twice")));
        }
        self.remove(number);
        if self.seats.len() >= LANES_MAX {
            self.forget_gone();
        }
        self.openings += 1;
        let checked = self.check_open(&open);
        self.front
            .metrics
            .request("Produce.OpenLane", checked.as_ref().map(|_| ()));
        match checked {
            Ok(lane) => {
                self.begin_opening(number, &lane);
                let config = LaneConfig {
                    lane: number,
                    answers: lane.answers,
                    inflight_max: BATCHES_IN_FLIGHT_MAX,
                };
                self.insert(number, Lane::opening(config), lane.producer);
            }
            Err(fault) => {
                let fault = Some(fault.to_wire());
                let closed = v1::LaneClosed {
                    lane: number,
                    fault,
                };
                self.out.push(produce_down::Item::Closed(closed));
                if self.seats.len() < LANES_MAX {
                    // What the client sent behind the Open is dropped in silence: it was told.
                    self.insert(number, Lane::gone(number), ProducerId::NONE);
                }
            }
        }
        Ok(())
    }

    fn check_open(&self, open: &v1::OpenLane) -> Result<Wanted, Fault> {
        if self.seats.len() >= LANES_MAX {
            let words = format!("session has {LANES_MAX} lanes; close some or open a session more");
            return Err(Fault::new(Reason::Overloaded, words));
        }
        let partition = partition(open.partition.as_ref())?;
        let answers = match v1::Acks::try_from(open.acks) {
            Ok(v1::Acks::None) => false,
            Ok(v1::Acks::Quorum) => true,
            Ok(v1::Acks::Unspecified) | Err(_) => {
                return Err(invalid(format!(
                    "acks is {}, not NONE or QUORUM",
                    open.acks
                )));
            }
        };
        let producer = ProducerId(open.producer_id);
        if !answers && producer != ProducerId::NONE {
            let words = "a lane with ACKS_NONE carries no producer id: send -1, as nothing tells \
                         such a producer what to send again";
            return Err(invalid(words));
        }
        if producer.0 < ProducerId::NONE.0 {
            return Err(invalid(format!("producer_id is {producer}; -1 means none")));
        }
        let lowest = if producer == ProducerId::NONE { -1 } else { 0 };
        if !(lowest..=i32::from(i16::MAX)).contains(&open.producer_epoch) {
            return Err(invalid(format!(
                "producer_epoch is {}, not 0 to 32767",
                open.producer_epoch
            )));
        }
        self.front
            .allow(Action::Produce, Resource::TopicId(partition.topic))?;
        Ok(Wanted {
            partition,
            answers,
            producer,
        })
    }

    fn begin_opening(&mut self, number: u32, wanted: &Wanted) {
        let front = self.front.clone();
        let Wanted {
            partition,
            producer,
            ..
        } = *wanted;
        let opening = self.openings;
        let work = async move {
            let open = front.open(partition).await?;
            // A topic that was not heard of before is known now.
            front.allow(Action::Produce, Resource::TopicId(partition.topic))?;
            let known = match producer {
                ProducerId::NONE => None,
                producer => open.producer(producer).await?,
            };
            Ok((open, known))
        };
        let named = work.map(move |result| Opening {
            lane: number,
            opening,
            result,
        });
        self.opening.push(named.boxed());
    }

    /// A partition is open, or will not be.
    pub(super) fn on_opened(&mut self, opened: Opening) {
        let Opening {
            lane: number,
            opening,
            result,
        } = opened;
        let Some(seat) = self
            .seats
            .get_mut(&number)
            .filter(|seat| seat.opening == opening)
        else {
            return;
        };
        match result {
            Ok((handle, known)) => {
                if seat.lane.opened() {
                    let (epoch, sequence) = known.unwrap_or((-1, -1));
                    self.out.push(produce_down::Item::Opened(v1::Opened {
                        lane: number,
                        leader_epoch: handle.leader_epoch().0,
                        next_offset: handle.offsets().high_watermark.0,
                        last_epoch: i32::from(epoch),
                        last_sequence: sequence,
                    }));
                }
                seat.handle = Some(handle);
            }
            Err(fault) => {
                self.front.metrics.fault(fault.reason);
                seat.lane.open_failed(fault);
            }
        }
        self.touch(number);
    }

    /// A partition answered.
    pub(super) fn on_done(&mut self, done: Done) {
        match &done.outcome {
            Ok(produced) if !produced.duplicate => {
                self.front
                    .metrics
                    .stored(done.records, done.bytes as u64, done.took);
            }
            Ok(_) => {}
            Err(fault) => self.front.metrics.fault(fault.reason),
        }
        let Ticket {
            lane: number,
            opening,
            number: ticket,
        } = done.ticket;
        let Some(seat) = self
            .seats
            .get_mut(&number)
            .filter(|seat| seat.opening == opening)
        else {
            return;
        };
        let failed = done.outcome.is_err();
        seat.lane.settle(ticket, done.outcome);
        if failed && let Some(fault) = seat.handle.as_ref().and_then(|handle| handle.ended()) {
            seat.lane.end(fault);
        }
        self.touch(number);
    }

    fn on_close(&mut self, number: u32) {
        match self.seats.get_mut(&number) {
            Some(seat) if seat.lane.is_gone() => self.remove(number),
            Some(seat) => {
                seat.asked = true;
                seat.lane.close();
                self.touch(number);
            }
            None => {
                let closed = v1::LaneClosed {
                    lane: number,
                    fault: None,
                };
                self.out.push(produce_down::Item::Closed(closed));
            }
        }
    }

    fn with_lane(&mut self, number: u32, change: impl FnOnce(&mut Lane<Received>)) {
        match self.seats.get_mut(&number) {
            Some(seat) => {
                change(&mut seat.lane);
                self.touch(number);
            }
            None => {
                let fault = Some(not_open(number).to_wire());
                self.out.push(produce_down::Item::Closed(v1::LaneClosed {
                    lane: number,
                    fault,
                }));
            }
        }
    }

    /// Notes that a lane may have something to say.
    pub(super) fn touch(&mut self, number: u32) {
        if let Some(seat) = self.seats.get_mut(&number)
            && !std::mem::replace(&mut seat.dirty, true)
        {
            self.dirty.push(number);
        }
    }

    /// Lets every touched lane speak, and hands on what it releases.
    pub(super) fn speak(&mut self) {
        while let Some(number) = self.dirty.pop() {
            let Some(seat) = self.seats.get_mut(&number) else {
                continue;
            };
            seat.dirty = false;
            let released = seat.lane.speak(&mut self.out);
            let mut refused = false;
            for (ticket, received) in released {
                if refused {
                    // What was released together keeps its order: nothing passes a refused one.
                    seat.lane.settle(ticket, Err(nacked_before()));
                    continue;
                }
                let pending = hand_over(seat, number, ticket, received);
                refused = pending.is_none();
                self.pending.extend(pending);
            }
            self.held = self.held - seat.counted + seat.lane.unanswered();
            seat.counted = seat.lane.unanswered();
            if seat.lane.is_gone() {
                seat.handle = None;
                if seat.asked {
                    self.remove(number);
                }
            } else if refused {
                self.touch(number);
            }
        }
    }

    fn insert(&mut self, number: u32, lane: Lane<Received>, producer: ProducerId) {
        let seat = Seat {
            lane,
            handle: None,
            opening: self.openings,
            producer,
            asked: false,
            dirty: false,
            counted: 0,
        };
        self.seats.insert(number, seat);
        self.front.metrics.lanes().inc();
    }

    fn remove(&mut self, number: u32) {
        if let Some(seat) = self.seats.remove(&number) {
            self.held -= seat.counted;
            self.front.metrics.lanes().dec();
        }
    }

    /// Lanes that were closed long ago are forgotten when their room is needed.
    fn forget_gone(&mut self) {
        let gone = self.seats.iter().filter(|(_, seat)| seat.lane.is_gone());
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove(number);
        }
    }
}

/// A lane that may be opened.
struct Wanted {
    partition: PartitionId,
    answers: bool,
    producer: ProducerId,
}

/// Hands a batch to the lane's partition; `None`: it was refused here, and the lane knows.
fn hand_over(seat: &mut Seat, lane: u32, number: u64, received: Received) -> Option<Pending> {
    // A batch without a readable header goes on: the partition says best what is wrong with it.
    if let Ok(header) = BatchHeader::view(&received.batch)
        && header.producer_id != seat.producer
    {
        let words = format!(
            "batch carries producer id {}, its lane was opened for {}; -1 means none",
            header.producer_id, seat.producer
        );
        seat.lane.settle(number, Err(invalid(words)));
        return None;
    }
    let Some(handle) = &seat.handle else {
        let words = "a lane without a partition took a batch; this is a bug";
        seat.lane
            .settle(number, Err(Fault::new(Reason::Internal, words)));
        return None;
    };
    let ticket = Ticket {
        lane,
        opening: seat.opening,
        number,
    };
    match Pending::produce(handle, ticket, received) {
        Ok(pending) => Some(pending),
        Err(fault) => {
            let ended = handle.ended();
            seat.lane.settle(number, Err(fault));
            if let Some(ended) = ended {
                seat.lane.end(ended);
            }
            None
        }
    }
}

fn not_open(lane: u32) -> Fault {
    invalid(format!("lane {lane} is not open; send Open first"))
}
