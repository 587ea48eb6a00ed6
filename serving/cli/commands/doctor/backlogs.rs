//! Why a backlog grows. Pure, so that each cause has a test.
//!
//! What is new is told from what was before by the rates that the owners of the partitions remember.

use std::collections::BTreeMap;

use hulse_sdk::{Cursor, CursorState, Subscription};

use super::finding::{Ailment, Finding};
use crate::output::grouped;

/// Senders that are so much faster than before are told.
const FASTER: f64 = 1.5;
/// Consumers that are no faster than this part of before are told.
const SLOWER: f64 = 0.67;
/// A backlog that grows by less, in records per second and in part of what comes, goes up and down by itself.
const GROWS: (f64, f64) = (0.5, 0.05);
/// A consumer that has answered nothing for so long, ms, while it holds half of a backlog, is told.
const SILENT_MS: u64 = 10_000;
/// A record that was tried so often and is not processed is told.
const TRIES: u32 = 3;

/// A consumer that holds records.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    records: u64,
    silent_ms: u64,
    partitions: u32,
}

/// What the cursors of a subscription say of its backlog.
pub(super) fn of_cursors(subscription: &Subscription, cursors: &[Cursor]) -> Vec<Finding> {
    let mut topics: BTreeMap<&str, Vec<(u32, &CursorState)>> = BTreeMap::new();
    for cursor in cursors {
        if let Ok(state) = &cursor.state {
            let states = topics.entry(&cursor.topic).or_default();
            states.push((cursor.partition, state));
        }
    }
    let name = &subscription.name;
    let mut found = Vec::new();
    for (topic, states) in topics {
        let of = Of { name, topic };
        let paused = |state: &CursorState| state.blocked.iter().any(|why| why.ends_with("PAUSED"));
        if states.iter().any(|(_, state)| paused(state)) {
            continue;
        }
        found.extend(of.changed(&states));
        found.extend(of.tried(&states));
        found.extend(of.held(&states));
    }
    found
}

/// A subscription on a topic.
#[derive(Clone, Copy)]
struct Of<'a> {
    name: &'a str,
    topic: &'a str,
}

