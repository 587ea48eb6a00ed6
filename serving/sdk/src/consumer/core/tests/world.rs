//! The core, a broker and an application in one loop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use futures::FutureExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::TopicId;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_down::Item as Down;
use hulse_proto::wire::v1::consume_up::Item as Up;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::ranges::RangeSet;
use super::super::*;
use super::stored::{Stored, wire};

const PARTITIONS: u32 = 2;

/// A lane of the broker.
pub(super) struct Sending {
    pub(super) partition: u32,
    /// Where it goes on.
    pub(super) next: u64,
    /// Up to here acks are taken before it sends.
    pub(super) acks_to: u64,
    /// What was acknowledged when it began. What is acknowledged later is sent all the same.
    pub(super) acked: RangeSet,
}

/// A session of the broker.
pub(super) struct Link {
    pub(super) id: SessionId,
    pub(super) credit: (i64, i64),
    pub(super) seq: u64,
    pub(super) lanes: BTreeMap<u32, Sending>,
    pub(super) up: VecDeque<Up>,
    pub(super) down: VecDeque<Down>,
}

pub(super) struct World {
    pub(super) rng: ChaCha8Rng,
    pub(super) now: Instant,
    pub(super) core: ConsumerCore,
    pub(super) stored: Vec<Stored>,
    pub(super) link: Option<Link>,
    pub(super) opened: Vec<Unit>,
    /// Handed out and not acknowledged by the application.
    pub(super) held: Vec<Place>,
    pub(super) asked: Vec<(Place, bool, Acknowledgement)>,
    pub(super) seeks: Vec<oneshot::Receiver<Result<(), crate::Error>>>,
    /// Acknowledged, with a receipt, since the last seek.
    pub(super) certain: BTreeSet<(u32, u64)>,
    pub(super) handed: BTreeSet<(u32, u64)>,
    pub(super) last: BTreeMap<(u32, u64), u64>,
    pub(super) queue_records: i64,
    /// How often the broker takes acks before it delivers again.
    pub(super) honours: f64,
    /// The broker delivers nothing.
    pub(super) starved: bool,
    pub(super) seed: u64,
    /// What happened last, for the case of a failure.
    pub(super) trace: VecDeque<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let trace: Vec<_> = self.trace.drain(..).collect();
            eprintln!("seed {}, the last events:\n{}", self.seed, trace.join("\n"));
        }
    }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let now = Instant::now();
        let queue_records = rng.random_range(1..30);
        let wanted = Wanted {
            attach: v1::Attach::default(),
            queue_records,
            queue_bytes: rng.random_range(1..4000),
            unacked_max: rng.random_range(1..60),
        };
        let core_rng = ChaCha8Rng::seed_from_u64(seed + 1);
        let stored = (0..PARTITIONS)
            .map(|_| Stored::new(&mut rng, 150))
            .collect();
        Self {
            core: ConsumerCore::new(wanted, 0..PARTITIONS, core_rng, now),
            now,
            stored,
            link: None,
            opened: Vec::new(),
            held: Vec::new(),
            asked: Vec::new(),
            seeks: Vec::new(),
            certain: BTreeSet::new(),
            handed: BTreeSet::new(),
            last: BTreeMap::new(),
            queue_records: queue_records.into(),
            honours: 0.7,
            starved: false,
            seed,
            trace: VecDeque::new(),
            rng,
        }
    }

    pub(super) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        if self.trace.len() == 400 {
            self.trace.pop_front();
        }
        self.trace.push_back(what.to_string());
    }

    /// Does what the core left.
    pub(super) fn settle(&mut self) {
        let out = self.core.take_out();
        for (session, item) in out.sends {
            if !matches!(item, Up::Credit(_)) {
                self.note(format_args!("core sends {item:?}"));
            }
            if let Some(link) = self.link.as_mut().filter(|link| link.id == session) {
                link.up.push_back(item);
            }
        }
        assert!(out.broken.is_empty(), "{:?}", out.broken);
        for (answer, outcome) in out.sought {
            let _ = answer.send(outcome);
        }
    }

    pub(super) fn attach(&mut self) {
        let due = self.core.tick(self.now);
        for due in due {
            if self.link.is_none() {
                let welcome = v1::ConsumeWelcome {
                    credit_epoch: 7,
                    acks_waiting_max: self.rng.random_range(1..4),
                    ack_ranges_max: self.rng.random_range(1..4),
                    ..Default::default()
                };
                self.link = Some(Link {
                    id: self.core.session_opened(&welcome),
                    credit: (0, 0),
                    seq: 0,
                    lanes: BTreeMap::new(),
                    up: VecDeque::new(),
                    down: VecDeque::new(),
                });
            }
            let id = self.link.as_ref().unwrap().id;
            self.core
                .attach(due.partition, TopicId(Uuid::nil()), id, self.now);
        }
        self.settle();
    }

    /// The broker takes one item and sends what it may.
    pub(super) fn broker(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        let Some(item) = link.up.pop_front() else {
            if !self.starved {
                Self::deliver(link, &self.stored);
            }
            return;
        };
        match item {
            Up::Attach(attach) => {
                let index = attach.partition.unwrap().index;
                let stored = &self.stored[index as usize];
                let knows =
                    attach.handed_epoch == stored.state_epoch && self.rng.random_bool(self.honours);
                let acks_to = if knows { attach.handed_end } else { 0 };
                assert!(acks_to <= stored.end, "handed out what is not stored");
                let lane = Sending {
                    partition: index,
                    next: stored.base,
                    acks_to,
                    acked: stored.acked.clone(),
                };
                link.lanes.insert(attach.lane, lane);
                link.down.push_back(Down::Attached(v1::Attached {
                    lane: attach.lane,
                    leader_epoch: stored.leader_epoch,
                    base: stored.base,
                    acked: wire(&stored.acked),
                    high_watermark: stored.end,
                    state_epoch: stored.state_epoch,
                    active: true,
                    acks_to,
                    ..Default::default()
                }));
            }
            Up::Credit(credit) => {
                assert_eq!(credit.credit_epoch, 7);
                link.credit.0 += credit.records as i64;
                link.credit.1 += credit.bytes as i64;
                assert!(
                    link.credit.0 <= self.queue_records,
                    "credit above the queue"
                );
            }
            Up::Ack(ack) => self.take_ack(&ack),
            Up::Seek(seek) => {
                let lane = link.lanes.get_mut(&seek.lane).unwrap();
                let partition = lane.partition;
                let stored = &mut self.stored[partition as usize];
                stored.base = 0;
                stored.acked.clear();
                stored.state_epoch += 1;
                *lane = Sending {
                    partition,
                    next: 0,
                    acks_to: 0,
                    acked: RangeSet::default(),
                };
                self.certain.retain(|(index, _)| *index != partition);
                link.down.push_back(Down::SeekDone(v1::SeekDone {
                    lane: seek.lane,
                    seek_id: seek.seek_id,
                    state_epoch: stored.state_epoch,
                    base: 0,
                    ..Default::default()
                }));
            }
            other => panic!("{other:?} is not expected"),
        }
    }

    pub(super) fn take_ack(&mut self, ack: &v1::AckRecords) {
        let Some(link) = &mut self.link else {
            return;
        };
        let lane = &link.lanes[&ack.lane];
        let stored = &mut self.stored[lane.partition as usize];
        let refuse = self.rng.random_bool(0.1);
        let statuses = ack.ranges.iter().map(|range| {
            if refuse {
                return v1::AckStatus::Retry;
            }
            if ack.state_epoch != stored.state_epoch {
                return v1::AckStatus::Stale;
            }
            assert!(
                range.end <= lane.next.max(lane.acks_to),
                "acked what was not delivered to this attachment"
            );
            let first = match ack.kind() {
                v1::AckKind::Cumulative => 0,
                _ => range.first,
            };
            stored.ack(first..range.end);
            v1::AckStatus::Ok
        });
        let statuses = statuses.map(|status| status as i32).collect();
        let fault = refuse.then(|| Fault::new(Reason::Overloaded, "dice").to_wire());
        link.down.push_back(Down::Receipt(v1::AckReceipt {
            ack_id: ack.ack_id,
            lane: ack.lane,
            statuses,
            fault,
        }));
    }

    pub(super) fn deliver(link: &mut Link, stored: &[Stored]) {
        let open = link.credit.0 > 0 && link.credit.1 > 0;
        for (number, lane) in &mut link.lanes {
            let stored = &stored[lane.partition as usize];
            let Some(mut delivery) = stored.delivery(lane.next, &lane.acked) else {
                continue;
            };
            if !open && !delivery.acquired.is_empty() {
                continue;
            }
            lane.next = delivery.end_offset;
            link.seq += 1;
            delivery.delivery_seq = link.seq;
            delivery.lane = *number;
            let records = delivery
                .acquired
                .iter()
                .map(|range| range.end - range.first);
            link.credit.0 -= records.sum::<u64>() as i64;
            link.credit.1 -= delivery.batch.len() as i64;
            return link.down.push_back(Down::Delivery(delivery));
        }
    }

    /// One item reaches the consumer.
    pub(super) fn arrive(&mut self) {
        if let Some(link) = &mut self.link
            && let Some(item) = link.down.pop_front()
        {
            let id = link.id;
            let brief = match &item {
                Down::Delivery(d) => format!(
                    "delivery of lane {} {}..{}: {:?}",
                    d.lane, d.prev_end_offset, d.end_offset, d.acquired
                ),
                other => format!("{other:?}"),
            };
            self.note(format_args!("core hears {brief}"));
            self.core.on_down(id, item, self.now);
            self.settle();
        }
    }

    pub(super) fn cut(&mut self) {
        self.note(format_args!("cut"));
        if let Some(mut link) = self.link.take() {
            // Some of what was on its way still arrives.
            for _ in 0..self.rng.random_range(0..3) {
                self.link = Some(link);
                self.broker();
                link = self.link.take().unwrap();
            }
            let error = crate::Error::local(crate::ErrorKind::Unavailable, "cut");
            self.core.session_lost(link.id, &error, self.now);
            if self.rng.random_bool(0.5) {
                self.stored
                    .iter_mut()
                    .for_each(|stored| stored.leader_epoch += 1);
            }
            self.settle();
        }
    }

    /// The application looks for records.
    pub(super) fn receive(&mut self) {
        // One at a time, as the handle does.
        if self.opened.is_empty() {
            match self.core.next() {
                Next::Unit(unit) => self.opened.push(unit),
                Next::Failed(error) | Next::Ended(error) => panic!("{error}"),
                _ => {}
            }
        }
        let Some(unit) = self.opened.pop() else {
            return;
        };
        let base = unit.batch.header.base_offset.0;
        let end = unit.batch.header.end_offset().0;
        let from = self
            .last
            .get(&(unit.partition(), unit.term))
            .map_or(base, |last| last + 1);
        for offset in (from.max(base)..end).filter(|offset| unit.takes(*offset)) {
            let place = Place {
                partition: unit.partition(),
                term: unit.term,
                offset,
            };
            match self.core.hand(place) {
                Handed::Full => return self.opened.push(unit),
                Handed::Void => {}
                Handed::Yes { redelivery } => self.take(place, redelivery),
            }
        }
        self.core.finish(&unit);
    }

    pub(super) fn take(&mut self, place: Place, redelivery: bool) {
        self.note(format_args!("handed out {place:?} {redelivery}"));
        let key = (place.partition, place.offset);
        assert!(
            !self.certain.contains(&key),
            "{place:?} was acknowledged for certain"
        );
        let before = self
            .last
            .insert((place.partition, place.term), place.offset);
        assert!(before.is_none_or(|before| before < place.offset), "order");
        assert!(
            !redelivery || self.handed.contains(&key),
            "{place:?} is no redelivery"
        );
        self.handed.insert(key);
        self.held.push(place);
    }

    pub(super) fn ack(&mut self) {
        let Some(index) = (0..self.held.len()).choose(&mut self.rng) else {
            return;
        };
        let place = self.held.swap_remove(index);
        let cumulative = self.rng.random_bool(0.1);
        self.note(format_args!("application acks {place:?} {cumulative}"));
        let acknowledgement = match cumulative {
            true => self.core.ack_cumulative(place),
            false => self.core.ack(place),
        };
        self.asked.push((place, cumulative, acknowledgement));
        self.settle();
    }

    /// What is known for certain now.
    pub(super) fn learn(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        for (place, cumulative, acknowledgement) in asked {
            match acknowledgement.clone().now_or_never() {
                None => self.asked.push((place, cumulative, acknowledgement)),
                Some(Err(error)) => assert_eq!(error.reason(), Some(Reason::CursorStale)),
                Some(Ok(())) => {
                    let stored = &self.stored[place.partition as usize];
                    let durable = place.offset < stored.base || stored.acked.contains(place.offset);
                    // Unless a seek came after it.
                    if durable {
                        let words = format!("{place:?} is certain");
                        self.trace.push_back(words);
                        self.certain.insert((place.partition, place.offset));
                    } else {
                        assert!(
                            stored.state_epoch > 1,
                            "{place:?} has a receipt and is not stored"
                        );
                    }
                }
            }
        }
    }

    pub(super) fn step(&mut self, seeks: bool, cuts: bool) {
        match self.rng.random_range(0..100) {
            0..25 => self.broker(),
            25..50 => self.arrive(),
            50..70 => self.receive(),
            70..85 => self.ack(),
            85..95 => self.now += Duration::from_millis(20),
            95 if cuts => self.cut(),
            96 if seeks && self.rng.random_bool(0.1) => {
                let (answer, answered) = oneshot::channel();
                let at = Some(v1::start_at::At::Earliest(true));
                let until = self.now + Duration::from_secs(3600);
                let partition = self.rng.random_range(0..PARTITIONS);
                self.core.seek(partition, v1::StartAt { at }, until, answer);
                self.seeks.push(answered);
            }
            _ => {}
        }
        self.settle();
        self.learn();
        self.attach();
    }

    pub(super) fn done(&self) -> bool {
        self.stored.iter().all(|stored| stored.base == stored.end) && self.asked.is_empty()
    }
}
