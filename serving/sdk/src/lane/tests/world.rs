//! The lane's core against a partition that judges as the broker does, over links that break, refuse, and deliver late.
//!
//! Whatever happens: batches are stored in order, none twice; a receipt is true; "certainly not stored" is true; each batch is
//! settled once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::batch::ProducerStamp;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, ProducerId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use crate::lane::core::LaneCore;
use crate::lane::event::{Effect, Event, Failure, Payload, Room, Stored};
use crate::testing::{Partition, Verdict};

pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
pub(super) const PRODUCER: i64 = 7;

#[derive(Debug, Clone)]
pub(super) struct TestBatch {
    pub(super) number: u64,
    pub(super) records: u32,
    pub(super) stamp: Option<ProducerStamp>,
}

impl Payload for TestBatch {
    type Tag = u64;

    fn tag(&self) -> u64 {
        self.number
    }

    fn records(&self) -> u32 {
        self.records
    }

    fn stamp(&mut self, stamp: ProducerStamp) {
        self.stamp = Some(stamp);
    }

    fn bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64(self.number);
        out.put_u32(self.records);
        if let Some(stamp) = self.stamp {
            out.put_i64(stamp.id.0);
            out.put_i16(stamp.epoch);
            out.put_i32(stamp.base_sequence);
        }
        out.freeze()
    }
}

pub(super) fn parse(mut bytes: Bytes) -> TestBatch {
    let (number, records) = (bytes.get_u64(), bytes.get_u32());
    let stamp = bytes.has_remaining().then(|| ProducerStamp {
        id: ProducerId(bytes.get_i64()),
        epoch: bytes.get_i16(),
        base_sequence: bytes.get_i32(),
    });
    TestBatch {
        number,
        records,
        stamp,
    }
}

enum Up {
    Batch(u64, TestBatch),
    Resume(u64),
}

/// One link and the broker's side of its lane.
#[derive(Default)]
struct Wire {
    up: VecDeque<Up>,
    down: VecDeque<(u64, Result<Stored, Fault>)>,
    expected: u64,
    refusing: bool,
}

struct World {
    rng: ChaCha8Rng,
    core: LaneCore<TestBatch>,
    partition: Partition,
    /// Numbers of the batches, in the order stored, with their offsets.
    log: Vec<(u64, u64)>,
    wire: Option<Wire>,
    /// Broken links on which something is still under way.
    late: Vec<Wire>,
    now: Instant,
    next_number: u64,
    settled: BTreeMap<u64, Result<Stored, Failure>>,
    retry_due: bool,
    faulty: bool,
    stopped: bool,
    refusals: u32,
    epochs: i16,
}

