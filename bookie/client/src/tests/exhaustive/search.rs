//! Walks every order of a history. A state that was met before is not entered again; among the steps not taken yet the next is
//! drawn from a fixed seed, so that a walk of a part sees all parts.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::cell::{Cell, Plan, Step};

/// What a search saw.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) states: usize,
    /// No state is left.
    pub(super) whole: bool,
    pub(super) closes: u64,
    pub(super) confirmations: u64,
    /// The steps that lead to it, and what is wrong.
    pub(super) violation: Option<(Vec<String>, String)>,
}

/// The steps that led to a state, the last first.
struct Path {
    step: Step,
    before: Way,
}

type Way = Option<Rc<Path>>;

fn steps_of(way: &Way) -> Vec<Step> {
    let mut steps: Vec<Step> = std::iter::successors(way.as_deref(), |path| path.before.as_deref())
        .map(|path| path.step)
        .collect();
    steps.reverse();
    steps
}

/// Walks until all states are met, `states_max` are, or one is wrong.
pub(super) fn search(plan: Plan, states_max: usize) -> Found {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let mut met = HashSet::new();
    let mut left: Vec<(Way, Step)> = Vec::new();
    let mut found = Found::default();
    let mut cell = Cell::new(plan);
    let mut way: Way = None;
    met.insert(fingerprint(&cell));
    // How many of the steps that lead on from `cell` are left; they were pushed last.
    let mut here = open(&cell, &way, &mut left);
    while found.states < states_max {
        let at = match here {
            0 => match left.len() {
                0 => {
                    found.whole = true;
                    break;
                }
                all => rng.random_range(0..all),
            },
            here => left.len() - 1 - rng.random_range(0..here),
        };
        let (from, step) = left.swap_remove(at);
        if here == 0 {
            cell = replay(plan, &steps_of(&from));
        }
        cell.take(step);
        way = Some(Rc::new(Path { step, before: from }));
        if !met.insert(fingerprint(&cell)) {
            here = 0;
            continue;
        }
        found.states += 1;
        found.closes += u64::from(cell.just_closed());
        found.confirmations += u64::from(cell.just_confirmed());
        if let Some(words) = cell.violation() {
            found.violation = Some((words_of(plan, &steps_of(&way)), words));
            break;
        }
        here = open(&cell, &way, &mut left);
    }
    found
}

fn open(cell: &Cell, way: &Way, left: &mut Vec<(Way, Step)>) -> usize {
    let steps = cell.steps();
    let count = steps.len();
    left.extend(steps.into_iter().map(|step| (way.clone(), step)));
    count
}

fn replay(plan: Plan, steps: &[Step]) -> Cell {
    let mut cell = Cell::new(plan);
    for step in steps {
        cell.take(*step);
    }
    cell
}

fn words_of(plan: Plan, steps: &[Step]) -> Vec<String> {
    let mut cell = Cell::new(plan);
    let mut words = Vec::new();
    for step in steps {
        words.push(cell.words(*step));
        cell.take(*step);
    }
    words
}

fn fingerprint(cell: &Cell) -> u64 {
    let mut hasher = DefaultHasher::new();
    cell.text().hash(&mut hasher);
    hasher.finish()
}
