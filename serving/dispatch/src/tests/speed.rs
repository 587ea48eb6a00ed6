//! How fast the core is: 50 consumers, batches of 256 records, each record acked by itself. Printed by
//! `cargo test --release -p serving-dispatch speed -- --nocapture`; the assertion is only that it ends.

use std::time::Instant;

use hulse_proto::id::Offset;

use super::world::named;
use crate::chance::Chance;
use crate::*;

const CONSUMERS: usize = 50;
const BATCH: u64 = 256;

struct Bench {
    d: Dispatcher,
    durable: QueueState,
    now: i64,
    keys: u64,
    acks: Vec<(SessionId, u64)>,
    units: u64,
    runs_max: usize,
}

impl Bench {
    fn new(kind: Kind, keys: u64, records: u64) -> Self {
        let policy = Policy {
            reattach_grace_ms: 0,
            ..Policy::new(kind)
        };
        let mut d = Dispatcher::open(policy, QueueState::default(), Offset(records), 1);
        for n in 0..CONSUMERS {
            let id = d.attach(&named(&format!("consumer-{n}")), Offset(0), 0);
            d.grant(id.unwrap(), 1_000, 1 << 40);
        }
        Self {
            d,
            durable: QueueState::default(),
            now: 0,
            keys,
            acks: Vec::new(),
            units: 0,
            runs_max: 0,
        }
    }

    fn read(&mut self, wanted: &ReadWanted) {
        let mut batches = Vec::new();
        let mut at = wanted.from.0 / BATCH * BATCH;
        while at < wanted.to.0 && (batches.len() as u64) * BATCH < wanted.records_max.max(1) {
            let hash = |offset: u64| Some(crate::chance::mix(offset % self.keys) as u16);
            let keys = match self.keys {
                0 => Keys::Unknown,
                _ => Keys::Each((at..at + BATCH).map(hash).collect()),
            };
            batches.push(Batch {
                range: OffsetRange::new(at, at + BATCH),
                bytes: BATCH as u32 * 1_024,
                keys,
            });
            at += BATCH;
        }
        let done = ReadDone {
            id: wanted.id,
            batches,
            skipped: Vec::new(),
            end: Offset(at),
        };
        self.d.read_done(done, self.now);
    }

    fn turn(&mut self) {
        self.d.pump(self.now);
        for effect in self.d.take_effects() {
            match effect {
                Effect::Read(wanted) => self.read(&wanted),
                Effect::Write { seq, delta } => {
                    self.durable.apply(&delta);
                    self.d.written(seq, Written::Done, self.now);
                }
                Effect::Deliver(unit) => {
                    self.units += 1;
                    for item in &unit.acquired {
                        let all = item.range.first.0..item.range.end.0;
                        self.acks.extend(all.map(|offset| (unit.session, offset)));
                    }
                }
                _ => {}
            }
        }
    }
}

fn measure(what: &str, kind: Kind, keys: u64) {
    let records = match cfg!(debug_assertions) {
        true => BATCH * 100,
        false => BATCH * 8_000,
    };
    let mut bench = Bench::new(kind, keys, records);
    let mut chance = Chance::new(1);
    let began = Instant::now();
    let mut ticket = 0;
    while bench.durable.base < Offset(records) {
        bench.now += 1;
        bench.turn();
        // Out of order, one by one, 200 answers a millisecond.
        for _ in 0..200.min(bench.acks.len()) {
            let at = chance.below(bench.acks.len() as u64) as usize;
            let (session, offset) = bench.acks.swap_remove(at);
            ticket += 1;
            let answer = Answer {
                session,
                ticket,
                state_epoch: 0,
                ranges: vec![OffsetRange::new(offset, offset + 1)],
                verdict: Verdict::Ack,
                before: false,
            };
            bench.d.answer(&answer, bench.now);
            bench.d.grant(session, 1, 1_024);
        }
        bench.runs_max = bench.runs_max.max(bench.d.runs.len());
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what}: {:.0} acked records/s, {} units, at most {} runs",
        records as f64 / seconds,
        bench.units,
        bench.runs_max
    );
    assert_eq!(bench.d.stats().unacked, 0);
}

#[test]
fn speed_of_queue_is_printed() {
    measure("QUEUE, 50 consumers", Kind::Queue, 0);
}

#[test]
fn speed_of_keyed_is_printed() {
    let sticky = Kind::Keyed(KeyOrder::Sticky);
    measure("KEYED sticky, 50 consumers, 10,000 keys", sticky, 10_000);
    let strict = Kind::Keyed(KeyOrder::OneInFlight);
    measure(
        "KEYED one_in_flight, 50 consumers, 10,000 keys",
        strict,
        10_000,
    );
}
