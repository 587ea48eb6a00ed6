//! Seeded histories: consumers join, leave, crash and stall, storage is late, owners change, cursors move. After every
//! step an observer checks what it may never see, and in the end everything is processed or dead and every counter is 0.
//!
//! `HULSE_LONG=1` runs many more seeds; `HULSE_SEED=n` one, and tells what happens.

use hulse_proto::id::Offset;

use super::model::Model;
use super::world::{World, named};
use crate::chance::Chance;
use crate::*;

struct Run {
    w: World,
    m: Model,
    c: Chance,
    sessions: Vec<SessionId>,
    paused: Vec<SessionId>,
    letters: usize,
    moves: bool,
    epoch: u32,
}

fn seeds(short: u64) -> std::ops::Range<u64> {
    if let Some(seed) = std::env::var("HULSE_SEED")
        .ok()
        .and_then(|it| it.parse().ok())
    {
        return seed..seed + 1;
    }
    match std::env::var_os("HULSE_LONG") {
        Some(_) => 0..short * 20,
        None => 0..short,
    }
}

fn policy(kind: Kind, c: &mut Chance) -> Policy {
    let dead = [DeadLetters::Park, DeadLetters::Drop, DeadLetters::Topic];
    Policy {
        lock_ms: [0, 300, 1_000][c.below(3) as usize],
        attempts_max: [0, 2, 5][c.below(3) as usize],
        dead: dead[c.below(3) as usize],
        unacked_max: [3, 10, 1_000][c.below(3) as usize],
        window_max: [8, 40, 1_000][c.below(3) as usize],
        ack_ranges_max: [4, 1_000][c.below(2) as usize],
        look_ahead_records: [5, 2_000][c.below(2) as usize],
        unit_records_max: [2, 1_000][c.below(2) as usize],
        reattach_grace_ms: [0, 50][c.below(2) as usize],
        name_grace_ms: [0, 100][c.below(2) as usize],
        gather_ms: [0, 4][c.below(2) as usize],
        backoff: Backoff::Doubling { min_ms: 20 },
        ..Policy::new(kind)
    }
}

