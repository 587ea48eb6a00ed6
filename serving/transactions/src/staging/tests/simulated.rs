//! Tests 20 and 21 of serving.md F2 in simulated time: scheduled and half messages, owners that die, answers that are lost, clocks that
//! step, decisions that race, groups that go away, targets that are deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use hulse_proto::mutant::{Mutant, Mutation};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::world::{HOUR_MS, World, target};
use crate::TxnError;
use crate::staging::*;

const SEEDS: u64 = 60;
const STEPS: u32 = 1_500;
const TARGETS: u8 = 3;

/// What is known of an item from outside.
#[derive(Debug, Default)]
struct Known {
    /// When it may be seen first; `None`: a half message.
    due: Option<i64>,
    /// It was said to be kept.
    kept: bool,
    /// What was told to whoever decided.
    told: BTreeSet<Decision>,
    committed: bool,
    checks: u16,
}

struct Run {
    world: World,
    rng: ChaCha12Rng,
    known: BTreeMap<ItemId, Known>,
    asked: BTreeMap<RequestId, (ItemId, Option<bool>)>,
    online: bool,
    deleted: bool,
    early: bool,
}

impl Run {
    fn new(seed: u64, mutation: Mutation) -> Self {
        let mut world = World::new(mutation);
        world.quick = false;
        Self {
            world,
            rng: ChaCha12Rng::seed_from_u64(seed),
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
            online: false,
            deleted: false,
            early: false,
        }
    }

    fn come(&mut self) {
        let id = self.world.new_id();
        let target = target(self.rng.random_range(0..TARGETS));
        let scheduled: bool = self.rng.random();
        let due = self.world.now + self.rng.random_range(-1_000..200_000);
        let request = match scheduled {
            true => Request::Schedule { id, target, due },
            false => Request::Prepare {
                id,
                target,
                group: "carts".into(),
                check_after_ms: self.rng.random_range(1..20_000),
                checks_max: 3,
            },
        };
        let known = Known {
            due: scheduled.then_some(due),
            ..Known::default()
        };
        self.known.insert(id, known);
        let request = self.world.send(request);
        self.asked.insert(request, (id, None));
    }

    fn decide(&mut self) {
        let at = self.rng.random_range(0..self.known.len().max(1));
        let Some((id, known)) = self.known.iter().nth(at) else {
            return;
        };
        let commit = known.due.is_none() && self.rng.random_ratio(2, 3);
        let id = *id;
        let request = self.world.send(Request::Resolve { id, commit });
        self.asked.insert(request, (id, Some(commit)));
    }

    fn hear(&mut self) {
        for (request, answer) in std::mem::take(&mut self.world.answers) {
            let lost = self.rng.random_ratio(1, 10);
            let Some((id, commit)) = self.asked.remove(&request) else {
                continue;
            };
            let known = self.known.get_mut(&id).expect("it was made");
            if lost {
                continue;
            }
            match answer {
                Answer::Kept(said) => known.kept |= said.is_ok(),
                Answer::Resolved(Ok(())) => {
                    let decision = if commit == Some(true) {
                        Decision::Commit
                    } else {
                        Decision::Rollback
                    };
                    known.told.insert(decision);
                }
                Answer::Resolved(Err(TxnError::Decided(decision))) => {
                    known.told.insert(decision);
                }
                Answer::Resolved(Err(TxnError::NoItem)) => {
                    assert!(!known.kept, "{id} is lost");
                }
                other => panic!("{other:?}"),
            }
            assert!(known.told.len() <= 1, "{id} is decided twice: {known:?}");
        }
    }