impl World {
    fn new(seed: u64) -> Self {
        let identity = (ProducerId(PRODUCER), 0);
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            core: LaneCore::new(Some(identity)),
            partition: Partition::default(),
            log: Vec::new(),
            wire: None,
            late: Vec::new(),
            now: Instant::now(),
            next_number: 0,
            settled: BTreeMap::new(),
            retry_due: false,
            faulty: true,
            stopped: false,
            refusals: 0,
            epochs: 0,
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..25 => self.offer(),
            25..55 => self.move_up(),
            55..80 => self.move_down(),
            80..86 => self.move_late(),
            86..92 => self.connect(),
            92..95 if self.faulty => self.cut(),
            95..97 if self.faulty => {
                self.now += TIMEOUT / self.rng.random_range(1..8);
                self.event(Event::Tick(self.now));
            }
            _ => {
                if std::mem::take(&mut self.retry_due) {
                    self.event(Event::RetryDue);
                }
            }
        }
    }

    fn offer(&mut self) {
        if self.core.room() == Room::None || self.stopped {
            return;
        }
        let batch = TestBatch {
            number: self.next_number,
            records: self.rng.random_range(1..4),
            stamp: None,
        };
        self.next_number += 1;
        let effects = self.core.offer(batch, self.now + TIMEOUT);
        self.apply(effects);
    }

    fn connect(&mut self) {
        if self.wire.is_some() || self.stopped {
            return;
        }
        let (last_epoch, last_sequence) = self.partition.last(PRODUCER);
        self.wire = Some(Wire::default());
        self.event(Event::Opened {
            leader_epoch: 1,
            last_epoch,
            last_sequence,
            batches_in_flight_max: 5,
        });
    }

    fn cut(&mut self) {
        if let Some(wire) = self.wire.take() {
            self.late.push(wire);
            self.event(Event::LinkLost);
        }
    }

    fn move_up(&mut self) {
        let Some(mut wire) = self.wire.take() else {
            return;
        };
        self.deliver(&mut wire);
        self.wire = Some(wire);
    }

    fn move_late(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let index = self.rng.random_range(0..self.late.len());
        let mut wire = self.late.swap_remove(index);
        self.deliver(&mut wire);
        if !wire.up.is_empty() {
            self.late.push(wire);
        }
    }

    /// The broker takes the next item of a link.
    fn deliver(&mut self, wire: &mut Wire) {
        match wire.up.pop_front() {
            None => {}
            Some(Up::Resume(from_seq)) => {
                assert!(wire.refusing, "Resume without a refusal");
                wire.refusing = false;
                wire.expected = from_seq;
            }
            Some(Up::Batch(seq, _)) if wire.refusing => {
                let fault = Fault::new(Reason::NackedBefore, "");
                wire.down.push_back((seq, Err(fault)));
            }
            Some(Up::Batch(seq, batch)) => {
                assert_eq!(
                    seq, wire.expected,
                    "batches of a lane are numbered without a gap"
                );
                wire.expected += 1;
                let answer = self.judge(&batch);
                wire.refusing = answer.is_err();
                wire.down.push_back((seq, answer));
            }
        }
    }

    fn judge(&mut self, batch: &TestBatch) -> Result<Stored, Fault> {
        let refuse = |reason| Err(Fault::new(reason, "by the dice"));
        let dice = self
            .rng
            .random_range(0..if self.faulty { 100 } else { 1_000_000 });
        match dice {
            0..3 if self.faulty => return refuse(Reason::Overloaded),
            3..5 if self.faulty => return refuse(Reason::StorageUnknown),
            5..7 if self.faulty => return refuse(Reason::PartitionMoved),
            7..9 if self.faulty => {
                self.refusals += 1;
                return refuse(Reason::InvalidRecord);
            }
            _ => {}
        }
        let (base_offset, duplicate) = match self.partition.take(batch.stamp, batch.records) {
            Verdict::Stored(base_offset) => {
                self.log.push((batch.number, base_offset));
                (base_offset, false)
            }
            Verdict::Duplicate(base_offset) => (base_offset, true),
            Verdict::Refused(reason) => return refuse(reason),
        };
        if dice < 12 && self.faulty {
            // Stored, but the owner does not know it.
            return refuse(Reason::StorageTimeout);
        }
        Ok(Stored {
            base_offset: Some(Offset(base_offset)),
            append_time: 1,
            duplicate,
        })
    }

    fn move_down(&mut self) {
        let answer = self.wire.as_mut().and_then(|wire| wire.down.pop_front());
        match answer {
            None => {}
            Some((seq, Ok(stored))) => self.event(Event::Acked { seq, stored }),
            Some((seq, Err(fault))) => self.event(Event::Nacked { seq, fault }),
        }
    }

    fn event(&mut self, event: Event) {
        let effects = self.core.on_event(event);
        self.apply(effects);
    }

    fn apply(&mut self, effects: Vec<Effect<u64>>) {
        for effect in effects {
            match effect {
                Effect::Send { seq, batch } => {
                    let wire = self.wire.as_mut().expect("only an open link is sent to");
                    wire.up.push_back(Up::Batch(seq, parse(batch)));
                }
                Effect::Resume { from_seq } => {
                    let wire = self.wire.as_mut().expect("only an open link is resumed");
                    wire.up.push_back(Up::Resume(from_seq));
                }
                Effect::Settle { tag, result } => {
                    assert!(self.settled.insert(tag, result).is_none(), "settled twice");
                }
                Effect::Wait { .. } => self.retry_due = true,
                Effect::Reopen { .. } => self.late.extend(self.wire.take()),
                Effect::Stop { failure, .. } => {
                    panic!("nothing that happens here may stop a producer: {failure:?}")
                }
                Effect::Violation(what) => panic!("{what}"),
            }
        }
        self.epochs = self.core.identity().unwrap().1;
    }

    fn check(&self) {
        let numbers: Vec<_> = self.log.iter().map(|(number, _)| *number).collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "order or duplicate: {numbers:?}"
        );
        let offsets: BTreeMap<_, _> = self.log.iter().copied().collect();
        assert_eq!(
            self.settled.len() as u64,
            self.next_number,
            "a batch was not settled"
        );
        for (number, result) in &self.settled {
            let offset = offsets.get(number).copied().map(Offset);
            match result {
                Ok(stored) => assert_eq!(stored.base_offset, offset, "batch {number}"),
                Err(failure) if !failure.possibly_written => {
                    assert_eq!(offset, None, "batch {number} was certainly not stored");
                }
                Err(_) => {}
            }
        }
    }
}

#[test]
fn refusals_and_broken_links_never_reorder_duplicate_or_skip() {
    let (mut stored, mut failed, mut bumped) = (0, 0, 0);
    for seed in 0..500 {
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
        }
        world.faulty = false;
        let mut rounds = 0;
        while !world.core.is_idle() {
            world.connect();
            world.move_up();
            world.move_down();
            if std::mem::take(&mut world.retry_due) {
                world.event(Event::RetryDue);
            }
            rounds += 1;
            assert!(rounds < 1000, "seed {seed} does not come to rest");
        }
        world.check();
        stored += world
            .settled
            .values()
            .filter(|result| result.is_ok())
            .count();
        failed += world
            .settled
            .values()
            .filter(|result| result.is_err())
            .count();
        bumped += usize::from(world.epochs > 0);
    }
    // The dice hit every path often.
    assert!(
        stored > 20_000 && failed > 2_000 && bumped > 300,
        "{stored} {failed} {bumped}"
    );
}
