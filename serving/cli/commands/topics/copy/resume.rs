//! Where an earlier run stopped: what of its last step the target has, and that it is the same.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hulse_sdk::{Admin, Client, ReadRecord};

use super::goal::{Goal, bounds};
use super::plan::Plan;
use super::step::{Source, foreign};
use crate::failure::{Code, Failure};

/// Judges whether a plan is one of these two topics.
///
/// # Errors
/// It is of another source, or one of the topics is another one now.
pub(super) fn check(plan: &Plan, goal: &Goal) -> Result<(), Failure> {
    let wrong = |why: String| {
        Failure::new(Code::Conflict, "the target holds another copy")
            .why(why)
            .object(&goal.target.name)
            .next("delete the target and its .copied topic, or name another target")
    };
    if plan.source != goal.source.name {
        return Err(wrong(format!("it is a copy of {}", plan.source)));
    }
    for (what, then, now) in [
        ("source", &plan.source_id, goal.source.id.to_string()),
        ("target", &plan.target_id, goal.target.id.to_string()),
    ] {
        if *then != now {
            return Err(wrong(format!("the {what} was deleted and made anew since")));
        }
    }
    if plan.target_ends.len() != goal.target.partitions as usize {
        return Err(wrong(format!(
            "it had {} partitions and has {} now, so keys would change theirs",
            plan.target_ends.len(),
            goal.target.partitions
        )));
    }
    Ok(())
}

/// What has left the source of the step that an earlier run had begun.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// Nothing.
    None,
    /// So many offsets at its beginning, which this partition of the target has.
    Copied(u32, u64),
    /// Some of them or all, and the target has the whole step.
    Whole,
}

/// The plan as it goes on where the source begins now. What has left the source since it was copied is none of its business.
///
/// # Errors
/// The server's; records have left the source that were not copied; somebody else wrote to the target.
pub(super) async fn caught_up(
    client: &Client,
    goal: &Goal,
    mut plan: Plan,
) -> Result<Plan, Failure> {
    let ends: Vec<u64> = bounds(&client.admin(), &goal.target)
        .await?
        .into_iter()
        .map(|(_, end)| end)
        .collect();
    let slot = plan.partition as usize;
    match left(&plan, &Seen::new(goal, plan.partition, &ends))? {
        Left::None => return Ok(plan),
        Left::Copied(lane, offsets) => {
            plan.next[slot] += offsets;
            plan.target_ends[lane as usize] += offsets;
        }
        Left::Whole => {
            // The rest of the step is still compared with the last that each partition of the target has.
            let start = goal.starts[slot];
            let mut ends = ends;
            let mut source = Source::open(client, &goal.source.name, plan.partition, start).await?;
            while let Some(record) = source.next(plan.end).await? {
                let lane = goal.partition_of(&record);
                let at = ends[lane as usize];
                if at == plan.target_ends[lane as usize] {
                    return Err(foreign(&goal.target.name, lane, at + 1, at));
                }
                ends[lane as usize] -= 1;
            }
            (plan.next[slot], plan.target_ends) = (start, ends);
        }
    }
    Ok(plan)
}

/// Judges what has left the source by how much the target has: each offset of a source is a record, so those of the step that are in
/// the target are its first ones wherever all of them go to one partition.
fn left(plan: &Plan, seen: &Seen<'_>) -> Result<Left, Failure> {
    for (partition, next) in (0..).zip(&plan.next) {
        let start = seen.start(partition);
        if partition != plan.partition && start > *next {
            return Err(seen.gone(partition, *next, start, ""));
        }
    }
    let (partition, first) = (plan.partition, plan.first());
    let start = seen.start(partition);
    if start <= first {
        return Ok(Left::None);
    }
    let step = plan.end.saturating_sub(first);
    let had = seen.ends.iter().zip(&plan.target_ends);
    let had: u64 = had.map(|(end, before)| end.saturating_sub(*before)).sum();
    let copied = first + had;
    match seen.lane {
        _ if had >= step && start > plan.end => Err(seen.gone(partition, plan.end, start, "")),
        None if had > step => Err(Failure::new(
            Code::Conflict,
            "somebody else wrote to the target",
        )
        .why(format!("it has {had} records of a step of {step}"))
        .object(seen.target)
        .next("delete the target and its .copied topic, and copy anew")),
        None if had == step => Ok(Left::Whole),
        None if had > 0 => Err(seen.gone(partition, first, start, UNSURE)),
        Some(lane) if start <= copied => Ok(Left::Copied(lane, start - first)),
        _ => Err(seen.gone(partition, copied, start, "")),
    }
}

/// Of a step that was cut short, whose records go to several partitions, each of which got some.
const UNSURE: &str = "; some of them were copied, and nobody can tell any more which";

/// What is seen of both topics.
struct Seen<'a> {
    source: &'a str,
    target: &'a str,
    /// Of the source, by partition.
    starts: &'a [u64],
    /// Of the target, by partition.
    ends: &'a [u64],
    /// Where all records of the step go, if it is one partition.
    lane: Option<u32>,
}

impl<'a> Seen<'a> {
    fn new(goal: &'a Goal, partition: u32, ends: &'a [u64]) -> Self {
        Self {
            source: &goal.source.name,
            target: &goal.target.name,
            starts: &goal.starts,
            ends,
            lane: goal.lane_of(partition),
        }
    }

    fn start(&self, partition: u32) -> u64 {
        self.starts.get(partition as usize).copied().unwrap_or(0)
    }

