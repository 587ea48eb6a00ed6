//! One seed: clients, a coordinator, a network and a chain, step by step.

use std::sync::Arc;

use hulse_proto::mutant::{Mutant, Mutation};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::actor::{Actor, Speaks};
use super::classic_actor::PARTITIONS;
use super::oracle::Oracle;
use crate::testing::World;
use crate::{Answer, Commit, GroupsConfig, Input, Request};

/// Which clients a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    Newer,
    Eager,
    Cooperative,
    Both,
}

const STEPS: u32 = 400;
const ACTORS_MAX: usize = 6;
/// A client gives a request up after this time.
const PATIENCE_MS: u64 = 40_000;
/// Long enough for sessions, rebalances and a few rounds.
const SETTLE_MS: u64 = 240_000;

pub(super) struct Run {
    pub(super) world: World,
    pub(super) oracle: Oracle,
    actors: Vec<Actor>,
    rng: ChaCha12Rng,
    mix: Mix,
    made: u32,
    quiet: bool,
    /// Deltas that are durable; the rest is lost when the coordinator moves.
    durable: usize,
    /// Commits that are long under way, and when they come.
    late: Vec<(u64, Commit)>,
}

impl Run {
    pub(super) fn new(mix: Mix, seed: u64) -> Self {
        Self::mutated(mix, seed, None)
    }

    /// With a rule that does not hold.
    pub(super) fn mutated(mix: Mix, seed: u64, mutant: Option<Mutant>) -> Self {
        let mut world = World::with(GroupsConfig::default(), &[PARTITIONS], seed);
        if mutant.is_some() {
            world.mutate(Mutation::of(mutant));
        }
        world.slow = true;
        Self {
            world,
            oracle: Oracle::default(),
            actors: Vec::new(),
            rng: ChaCha12Rng::seed_from_u64(seed ^ 0x6f77),
            mix,
            made: 0,
            quiet: false,
            durable: 0,
            late: Vec::new(),
        }
    }

    pub(super) fn troubles(&mut self) {
        for _ in 0..STEPS {
            match self.rng.random_range(0..100) {
                0..6 if self.actors.len() < ACTORS_MAX => self.come(),
                6..8 => self.leave(),
                8..10 => self.crash(),
                10..12 => self.stall(),
                12..14 => self.come_back(),
                14 => self.coordinator_moves(),
                15 => self.grow_quiet(),
                _ => {}
            }
            self.step();
        }
    }

    /// Without troubles everybody gets what it should.
    pub(super) fn settle(&mut self) {
        self.quiet = true;
        while self.actors.is_empty() {
            self.come();
        }
        let now = self.world.now.passed_ms;
        for actor in &mut self.actors {
            actor.leaves = false;
            actor.next = actor.next.min(now + 5_000);
        }
        let end = self.world.now.passed_ms + SETTLE_MS;
        while self.world.now.passed_ms < end {
            self.step();
        }
        self.world.slow = false;
        let number = self.world.chain.len() as u64;
        self.world.input(Input::Confirmed(number));
        self.oracle
            .is_settled(&mut self.world, &self.actors, PARTITIONS);
    }