impl Of<'_> {
    fn object(&self) -> String {
        format!("{} of {}", self.name, self.topic)
    }

    fn look(&self) -> String {
        let short = self.name.rsplit('/').next().unwrap_or(self.name);
        format!("hulse subscriptions describe {} {short}", self.topic)
    }

    /// It grows, and did not before: since more comes, or since less is processed.
    fn changed(&self, states: &[(u32, &CursorState)]) -> Vec<Finding> {
        let rates = states.iter().filter_map(|(_, state)| state.rates);
        let known = rates.filter_map(|rates| Some((rates, rates.before?)));
        let mut sum = [0.0; 4];
        for (rates, (in_before, out_before)) in known {
            let one = [rates.incoming, rates.outgoing, in_before, out_before];
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        }
        let [incoming, outgoing, in_before, out_before] = sum;
        let backlog: u64 = states.iter().map(|(_, state)| state.backlog_records).sum();
        if backlog == 0 || incoming - outgoing < GROWS.0.max(incoming * GROWS.1) {
            return Vec::new();
        }
        let grows = format!(
            "{} records are not acknowledged, and {:.1} more each second",
            grouped(backlog),
            incoming - outgoing
        );
        let mut found = Vec::new();
        if incoming >= FASTER * in_before {
            found.push(
                Ailment::FasterSenders
                    .found("a backlog grows: more is sent than before", self.object())
                    .why(format!(
                        "{incoming:.1} records come each second, {in_before:.1} did before; {outgoing:.1} are processed; {grows}"
                    ))
                    .next(format!("more consumers, if it lasts; {}", self.look())),
            );
        }
        if out_before > 0.0 && outgoing <= SLOWER * out_before {
            found.push(
                Ailment::SlowerReaders
                    .found("a backlog grows: consumers are slower than before", self.object())
                    .why(format!(
                        "{outgoing:.1} records are processed each second, {out_before:.1} were before; {incoming:.1} come; {grows}"
                    ))
                    .next(format!("look at the consumers; {}", self.look())),
            );
        }
        found
    }

    /// A record that nobody can process.
    fn tried(&self, states: &[(u32, &CursorState)]) -> Vec<Finding> {
        let all = states.iter();
        let all = all.filter_map(|(partition, state)| Some((*partition, state.most_tried?)));
        let worst = all.max_by_key(|(_, (_, tries))| *tries);
        let worst = worst.filter(|(_, (_, tries))| *tries >= TRIES);
        let found = worst.map(|(partition, (offset, tries))| {
            let topic = self.topic;
            Ailment::TriedAgain
                .found(
                    "a record is delivered again and again",
                    format!("{}, partition {partition}, offset {offset}", self.object()),
                )
                .why(format!(
                    "it was delivered {tries} times, and no consumer has acknowledged it"
                ))
                .next(format!(
                    "hulse topics peek {topic} -p {partition} -o {offset} -n 1; a subscription with --max-attempts puts such records aside"
                ))
        });
        found.into_iter().collect()
    }

    /// A consumer that sits on records.
    fn held(&self, states: &[(u32, &CursorState)]) -> Vec<Finding> {
        let mut all: BTreeMap<&str, Held> = BTreeMap::new();
        for (_, state) in states {
            for consumer in &state.consumers {
                let half = consumer.unacked_records * 2 >= state.backlog_records;
                if half && consumer.silent_ms >= SILENT_MS {
                    let held = all.entry(&consumer.name).or_default();
                    held.records += consumer.unacked_records;
                    held.silent_ms = held.silent_ms.max(consumer.silent_ms);
                    held.partitions += 1;
                }
            }
        }
        let backlog: u64 = states.iter().map(|(_, state)| state.backlog_records).sum();
        // One record that takes long, and nothing else, is work.
        let worth = all
            .into_iter()
            .filter(|(_, held)| held.records > 1 || backlog > 1);
        let found = worth.map(|(consumer, held)| {
            Ailment::Holding
                .found(
                    "one consumer holds records and answers none",
                    format!("consumer {consumer} of {}", self.object()),
                )
                .why(format!(
                    "it holds {} of {} records that are not acknowledged, on {} partitions, and has answered none for {} s",
                    grouped(held.records),
                    grouped(backlog),
                    held.partitions,
                    held.silent_ms / 1_000
                ))
                .next(format!(
                    "look at that consumer: what it holds goes to others when it ends; a smaller receive queue leaves more to them; {}",
                    self.look()
                ))
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use hulse_sdk::{CursorRates, Offset};

    use super::*;

    const OF: Of<'_> = Of {
        name: "public/default/jobs",
        topic: "public/default/orders",
    };

    fn state(now: (f64, f64), before: Option<(f64, f64)>) -> CursorState {
        let mut rates = CursorRates::default();
        (rates.incoming, rates.outgoing, rates.before) = (now.0, now.1, before);
        let mut state = CursorState::default();
        state.backlog_records = 100;
        state.rates = Some(rates);
        state
    }

    fn codes(state: &CursorState) -> Vec<&'static str> {
        let states = [(0, state)];
        let found = OF.changed(&states).into_iter().chain(OF.tried(&states));
        found.map(|finding| finding.code()).collect()
    }

    #[test]
    fn growth_is_told_by_what_has_changed() {
        for (now, before, told) in [
            ((300.0, 100.0), Some((100.0, 100.0)), vec!["DOCTOR-20"]),
            ((100.0, 20.0), Some((100.0, 100.0)), vec!["DOCTOR-21"]),
            (
                (300.0, 20.0),
                Some((100.0, 100.0)),
                vec!["DOCTOR-20", "DOCTOR-21"],
            ),
            ((5.0, 0.0), Some((0.0, 0.0)), vec!["DOCTOR-20"]),
            // It shrinks, stands still, was always so, or nobody knows.
            ((300.0, 400.0), Some((100.0, 100.0)), vec![]),
            ((100.0, 99.0), Some((50.0, 200.0)), vec![]),
            ((100.0, 50.0), Some((100.0, 50.0)), vec![]),
            ((100.0, 0.0), None, vec![]),
        ] {
            assert_eq!(codes(&state(now, before)), told, "{now:?} {before:?}");
        }
        let mut empty = state((300.0, 100.0), Some((100.0, 100.0)));
        empty.backlog_records = 0;
        assert_eq!(codes(&empty), Vec::<&str>::new());
    }

    #[test]
    fn record_that_is_tried_thrice_is_told_and_where_it_is() {
        let mut state = state((0.0, 0.0), None);
        state.most_tried = Some((Offset(7), 2));
        assert_eq!(codes(&state), Vec::<&str>::new());
        state.most_tried = Some((Offset(7), 3));
        assert_eq!(codes(&state), ["DOCTOR-22"]);
        let found = format!("{:?}", OF.tried(&[(2, &state)]));
        assert!(found.contains("partition 2, offset 7"), "{found}");
    }
}
