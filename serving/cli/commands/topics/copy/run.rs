//! The run: finds the goal and the last plan, makes the rest of its step, then one step after the other.

use std::time::Duration;

use hulse_sdk::{Admin, Client, Producer};
use serde::Serialize;

use super::goal::{Goal, bounds};
use super::plan::{Plan, Plans, last, topic_of};
use super::resume;
use super::step::{Made, Sink, Source, Work};
use crate::arguments;
use crate::commands::produce::Pace;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::{Field, Progress, Table, View, grouped};

/// Offsets of one step: what is read and compared again after a break, at most.
const STEP_OFFSETS: u64 = 50_000;
/// How often the target is looked at again because batches of an earlier run came in late; such a run has five under way at most.
const LOOKS_MAX: usize = 10;
/// Between two looks.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What was copied.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CopyView {
    source: String,
    target: String,
    source_partitions: u32,
    target_partitions: u32,
    /// By this run, or to be copied in a dry run.
    records: u64,
    resumed: bool,
    dry_run: bool,
}

impl View for CopyView {
    const FIELDS: &'static [Field] = &[
        Field::text("source", "tenant/namespace/topic"),
        Field::text("target", "tenant/namespace/topic"),
        Field::integer("source_partitions", "how many"),
        Field::integer("target_partitions", "how many"),
        Field::integer(
            "records",
            "copied by this run; in a dry run: offsets to be copied",
        ),
        Field::boolean("resumed", "an earlier run had begun"),
        Field::boolean("dry_run", "nothing was copied"),
    ];

    fn name(&self) -> String {
        self.target.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["SOURCE", "PARTS", "TARGET", "PARTS", "RECORDS", "RESUMED"]);
        for row in rows {
            table.row(vec![
                row.source.clone(),
                row.source_partitions.to_string(),
                row.target.clone(),
                row.target_partitions.to_string(),
                grouped(row.records),
                if row.resumed { "yes" } else { "no" }.to_owned(),
            ]);
        }
        table.render()
    }
}

/// Runs it.
///
/// # Errors
/// The server's; the target holds something else; somebody else writes to it.
pub(crate) async fn run(
    session: Session<'_>,
    client: &Client,
    copy: &arguments::Copy,
) -> Result<(), Stop> {
    let admin = client.admin();
    let dry = session.globals.dry_run;
    let names = (copy.source.as_str(), copy.target.as_str());
    let mut goal = Goal::find(&admin, names, copy.partitions.unwrap_or(0), dry).await?;
    let mut before = last(client, &admin, &topic_of(&goal.target.name)).await?;
    if let Some(plan) = &before
        && is_void(&admin, plan, &goal).await?
    {
        session.output.tell(&format!(
            "{} was deleted since an earlier copy into it: all that {} has now is copied",
            goal.target.name, goal.source.name
        ));
        before = None;
    }
    match &before {
        Some(plan) => {
            resume::check(plan, &goal)?;
            goal.alike = plan.alike;
            if dry {
                before = Some(resume::caught_up(client, &goal, plan.clone()).await?);
            }
        }
        None if dry => {}
        None => is_empty(client, &goal).await?,
    }
    let next = match &before {
        Some(plan) => plan.next.clone(),
        None => goal.starts.clone(),
    };
    let due: u64 = goal
        .ends
        .iter()
        .enumerate()
        .map(|(slot, end)| {
            let start = goal.starts[slot];
            end - next
                .get(slot)
                .map_or(start, |next| start.max(*next))
                .min(*end)
        })
        .sum();
    let mut view = CopyView {
        source: goal.source.name.clone(),
        target: goal.target.name.clone(),
        source_partitions: goal.source.partitions,
        target_partitions: goal.target.partitions,
        records: due,
        resumed: before.is_some(),
        dry_run: dry,
    };
    if !dry {
        let doing = format!("copying to {}", goal.target.name);
        let mut work = Work {
            pace: copy.rate.map(Pace::new),
            progress: Progress::new(session.output, doing, Some(due)),
            sent: 0,
        };
        work_off(client, &goal, copy, before, &mut work).await?;
        view.records = work.sent;
        drop(work);
        session.output.say(&format!(
            "how far the copy is stands in {}, for the next run",
            topic_of(&goal.target.name)
        ));
    }
    session.output.one(&view)
}

/// True for a plan whose target was deleted, and made anew by a copy or by hand, with nothing in it: there is nothing to go on with.
async fn is_void(admin: &Admin, plan: &Plan, goal: &Goal) -> Result<bool, Failure> {
    let is_same = plan.target_id == goal.target.id.to_string();
    if goal.target_is_new || is_same {
        return Ok(goal.target_is_new);
    }
    let bounds = bounds(admin, &goal.target).await?;
    Ok(bounds.iter().all(|(_, end)| *end == 0))
}

/// A first copy needs an empty target: nobody could tell later what of it is a copy.
async fn is_empty(client: &Client, goal: &Goal) -> Result<(), Failure> {
    let bounds = bounds(&client.admin(), &goal.target).await?;
    let held: u64 = bounds.iter().map(|(_, end)| end).sum();
    if held == 0 {
        return Ok(());
    }
    Err(
        Failure::new(Code::Conflict, "the target has records already")
            .why(format!(
                "{} records, and no copy was begun into it",
                grouped(held)
            ))
            .object(&goal.target.name)
            .next("name another target, or delete this one"),
    )
}