    fn come(&mut self) {
        let speaks = match self.mix {
            Mix::Newer => Speaks::Newer,
            Mix::Eager => Speaks::Eager,
            Mix::Cooperative => Speaks::Cooperative,
            Mix::Both => *[Speaks::Newer, Speaks::Cooperative]
                .choose(&mut self.rng)
                .unwrap(),
        };
        self.made += 1;
        let member: Arc<str> = format!("m{}", self.made).into();
        let fixed = self.rng.random_ratio(1, 4);
        let instance = fixed.then(|| format!("i{}", self.made).into());
        self.actors.push(Actor::new(speaks, member, instance));
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.actors.is_empty()).then(|| self.rng.random_range(0..self.actors.len()))
    }

    fn leave(&mut self) {
        if let Some(place) = self.pick() {
            let actor = &mut self.actors[place];
            actor.leaves = !actor.member.is_empty();
        }
    }

    fn crash(&mut self) {
        if let Some(place) = self.pick() {
            self.actors.remove(place);
        }
    }

    /// It does nothing for a while, perhaps longer than its session, and goes on as if nothing were.
    fn stall(&mut self) {
        let time = self.rng.random_range(1_000..80_000);
        if let Some(place) = self.pick() {
            let actor = &mut self.actors[place];
            actor.next = self.world.now.passed_ms + time;
        }
    }

    /// A static member is started anew.
    fn come_back(&mut self) {
        let fixed = |actor: &Actor| actor.instance.is_some();
        let Some(place) = self.actors.iter().position(fixed) else {
            return;
        };
        self.made += 1;
        let old = self.actors.remove(place);
        let member: Arc<str> = format!("m{}", self.made).into();
        self.actors
            .push(Actor::new(old.speaks, member, old.instance));
    }

    fn coordinator_moves(&mut self) {
        self.world.moves(self.durable);
        self.world.answers.clear();
    }

    fn grow_quiet(&mut self) {
        for _ in 0..20 {
            self.quiet = true;
            self.step();
        }
        self.quiet = false;
    }

    fn step(&mut self) {
        let chain = self.world.chain.len();
        let lag = self.rng.random_range(0..3);
        self.durable = self.durable.max(match self.quiet {
            true => chain,
            false => chain.saturating_sub(lag),
        });
        self.world.input(Input::Confirmed(self.durable as u64));
        for place in 0..self.actors.len() {
            self.act(place);
            self.oracle.is_disjoint(&self.world, &self.actors);
        }
        self.actors.retain(|actor| !actor.gone);
        self.late_commits_come();
        let time = self.rng.random_range(50..800);
        self.world.pass(time);
    }

    fn lost(&mut self) -> bool {
        !self.quiet && self.rng.random_ratio(1, 25)
    }

    fn act(&mut self, place: usize) {
        let now = self.world.now.passed_ms;
        if self.actors[place].next > now {
            return;
        }
        self.finish_commit(place);
        match self.actors[place].waits {
            Some((id, since)) => {
                let answer = self.world.take(id);
                let lost = answer.is_some() && self.lost();
                match answer {
                    Some(answer) if !lost => {
                        self.actors[place].hears(answer, now);
                        self.oracle.owns(&self.actors[place]);
                    }
                    _ if lost || now - since > PATIENCE_MS => {
                        self.world.input(Input::Gone(id));
                        self.actors[place].hears_nothing(now);
                    }
                    _ => {}
                }
            }
            None => self.ask(place),
        }
    }

    fn ask(&mut self, place: usize) {
        let now = self.world.now.passed_ms;
        if self.actors[place].commits.is_none() && self.rng.random_ratio(1, 4) {
            self.commit(place);
        }
        let request = self.actors[place].request();
        if self.lost() {
            self.actors[place].hears_nothing(now);
            return;
        }
        let id = self.world.send(request);
        self.actors[place].waits = Some((id, now));
    }

    fn commit(&mut self, place: usize) {
        let offset = self.rng.random_range(0..1_000);
        let owned: Vec<_> = self.actors[place].owned.iter().copied().collect();
        if let Some(partition) = owned.choose(&mut self.rng) {
            let request = self.actors[place].commit(*partition, offset);
            if self.rng.random_ratio(1, 4) {
                // Its client has given it up; the network has not.
                let comes = self.world.now.passed_ms + self.rng.random_range(500..30_000);
                self.late.push((comes, request));
                return;
            }
            let before = self.world.chain.len();
            let id = self.world.send(Request::Commit(request));
            self.actors[place].commits = Some((id, *partition));
            // It is judged by what the group is now, not when the answer comes.
            if self.world.chain.len() > before {
                let actor = &self.actors[place];
                self.oracle.committed(&self.world, actor, *partition);
            }
        }
    }

    fn late_commits_come(&mut self) {
        let now = self.world.now.passed_ms;
        let (due, later) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|(comes, _)| *comes <= now);
        self.late = later;
        for (_, commit) in due {
            let before = self.world.chain.len();
            self.world.send(Request::Commit(commit.clone()));
            if self.world.chain.len() > before {
                self.oracle.committed_late(&self.world, &commit);
            }
        }
    }

    fn finish_commit(&mut self, place: usize) {
        if let Some((id, _)) = self.actors[place].commits
            && let Some(answer) = self.world.take(id)
        {
            self.actors[place].commits = None;
            assert!(matches!(answer, Answer::Committed(_)), "{answer:?}");
        }
    }
}