    /// Something that the store wanted happens, or gets lost.
    fn happen(&mut self) {
        if self.world.wanted.is_empty() {
            return;
        }
        // Those to one target go in order.
        let effect = self.world.wanted.remove(0);
        let lost = self.rng.random_ratio(1, 8);
        match effect {
            Effect::Publish {
                id,
                target,
                sequence,
                ..
            } => {
                let known = self.known.get_mut(&id).expect("it was made");
                known.committed = true;
                self.early |= known.due.is_some_and(|due| self.world.now < due);
                let outcome = match (lost, self.rng.random()) {
                    (true, true) => PublishOutcome::Unknown,
                    // Stored, and nobody hears it.
                    (true, false) => {
                        self.world.store(id, target, sequence);
                        PublishOutcome::Unknown
                    }
                    (false, _) => self.world.store(id, target, sequence),
                };
                self.world.input(Input::Published(id, outcome));
            }
            Effect::Check { id, attempt, .. } => {
                assert!(self.online, "nobody is there for {id}");
                let known = self.known.get_mut(&id).expect("it was made");
                assert!(attempt <= known.checks + 1, "a check of {id} was not sent");
                if !lost {
                    known.checks = attempt;
                }
                self.world.input(Input::Checked { id, sent: !lost });
            }
            Effect::Discard { id, .. } => {
                let durable = !lost;
                self.world.input(Input::Copied { id, durable });
            }
            other => self.world.does(other),
        }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..12 => self.come(),
            12..20 => self.decide(),
            20..45 => self.world.confirm(),
            45..75 => self.happen(),
            75..90 => {
                self.world.now += self.rng.random_range(0..4_000);
                self.world.input(Input::Tick);
            }
            90..93 => {
                self.online = !self.online;
                self.world.online(self.online);
                let checks = |effect: &Effect| matches!(effect, Effect::Check { .. });
                if !self.online {
                    // Whoever was to be asked is gone: the shell says so.
                    let (gone, other): (Vec<_>, Vec<_>) = std::mem::take(&mut self.world.wanted)
                        .into_iter()
                        .partition(checks);
                    self.world.wanted = other;
                    for effect in gone {
                        if let Effect::Check { id, .. } = effect {
                            self.world.input(Input::Checked { id, sent: false });
                        }
                    }
                }
            }
            93 => {
                let landed = self.rng.random_range(0..=self.world.way.len());
                self.asked.clear();
                self.world.moves(landed);
                self.world.online(self.online);
            }
            94 => {
                let places = self.world.new_id().first;
                self.world.input(Input::MakeRoom { below: places });
            }
            95 if self.rng.random_ratio(1, 20) && !self.deleted => {
                self.deleted = true;
                self.world.targets.entry(target(0)).or_default().gone = true;
            }
            _ => self.hear(),
        }
    }

    fn settle(&mut self) {
        self.world.quick = true;
        while !self.world.way.is_empty() {
            self.world.confirm();
        }
        self.hear();
        // Nobody is there for an hour, and no check is burnt.
        self.online = false;
        self.world.online(false);
        self.world
            .wanted
            .retain(|effect| !matches!(effect, Effect::Check { .. }));
        self.world.moves(0);
        let before: Vec<(ItemId, u16)> = self.waiting();
        for _ in 0..60 {
            self.world.pass(HOUR_MS / 60);
            self.world.work();
        }
        let mut after = self.waiting();
        after.retain(|(id, _)| before.iter().any(|(other, _)| other == id));
        let halves = |all: &[(ItemId, u16)]| -> Vec<(ItemId, u16)> {
            let half = |(id, _): &&(ItemId, u16)| self.known[id].due.is_none();
            all.iter().filter(half).copied().collect()
        };
        assert_eq!(halves(&after), halves(&before), "a check is burnt");
        // They come again, and what nobody decides is discarded in the end.
        self.online = true;
        self.world.online(true);
        for _ in 0..40 {
            self.world.pass(10_000);
            self.world.work();
        }
        assert_eq!(self.waiting(), []);
    }

    fn waiting(&self) -> Vec<(ItemId, u16)> {
        let items = self.world.machine.state().iter();
        let waiting = items.filter(|(_, item)| item.status == Status::Waiting);
        waiting.map(|(id, item)| (*id, item.checks)).collect()
    }

    fn judge(&self) -> u64 {
        assert!(!self.early, "a message was published before its time");
        let mut copies: BTreeMap<ItemId, u32> = BTreeMap::new();
        for target in self.world.targets.values() {
            for id in &target.stored {
                *copies.entry(*id).or_default() += 1;
            }
        }
        for (id, known) in &self.known {
            let copies = copies.get(id).copied().unwrap_or(0);
            assert!(copies <= 1, "{id} stands {copies} times");
            let item = self.world.machine.state().get(*id);
            assert!(item.is_some() || !known.kept, "{id} is lost");
            let Some(item) = item else {
                assert_eq!(copies, 0, "{id} is published and unknown");
                continue;
            };
            let decision = item.status.decision().expect("all is decided");
            let told = known.told.first().copied();
            assert!(
                told.is_none_or(|told| told == decision),
                "{id}: {known:?} {item:?}"
            );
            let gone = item.status == Status::Discarded(true);
            let published = decision == Decision::Commit && !gone;
            assert_eq!(
                copies == 1,
                published || (gone && copies == 1),
                "{id}: {item:?}"
            );
            assert!(
                !known.committed || decision == Decision::Commit,
                "{id}: {item:?}"
            );
        }
        copies.len() as u64
    }
}