/// The producer of all runs. Its partitions are opened before anybody asks where they end: what an earlier run left under way is then
/// in the target, or will be refused.
async fn producer(
    client: &Client,
    goal: &Goal,
    copy: &arguments::Copy,
    before: Option<&Plan>,
) -> Result<Producer, Failure> {
    let target = &goal.target.name;
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot write to the target", target, &error);
    let mut builder = client
        .producer(target)
        .auto_create(false)
        .compression(copy.compression.into());
    if let Some(plan) = before {
        builder = builder.resume(plan.identity());
    }
    let producer = builder.build().await.map_err(failed)?;
    if before.is_some() {
        for partition in 0..goal.target.partitions {
            producer.last_sequence(partition).await.map_err(failed)?;
        }
    }
    Ok(producer)
}

/// Makes step after step, and looks at the target again whenever batches of an earlier run came in late.
async fn work_off(
    client: &Client,
    goal: &Goal,
    copy: &arguments::Copy,
    mut before: Option<Plan>,
    work: &mut Work,
) -> Result<(), Failure> {
    let target = &goal.target.name;
    let plans = Plans::open(client, topic_of(target)).await?;
    for _ in 0..LOOKS_MAX {
        let producer = producer(client, goal, copy, before.as_ref()).await?;
        let mut sink = Sink::new(goal, &producer, work);
        let whole = steps(client, &plans, &mut sink, before).await?;
        let closed = producer.close().await;
        if whole {
            return closed
                .map_err(|error| Failure::from_sdk("records were not copied", target, &error));
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        before = last(client, &client.admin(), &topic_of(target)).await?;
    }
    Err(
        Failure::new(Code::Conflict, "an earlier copy still writes to the target")
            .why("its batches come in again and again")
            .object(target)
            .next("stop it, then run the command again"),
    )
}

/// False: batches of an earlier run came in late.
async fn steps(
    client: &Client,
    plans: &Plans,
    sink: &mut Sink<'_>,
    before: Option<Plan>,
) -> Result<bool, Failure> {
    let goal = sink.goal;
    let mut made = false;
    let mut plan = match before {
        Some(plan) => {
            let admin = client.admin();
            let plan = resume::caught_up(client, goal, plan).await?;
            let had = resume::had(client, &admin, goal, &plan).await?;
            let mut source =
                Source::open(client, &goal.source.name, plan.partition, plan.first()).await?;
            match sink.make(&mut source, &plan, had).await? {
                Made::Whole(ends) => {
                    made = plan.first() < plan.end;
                    after(plan, ends)
                }
                Made::Overtaken => return Ok(false),
            }
        }
        None => first(goal, sink.producer).await?,
    };
    // The source may have more partitions than it had.
    let known = plan.next.len();
    plan.next.extend(goal.starts.iter().skip(known));
    for partition in 0..goal.source.partitions {
        let slot = partition as usize;
        if plan.next[slot] >= goal.ends[slot] {
            continue;
        }
        let mut source =
            Source::open(client, &goal.source.name, partition, plan.next[slot]).await?;
        while plan.next[slot] < goal.ends[slot] {
            plan.partition = partition;
            plan.end = goal.ends[slot].min(plan.next[slot] + STEP_OFFSETS);
            plans.keep(&plan).await?;
            let had = vec![0; plan.target_ends.len()];
            match sink.make(&mut source, &plan, had).await? {
                Made::Whole(ends) => plan = after(plan, ends),
                Made::Overtaken => return Ok(false),
            }
            made = true;
        }
    }
    // That the last step was made is known also when its records have left the source.
    if made {
        plans.keep(&plan).await?;
    }
    Ok(true)
}

/// The plan of a copy that has not begun.
async fn first(goal: &Goal, producer: &Producer) -> Result<Plan, Failure> {
    let identity = producer.identity().await;
    let identity = identity.map_err(|error| {
        Failure::from_sdk("cannot write to the target", &goal.target.name, &error)
    })?;
    let identity = identity.expect("a producer that waits for the quorum has an identity");
    Ok(Plan {
        source: goal.source.name.clone(),
        source_id: goal.source.id.to_string(),
        target: goal.target.name.clone(),
        target_id: goal.target.id.to_string(),
        producer_id: identity.id.0,
        producer_epoch: identity.epoch,
        partition: 0,
        end: goal.starts.first().copied().unwrap_or(0),
        next: goal.starts.clone(),
        target_ends: vec![0; goal.target.partitions as usize],
        alike: goal.alike,
    })
}

/// What stands when the step is made.
fn after(mut plan: Plan, ends: Vec<u64>) -> Plan {
    if let Some(next) = plan.next.get_mut(plan.partition as usize) {
        *next = plan.end.max(*next);
    }
    plan.target_ends = ends;
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_that_was_made_moves_its_partition_only() {
        let plan = Plan {
            source: String::new(),
            source_id: String::new(),
            target: String::new(),
            target_id: String::new(),
            producer_id: 1,
            producer_epoch: 0,
            partition: 1,
            end: 30,
            next: vec![5, 20],
            target_ends: vec![25],
            alike: false,
        };
        let plan = after(plan, vec![35]);
        assert_eq!((plan.next, plan.target_ends), (vec![5, 30], vec![35]));
    }
}