impl Run {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut c = Chance::new(seed);
        let policy = policy(kind, &mut c);
        Self {
            w: World::new(policy),
            m: Model::default(),
            moves: c.below(3) == 0,
            c,
            sessions: Vec::new(),
            paused: Vec::new(),
            letters: 0,
            epoch: 0,
        }
    }

    fn look(&mut self) {
        self.w.step();
        self.m.observe(&mut self.w);
        let d = &self.w.d;
        if d.in_flight.is_none() && d.gathering.is_empty() {
            assert_eq!(d.accepted(), self.w.durable, "live is not what is replayed");
        }
    }

    fn wait(&mut self, ms: u64) {
        let until = self.w.now + ms as i64;
        for round in 0.. {
            assert!(round < 10_000, "deadlines that do not pass");
            let next = self.w.d.next_deadline().filter(|at| *at <= until);
            let Some(at) = next else {
                break;
            };
            self.w.now = self.w.now.max(at);
            self.look();
        }
        self.w.now = until;
        self.look();
    }

    fn session(&mut self) -> Option<SessionId> {
        let n = self.c.below(self.sessions.len() as u64) as usize;
        self.sessions.get(n).copied()
    }

    fn act(&mut self) {
        match self.c.below(20) {
            0..=2 => self.append(),
            3..=4 => self.join(),
            5 => self.leave(),
            6..=7 => self.grant(),
            8..=13 => self.answer(),
            14..=15 => {
                let ms = [1, 10, 100, 600][self.c.below(4) as usize];
                self.wait(ms);
            }
            16 => self.storage(),
            17 => self.stall(),
            18 => self.letter(),
            _ => self.upset(),
        }
        self.look();
    }

    fn append(&mut self) {
        if self.w.end() > 150 {
            return;
        }
        let records = 1 + self.c.below(6);
        let hashes = [1, 17, 33, 1_000, 20_000, 40_000, 40_001, 65_535];
        let mut pick = || hashes[self.c.below(8) as usize];
        let keys: Vec<u16> = (0..records).map(|_| pick()).collect();
        match self.c.below(3) {
            0 => self.w.append_stamped(&keys),
            1 => self
                .w
                .append_keyed(&keys.into_iter().map(Some).collect::<Vec<_>>()),
            _ => {
                let keys = keys.into_iter();
                let keys = keys.map(|hash| (hash != 1_000).then_some(hash));
                self.w.append_keyed(&keys.collect::<Vec<_>>());
            }
        }
    }

    fn join(&mut self) {
        if self.sessions.len() > 5 {
            return;
        }
        let name = format!("c{}", self.c.below(6));
        let new = NewSession {
            priority: self.c.below(2) as i32,
            weight: 1 + self.c.below(3) as u16,
            ..named(&name)
        };
        let handed = Offset(self.c.below(self.w.end() + 1));
        let id = self.w.d.attach(&new, handed, self.w.now).unwrap();
        self.sessions.push(id);
        self.w.d.grant(id, 1 + self.c.below(10), 1 << 30);
    }

    fn leave(&mut self) {
        if let Some(id) = self.session() {
            self.sessions.retain(|other| *other != id);
            let crash = self.c.below(2) == 0;
            let how = if crash { Leave::Crashed } else { Leave::Closed };
            self.w.tell(format_args!("{id:?} leaves: {how:?}"));
            self.w.d.detach(id, how, self.w.now);
            self.m.releases(id, crash, true);
        }
    }

    fn grant(&mut self) {
        if let Some(id) = self.session() {
            self.w.d.grant(id, 1 + self.c.below(10), 1_000);
        }
    }

    fn answer(&mut self) {
        let Some(id) = self.session() else {
            return;
        };
        let theirs = self.m.held.iter().filter(|(_, held)| held.session == id);
        let theirs: Vec<u64> = theirs.map(|(offset, _)| *offset).collect();
        let mut first = self.c.below(self.w.end() + 2);
        if !theirs.is_empty() && self.c.below(10) > 0 {
            first = theirs[self.c.below(theirs.len() as u64) as usize];
        }
        let end = first + self.c.below(4);
        let delay = [Delay::None, Delay::For(30), Delay::Policy][self.c.below(3) as usize];
        let verdict = match self.c.below(12) {
            0..=6 => Verdict::Ack,
            7 | 8 => Verdict::Nack {
                failed: true,
                delay,
            },
            9 => Verdict::Nack {
                failed: false,
                delay,
            },
            10 => Verdict::Renew,
            _ => Verdict::Reject,
        };
        // Acks also beyond what was read; what would have to be taken back of the others is no more to learn from.
        let end = match verdict {
            Verdict::Ack => end,
            _ => end.min(self.w.d.runs.next()).max(first),
        };
        self.say(id, verdict, first, end);
    }

    fn say(&mut self, id: SessionId, verdict: Verdict, first: u64, end: u64) {
        let ticket = self.w.note(id, verdict, first, end);
        self.w.tell(format_args!(
            "{ticket}: {id:?} says {verdict:?} of {first}..{end}"
        ));
        self.m.says(&self.w, ticket, id, verdict, &[(first, end)]);
    }

    fn storage(&mut self) {
        self.w.writes_wait = self.c.below(2) == 0;
        self.w.reads_wait = self.c.below(3) == 0;
    }

    /// A write that is not known to be durable may be so all the same.
    fn write_ends(&mut self) {
        let (late, there) = (self.c.below(3) == 0, self.c.below(2) == 0);
        if late
            && there
            && let Some((_, delta)) = &self.w.write
        {
            self.w.durable.apply(delta);
        }
        self.w
            .written(if late { Written::Later } else { Written::Done });
    }

    /// What waits for storage comes to something.
    fn stall(&mut self) {
        if self.w.write.is_some() {
            self.write_ends();
        }
        if let Some(wanted) = self.w.reads.pop_front() {
            match self.c.below(3) {
                0 => self.w.d.read_failed(wanted.id, self.w.now),
                _ => self.w.answer_read(&wanted),
            }
        }
    }

    fn letter(&mut self) {
        self.letters = self.letters.min(self.w.letters.len());
        if let Some(letter) = self.w.letters.get(self.letters).cloned() {
            if self.c.below(3) == 0 {
                self.w
                    .d
                    .letter_failed(letter.state_epoch, letter.seq, self.w.now);
            } else {
                self.letters += 1;
                self.w
                    .d
                    .letter_done(letter.state_epoch, letter.seq, self.w.now);
            }
        }
    }

    fn upset(&mut self) {
        match self.c.below(6) {
            0 | 1 => self.change_owner(),
            2 if self.moves => {
                let to = self.c.below(self.w.end() + 1);
                self.epoch += 1;
                self.m.seeks();
                self.w.tell(format_args!("the cursor goes to {to}"));
                self.w.d.seek(Offset(to), u64::MAX, self.w.now);
            }
            3 if self.moves => {
                let first = self.c.below(self.w.end() + 1);
                let end = first + self.c.below(8);
                self.w.tell(format_args!("{first}..{end} are passed over"));
                self.m.skips(first, end);
                self.w
                    .d
                    .skip(OffsetRange::new(first, end), Skip::Expired, self.w.now);
            }
            4 => {
                if let Some(id) = self.session() {
                    let epoch = self.w.d.state_epoch;
                    self.m.settles(id);
                    self.w.d.settled(id, epoch);
                }
            }
            _ => {
                if let Some(id) = self.session() {
                    self.w.tell(format_args!("{id:?} pauses"));
                    self.w.d.pause(id, self.w.now);
                    self.m.releases(id, false, false);
                    self.paused.push(id);
                }
            }
        }
    }

    fn change_owner(&mut self) {
        // The write that is under way may have been durable.
        if let Some((_, delta)) = self.w.write.take()
            && self.c.below(2) == 0
        {
            self.w.durable.apply(&delta);
        }
        let lost = self.w.durable.state_epoch != self.epoch;
        self.w.reopen();
        if lost {
            // The move is lost: what was before it may come again, and counts as it did.
            self.m.seeks();
        }
        self.epoch = self.w.durable.state_epoch;
        self.m.reopens(&self.w);
        self.sessions.clear();
        self.paused.clear();
        self.m.gone.clear();
        self.letters = 0;
        self.w.letters = self.w.d.open_letters();
    }

    /// Everybody behaves now.
    fn finish(&mut self) {
        self.w.writes_wait = false;
        self.w.reads_wait = false;
        if self.w.write.is_some() {
            self.w.written(Written::Done);
        }
        while let Some(wanted) = self.w.reads.pop_front() {
            self.w.answer_read(&wanted);
        }
        for id in std::mem::take(&mut self.paused) {
            self.w.d.resume(id);
        }
        for id in self.sessions.clone() {
            // Where locks do not end, what was held before a move ends with the word that it is known.
            self.m.settles(id);
            self.w.d.settled(id, self.w.d.state_epoch);
        }
        while self.sessions.len() < 2 {
            self.join();
        }
        self.look();
        for round in 0.. {
            assert!(round < 3_000, "no end: {:#?}", self.w.d.stats());
            for id in self.sessions.clone() {
                self.w.d.grant(id, 1_000, 1 << 30);
            }
            let all: Vec<(u64, SessionId)> = {
                let held = self.m.held.iter();
                held.map(|(offset, held)| (*offset, held.session)).collect()
            };
            for (offset, id) in all {
                self.say(id, Verdict::Ack, offset, offset + 1);
            }
            while self.letters < self.w.letters.len() {
                let letter = self.w.letters[self.letters].clone();
                self.letters += 1;
                self.w
                    .d
                    .letter_done(letter.state_epoch, letter.seq, self.w.now);
            }
            self.look();
            let stats = self.w.d.stats();
            let quiet = self.w.d.in_flight.is_none() && self.w.d.gathering.is_empty();
            let full = stats.parked >= self.w.policy.window_max
                || stats.ack_ranges >= self.w.policy.ack_ranges_max;
            let done = full && stats.parked > 0 || stats.window_end.0 >= self.w.readable;
            if quiet && done && stats.unacked == stats.parked {
                break;
            }
            if stats.parked > 0 && round % 10 == 9 {
                // Parked records stop reading at a cap; they are tried anew, as somebody would.
                self.m.redrives(&self.w);
                self.w.tell(format_args!("what is parked is tried anew"));
                self.w.d.redrive(OffsetRange::new(0, u64::MAX), self.w.now);
            }
            self.wait(50);
        }
        let stats = self.w.d.stats();
        assert_eq!((stats.acquired, stats.waiting, stats.delayed), (0, 0, 0));
        assert_eq!(
            (stats.dying, stats.slots_held, stats.buffered_bytes),
            (0, 0, 0)
        );
        assert!(stats.sessions.iter().all(|session| session.unacked == 0));
        if stats.parked == 0 {
            assert_eq!(self.w.durable.base.0, self.w.readable.max(stats.base.0));
            assert_eq!(stats.holds, 0);
        }
    }
}

fn run(kind: Kind, seed: u64) -> u64 {
    let mut run = Run::new(kind, seed);
    for _ in 0..80 {
        run.act();
    }
    run.finish();
    run.m.deliveries
}

fn all(kinds: &[Kind], short: u64) {
    let mut deliveries = 0;
    for seed in seeds(short) {
        let kind = kinds[seed as usize % kinds.len()];
        let told = std::panic::catch_unwind(|| run(kind, seed));
        match told {
            Ok(more) => deliveries += more,
            Err(why) => {
                eprintln!("HULSE_SEED={seed} of {kind:?}");
                std::panic::resume_unwind(why);
            }
        }
    }
    let floor = seeds(short).count() as u64 * 5;
    assert!(deliveries > floor, "{deliveries} deliveries are no test");
}

#[test]
fn queue_histories_keep_every_promise() {
    all(&[Kind::Queue], 500);
}

#[test]
fn keyed_histories_keep_every_promise() {
    let kinds = [
        Kind::Keyed(KeyOrder::Sticky),
        Kind::Keyed(KeyOrder::BlockOnNack),
        Kind::Keyed(KeyOrder::OneInFlight),
    ];
    all(&kinds, 1_000);
}