    fn gone(&self, partition: u32, from: u64, to: u64, note: &str) -> Failure {
        let what = "records were removed before they were copied";
        Failure::new(Code::Incomplete, what)
            .why(format!(
                "offsets {from} to {} of partition {partition} are gone from the source{note}",
                to - 1
            ))
            .object(self.source)
            .next("keep the target, which has what was copied before, and copy what is left into another one")
    }
}

/// How many records of the plan's step each partition of the target has. They are compared with the source's.
///
/// # Errors
/// The server's; what the target has is something else.
pub(super) async fn had(
    client: &Client,
    admin: &Admin,
    goal: &Goal,
    plan: &Plan,
) -> Result<Vec<u64>, Failure> {
    let ends = bounds(admin, &goal.target).await?;
    let had = ends.iter().zip(&plan.target_ends);
    let had: Vec<u64> = had
        .map(|((_, end), before)| end.saturating_sub(*before))
        .collect();
    if had.iter().all(|records| *records == 0) {
        return Ok(had);
    }
    let mut left = had.clone();
    let mut expected = vec![DefaultHasher::new(); left.len()];
    let mut source = Source::open(client, &goal.source.name, plan.partition, plan.first()).await?;
    while left.iter().any(|left| *left > 0) {
        let Some(record) = source.next(plan.end).await? else {
            break;
        };
        let slot = goal.partition_of(&record) as usize;
        if left[slot] > 0 {
            left[slot] -= 1;
            digest(&record, &mut expected[slot]);
        }
    }
    for (slot, surplus) in left.iter().enumerate() {
        let (partition, before) = (slot as u32, plan.target_ends[slot]);
        if *surplus > 0 {
            let end = before + had[slot];
            return Err(foreign(&goal.target.name, partition, end - surplus, end));
        }
        if had[slot] == 0 {
            continue;
        }
        let mut found = DefaultHasher::new();
        let mut target = Source::open(client, &goal.target.name, partition, before).await?;
        while let Some(record) = target.next(before + had[slot]).await? {
            digest(&record, &mut found);
        }
        if found.finish() != expected[slot].finish() {
            return Err(Failure::new(Code::Conflict, "somebody else wrote to the target")
                .why(format!("records from offset {before} of partition {partition} on are not the source's"))
                .object(&goal.target.name)
                .next("delete the target and its .copied topic, and copy anew"));
        }
    }
    Ok(had)
}

/// Everything of a record that is copied.
fn digest(record: &ReadRecord, into: &mut DefaultHasher) {
    record.key.hash(into);
    record.value.hash(into);
    record.timestamp.hash(into);
    record.headers.len().hash(into);
    for header in &record.headers {
        header.key.hash(into);
        header.value.hash(into);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            source: String::new(),
            source_id: String::new(),
            target: String::new(),
            target_id: String::new(),
            producer_id: 1,
            producer_epoch: 0,
            partition: 1,
            end: 150,
            next: vec![80, 100],
            target_ends: vec![80, 100],
            alike: true,
        }
    }

    /// What [`left`] says of a source that begins at these offsets and a target that ends at those.
    fn judged(plan: &Plan, starts: [u64; 2], ends: &[u64]) -> Result<Left, String> {
        let seen = Seen {
            source: "a",
            target: "b",
            starts: &starts,
            ends,
            lane: plan.alike.then_some(plan.partition),
        };
        left(plan, &seen).map_err(|failure| failure.reason().to_owned())
    }

    #[test]
    fn records_that_left_the_source_after_they_were_copied_are_no_loss() {
        let plan = plan();
        assert_eq!(judged(&plan, [80, 100], &[80, 120]), Ok(Left::None));
        assert_eq!(
            judged(&plan, [80, 120], &[80, 120]),
            Ok(Left::Copied(1, 20))
        );
        assert_eq!(
            judged(&plan, [80, 150], &[80, 150]),
            Ok(Left::Copied(1, 50))
        );
        // By key, into other partitions.
        let mut spread = plan;
        (spread.alike, spread.target_ends) = (false, vec![60, 60, 60]);
        assert_eq!(judged(&spread, [80, 140], &[80, 80, 70]), Ok(Left::Whole));
        // The step was made, and nothing was begun behind it.
        (spread.next, spread.target_ends) = (vec![80, 150], vec![80, 80, 70]);
        assert_eq!(judged(&spread, [80, 150], &[80, 80, 70]), Ok(Left::None));
    }

    #[test]
    fn records_that_left_the_source_before_they_were_copied_are_named_and_no_others() {
        let plan = plan();
        for (starts, ends, words) in [
            ([90, 100], [80, 100], "offsets 80 to 89 of partition 0 "),
            ([80, 121], [80, 120], "offsets 120 to 120 of partition 1 "),
            ([80, 170], [80, 120], "offsets 120 to 169 of partition 1 "),
            ([80, 170], [80, 150], "offsets 150 to 169 of partition 1 "),
        ] {
            let why = judged(&plan, starts, &ends).unwrap_err();
            assert!(why.starts_with(words), "{why}");
            assert!(!why.contains("nobody can tell"), "{why}");
        }
        let mut spread = plan;
        (spread.alike, spread.target_ends) = (false, vec![60, 60, 60]);
        let why = judged(&spread, [80, 110], &[60, 60, 60]).unwrap_err();
        assert!(why.starts_with("offsets 100 to 109 ") && !why.contains("nobody can tell"));
        let why = judged(&spread, [80, 110], &[70, 70, 60]).unwrap_err();
        assert!(why.contains("nobody can tell"), "{why}");
        judged(&spread, [80, 110], &[90, 90, 90]).unwrap_err();
    }
}