fn simulate(seed: u64, mutation: Mutation) -> u64 {
    let mut run = Run::new(seed, mutation);
    for _ in 0..STEPS {
        run.step();
    }
    run.settle();
    run.judge()
}

#[test]
fn messages_are_published_once_in_time_or_never() {
    let long = std::env::var_os("HULSE_LONG").is_some();
    let count = if long { 50 * SEEDS } else { SEEDS };
    let mut published = 0;
    for seed in 0..count {
        let run = catch_unwind(AssertUnwindSafe(|| simulate(seed, Mutation::default())));
        published += run.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(
        published > 30 * count,
        "{published} messages in {count} runs"
    );
}

#[test]
fn every_rule_that_is_switched_off_is_missed() {
    let mutants = [
        Mutant::LastDecisionWins,
        Mutant::ChecksBurnt,
        Mutant::PublishedAnew,
    ];
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed = mutants.map(|mutant| {
        let caught = (0..SEEDS).find(|seed| {
            let run = || simulate(*seed, Mutation::of(Some(mutant)));
            catch_unwind(AssertUnwindSafe(run)).is_err()
        });
        (mutant, caught)
    });
    std::panic::set_hook(hook);
    for (mutant, seed) in missed {
        assert!(seed.is_some(), "no seed misses {mutant:?}");
    }
}

/// A hundred thousand messages that are due in one minute, in buckets, with an owner that dies in the middle.
#[test]
fn many_messages_of_one_minute_go_in_it_and_none_early() {
    let count = if std::env::var_os("HULSE_LONG").is_some() {
        100_000
    } else {
        10_000
    };
    let mut world = World::new(Mutation::default());
    world.quick = true;
    let begin = world.now + 300_000;
    let mut due = BTreeMap::new();
    for number in 0..count {
        let id = world.new_id();
        let at = begin + (i64::from(number) * 7_919) % 60_000;
        due.insert(id, at);
        let target = target((number % 16) as u8);
        world.send(Request::Schedule {
            id,
            target,
            due: at,
        });
        world.answers.clear();
    }
    let mut seen = BTreeSet::new();
    for second in 0..362 {
        world.now += 1_000;
        if second == 330 {
            world.moves(0);
        }
        world.input(Input::Tick);
        while !world.wanted.is_empty() {
            for effect in std::mem::take(&mut world.wanted) {
                if let Effect::Publish { id, .. } = &effect {
                    let late = world.now - due[id];
                    assert!((0..=1_000).contains(&late), "{id} is {late} ms late");
                    assert!(seen.insert(*id), "{id} is sent twice");
                }
                world.does(effect);
            }
        }
    }
    assert_eq!(seen.len(), due.len());
}
