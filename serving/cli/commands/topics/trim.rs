//! `hulse topics trim`: moves where logs begin, after a look at what goes.

use futures::stream::{self, StreamExt, TryStreamExt};
use hulse_proto::time::WallClock as _;
use hulse_sdk::{Admin, Offset, TrimTo};
use serde::Serialize;

use super::losing::Losses;
use crate::arguments::Trim;
use crate::commands::confirm::confirm;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::{Field, Table, View, grouped};
use crate::roles::SystemClock;

/// Partitions that are asked at the same time.
const ASKED_AT_ONCE: usize = 16;

/// A partition that was trimmed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TrimView {
    topic: String,
    partition: u32,
    log_start: u64,
    high_watermark: u64,
    removed: u64,
    fault: Option<String>,
}

impl View for TrimView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic"),
        Field::integer("partition", "from 0"),
        Field::integer("log_start", "oldest offset, now"),
        Field::integer("high_watermark", "offset that came next before the trim"),
        Field::integer("removed", "offsets that are not served any more"),
        Field::text("fault", "why it was not trimmed").or_null(),
    ];

    fn name(&self) -> String {
        format!("{}/{}", self.topic, self.partition)
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["PARTITION", "START", "END", "REMOVED", "STATE"]);
        for row in rows {
            table.row(vec![
                row.partition.to_string(),
                grouped(row.log_start),
                grouped(row.high_watermark),
                grouped(row.removed),
                row.fault.clone().unwrap_or_else(|| "ok".to_owned()),
            ]);
        }
        table.render()
    }
}

/// A partition and where its log shall begin.
struct Planned {
    partition: u32,
    start: u64,
    end: u64,
    to: u64,
}

/// Runs it.
///
/// # Errors
/// The server's; a trim that was not confirmed; partitions that were not trimmed.
pub(super) async fn run(session: Session<'_>, admin: &Admin, trim: &Trim) -> Result<(), Stop> {
    let topic = &trim.topic;
    if trim.before.until.is_some() {
        let failure = Failure::new(Code::Usage, "cannot trim a range")
            .why("a log is trimmed from its start up to one position")
            .object(topic)
            .next("name the first record that stays, e.g. --before 1000");
        return Err(failure.into());
    }
    let planned = plan(admin, trim).await?;
    within(topic, &planned)?;
    let gone: u64 = planned.iter().map(|one| one.to - one.start).sum();
    let ends = planned.iter().map(|one| (one.partition, one.to)).collect();
    let losses = Losses::find(admin, topic, Some(&ends)).await?;
    let what = format!(
        "remove {} records from {topic}, for good, in {} of its partitions{}",
        grouped(gone),
        planned.iter().filter(|one| one.to > one.start).count(),
        losses.words()
    );
    if !confirm(session, &what)? {
        return Ok(());
    }
    let points: Vec<(u32, TrimTo)> = planned
        .iter()
        .map(|one| (one.partition, TrimTo::Offset(Offset(one.to))))
        .collect();
    let trimmed = admin.trim(topic, &points).await;
    let trimmed =
        trimmed.map_err(|error| Failure::from_sdk("cannot trim the topic", topic, &error))?;
    let mut refused = None;
    let views: Vec<TrimView> = planned
        .iter()
        .zip(trimmed)
        .map(|(one, trimmed)| {
            let (log_start, fault) = match trimmed.log_start {
                Ok(offset) => (offset.0, None),
                Err(fault) => {
                    let words = fault.to_string();
                    refused.get_or_insert((one.partition, fault));
                    (one.start, Some(words))
                }
            };
            TrimView {
                topic: topic.clone(),
                partition: one.partition,
                log_start,
                high_watermark: one.end,
                removed: log_start.saturating_sub(one.start),
                fault,
            }
        })
        .collect();
    session.output.list(&views)?;
    match refused {
        None => Ok(()),
        // By its own code: what to do next hangs on it.
        Some((partition, fault)) => {
            let what = "not every partition was trimmed";
            Err(Failure::from_fault(what, &fault)
                .object(format!("{topic}/{partition}"))
                .into())
        }
    }
}

/// Refuses what lies beyond the end of a log: there is nothing yet that could go.
fn within(topic: &str, planned: &[Planned]) -> Result<(), Failure> {
    let beyond: Vec<String> = planned
        .iter()
        .filter(|one| one.to > one.end)
        .map(|one| {
            let (partition, end, to) = (one.partition, grouped(one.end), grouped(one.to));
            format!("partition {partition} ends at {end}, {to} was named")
        })
        .collect();
    if beyond.is_empty() {
        return Ok(());
    }
    Err(
        Failure::new(Code::Usage, "cannot trim beyond the end of a log")
            .why(beyond.join("\n"))
            .object(topic)
            .next("--before end removes all that is there; -p N trims one partition only"),
    )
}

/// What goes of each partition, as it is now.
async fn plan(admin: &Admin, trim: &Trim) -> Result<Vec<Planned>, Failure> {
    let topic = &trim.topic;
    let failed = |error| Failure::from_sdk("cannot look at the topic", topic, &error);
    let partitions = match trim.partitions.is_empty() {
        false => trim.partitions.clone(),
        true => {
            let described = admin.describe_topic(topic).await.map_err(failed)?;
            (0..described.partitions).collect()
        }
    };
    let time = trim.before.from.time(SystemClock.now_ms());
    stream::iter(partitions)
        .map(|partition| async move {
            let offsets = admin.offsets(topic, partition, time).await;
            let offsets = offsets.map_err(failed)?;
            let (start, end) = (offsets.start.0, offsets.end.0);
            let found = offsets.at_time.map(|offset| offset.0);
            let to = trim.before.from.offset(start, end, found);
            Ok(Planned {
                partition,
                start,
                end,
                to: to.max(start),
            })
        })
        .buffered(ASKED_AT_ONCE)
        .try_collect()
        .await
}
