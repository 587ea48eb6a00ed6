//! What brokers say, taken by the core.

use hulse_proto::error::ErrorKind;
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_down::Item as Down;
use tokio::time::Instant;

use super::consumer_core::ConsumerCore;
use super::credit::Amount;
use super::event::{BlockedReason, ConsumerNote, Out, Ready, SessionId, Unit};
use super::lane::Lane;
use crate::error::Error;

impl ConsumerCore {
    /// A broker says something.
    pub(in crate::consumer) fn on_down(&mut self, id: SessionId, item: Down, now: Instant) {
        match item {
            Down::Attached(attached) => self.on_attached(id, &attached, now),
            Down::Delivery(delivery) => self.on_delivery(id, delivery, now),
            Down::Receipt(receipt) => {
                let mut rng = self.rng.clone();
                let answered = self.with_lane_of(id, receipt.lane, |lane, out| {
                    lane.receipt(&receipt, now, &mut rng, out)
                });
                self.rng = rng;
                self.break_when_wrong(id, answered);
            }
            Down::ActiveChanged(changed) => {
                self.with_lane_of(id, changed.lane, |lane, out| {
                    lane.active_changed(&changed, now, out);
                });
            }
            Down::Blocked(blocked) => {
                self.with_lane_of(id, blocked.lane, |lane, out| {
                    out.note(ConsumerNote::Blocked {
                        partition: lane.partition,
                        reason: BlockedReason::of(blocked.reason()),
                        over: blocked.over,
                        message: blocked.message.clone(),
                    });
                });
            }
            Down::SeekDone(done) => {
                self.with_lane_of(id, done.lane, |lane, out| {
                    lane.seek_done(&done, out);
                    if done.evicted {
                        out.note(ConsumerNote::Evicted {
                            partition: lane.partition,
                            base: Offset(done.base),
                        });
                    }
                });
            }
            Down::Detached(detached) => self.on_detached(id, detached, now),
            Down::Moved(moved) => {
                if let Some(partition) = self.end_lane(id, moved.lane) {
                    self.lane_lost(partition, None, now);
                }
            }
            Down::EndOfLane(end) => {
                self.with_lane_of(id, end.lane, |lane, out| {
                    lane.high_watermark = lane.high_watermark.max(end.offset);
                    out.note(ConsumerNote::EndOfPartition {
                        partition: lane.partition,
                        offset: Offset(end.offset),
                    });
                });
            }
            Down::Heartbeat(heartbeat) => {
                let session = self.sessions.get(&id);
                let heard = session.map(|session| session.hears(heartbeat.last_delivery_seq));
                self.break_when_wrong(id, heard);
            }
            // Welcome was taken by the shell; a drain ends with the stream.
            Down::Welcome(_) | Down::Drain(_) => {}
        }
    }

    fn with_lane_of<T>(
        &mut self,
        id: SessionId,
        lane: u32,
        work: impl FnOnce(&mut Lane, &mut Out) -> T,
    ) -> Option<T> {
        let partition = *self.sessions.get(&id)?.lanes.get(&lane)?;
        self.with_lane(partition, work)
    }

    /// A broker that answers what was not asked is left.
    fn break_when_wrong(&mut self, id: SessionId, answered: Option<Result<(), Error>>) {
        if let Some(Err(error)) = answered {
            self.out.broken.push((id, error));
        }
    }

    fn on_attached(&mut self, id: SessionId, attached: &v1::Attached, now: Instant) {
        let Some(partition) = self
            .sessions
            .get(&id)
            .and_then(|s| s.lanes.get(&attached.lane))
        else {
            return;
        };
        let partition = *partition;
        self.attachments += 1;
        let done = self.with_lane(partition, |lane, out| lane.attached(attached, now, out));
        if let Some(Err(error)) = done {
            self.leave(id, attached.lane);
            self.lane_lost(partition, Some(error), now);
        }
    }

    fn on_delivery(&mut self, id: SessionId, delivery: v1::Delivery, now: Instant) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Err(error) = session.counts(delivery.delivery_seq) {
            self.out.broken.push((id, error));
            return;
        }
        let acquired = delivery.acquired.iter();
        let records = acquired.map(|range| range.end.saturating_sub(range.first));
        let amount = Amount {
            records: i64::try_from(records.sum::<u64>()).unwrap_or(i64::MAX),
            bytes: delivery.batch.len() as i64,
        };
        session.credit.delivered(amount);
        let lane = delivery.lane;
        let partition = session.lanes.get(&lane).copied();
        let taken = partition.map(|partition| {
            self.with_lane(partition, |lane, out| {
                let taken = lane.accept(delivery, out)?;
                Ok::<_, Error>(taken.map(|taken| (lane.term, taken)))
            })
        });
        match taken.flatten() {
            Some(Ok(Some((term, accepted)))) if !self.closing => {
                self.out.ready.push(Ready::Unit(Unit {
                    session: id,
                    term,
                    amount,
                    batch: accepted.batch,
                    acquired: accepted.acquired,
                }));
            }
            taken => {
                self.give_back(id, amount);
                if let (Some(partition), Some(Err(error))) = (partition, taken) {
                    self.leave(id, lane);
                    if error.kind() != ErrorKind::NotOwner {
                        self.out.ready.push(Ready::Failed(error.clone()));
                    }
                    self.lane_lost(partition, Some(error), now);
                }
            }
        }
    }

    fn on_detached(&mut self, id: SessionId, detached: v1::Detached, now: Instant) {
        let Some(partition) = self.end_lane(id, detached.lane) else {
            return;
        };
        let error = match detached.fault {
            Some(fault) => Error::from_wire(fault),
            None => Error::local(ErrorKind::Unavailable, "the broker ended the lane"),
        };
        self.lane_failed(partition, error, now);
    }
}
