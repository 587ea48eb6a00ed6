//! Every order of a small history: the real cores, one message at a time, in all sequences that the network may choose.
//!
//! A random walk is weak evidence for a rare order (storage.md §3); here the histories are short and nothing is left to chance.
//! `cell` is the history's state and its possible next steps, `flow` takes them, `search` walks them all and meets no state twice. A message that is
//! never delivered is a lost one; a transaction whose answer is never delivered has an unknown outcome and may land at any time.

mod cell;
mod flow;
mod packet;
mod search;

use cell::Plan;
use hulse_proto::mutant::Mutant;
use search::{Found, search};

/// States of one usual search; a longer history is walked in part, its branches in an order drawn from a fixed seed.
const STATES: usize = 8_000;
/// With `HULSE_LONG=1`.
const LONG_STATES: usize = 300_000;

/// States within which a mutant must be found.
const MUTANT_STATES: usize = 100_000;

fn states_max() -> usize {
    match std::env::var_os("HULSE_LONG") {
        Some(value) if value == "1" => LONG_STATES,
        _ => STATES,
    }
}

/// Walks a history and fails with the steps that lead to a violation.
fn all_orders_hold(name: &str, plan: Plan) {
    let found = search(plan, states_max());
    let whole = if found.whole { "all" } else { "not all" };
    println!(
        "{name}: {} states, {whole}, {} closes",
        found.states, found.closes
    );
    report(&format!("states of histories walked: {}", found.states));
    if let Some((steps, words)) = found.violation {
        panic!("{name}: {words}\n{}", steps.join("\n"));
    }
    // A search in which nothing is ever closed and confirmed shows nothing.
    assert!(
        found.closes > 0 && found.confirmations > 0,
        "{name}: nothing happens"
    );
}

fn report(line: &str) {
    use std::io::Write;
    let Some(path) = std::env::var_os("HULSE_TEST_REPORT") else {
        return;
    };
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{line}"))
        .expect("the report of the tests can be written");
}

fn finds(plan: Plan, mutant: Mutant) -> Found {
    search(plan.without(mutant), MUTANT_STATES)
}

#[test]
fn one_entry_and_one_recoverer_hold_in_every_order() {
    all_orders_hold(
        "two bookies, one recoverer",
        Plan::of(2, 2, 2).recoverers(1),
    );
    all_orders_hold(
        "three bookies, one recoverer",
        Plan::of(3, 3, 2).recoverers(1),
    );
}

#[test]
fn two_entries_and_two_recoverers_hold_in_every_order() {
    let pair = Plan::of(2, 2, 2).appends(2).recoverers(2);
    all_orders_hold("two bookies, two entries, two recoverers", pair);
    let three = Plan::of(3, 3, 2).appends(2).recoverers(2);
    all_orders_hold("three bookies, two entries, two recoverers", three);
}

#[test]
fn a_replaced_member_and_a_recoverer_hold_in_every_order() {
    let plan = Plan::of(2, 2, 2).spares(1).recoverers(1);
    all_orders_hold("two bookies, a spare, a refusal", plan);
    let plan = Plan::of(3, 3, 2).spares(1).appends(2).recoverers(1);
    all_orders_hold("three bookies, a spare, a refusal", plan);
}

#[test]
fn a_close_of_the_writer_and_a_recoverer_hold_in_every_order() {
    let plan = Plan::of(2, 2, 2).appends(2).recoverers(1).closes();
    all_orders_hold("two bookies, a close, a recoverer", plan);
}

#[test]
fn a_rule_that_is_switched_off_has_an_order_that_breaks_it() {
    for (plan, mutant) in [
        (Plan::of(3, 3, 2).recoverers(1), Mutant::ReadWithoutFence),
        (Plan::of(3, 3, 2).recoverers(1), Mutant::FenceForgotten),
        (
            Plan::of(2, 2, 2).recoverers(1),
            Mutant::ConfirmBelowAckQuorum,
        ),
        (
            Plan::of(2, 2, 2).spares(1).recoverers(1),
            Mutant::ProposedMemberCounts,
        ),
    ] {
        let found = finds(plan, mutant);
        let (steps, words) = found
            .violation
            .unwrap_or_else(|| panic!("{mutant:?} is not found in {} states", found.states));
        println!(
            "{mutant:?}: {} states, {} steps: {words}",
            found.states,
            steps.len()
        );
    }
}
