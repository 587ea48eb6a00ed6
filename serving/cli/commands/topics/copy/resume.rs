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
    for (partition, next) in plan.next.iter().enumerate() {
        let start = goal.starts.get(partition).copied().unwrap_or(0);
        if start > *next {
            return Err(Failure::new(
                Code::Incomplete,
                "records were removed before they were copied",
            )
            .why(format!(
                "offsets {next} to {} of partition {partition} are gone from the source",
                start - 1
            ))
            .object(&goal.source.name)
            .next("keep the target, which has what was copied before, and copy what is left into another one"));
        }
    }
    Ok(())
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
