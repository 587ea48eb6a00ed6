//! A topic, read from its start: offsets without a gap, batches whose checksums hold, numbers that are all there.

use std::collections::BTreeMap;

use hulse_sdk::numbers::{NumberCheck, NumberFinding};
use hulse_sdk::{Client, ErrorKind, Reader, Start};

use super::view::{ReadView, TrimmedView, VerifyView};
use crate::commands::session::Session;
use crate::failure::Failure;
use crate::output::Progress;

/// Fetched ahead.
const BYTES_IN_FLIGHT: u32 = 32 << 20;

/// Reads and judges it.
///
/// # Errors
/// The server's, but for damage and gaps, which are findings.
pub(super) async fn verify(session: Session<'_>, topic: &str) -> Result<VerifyView, Failure> {
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot verify the topic", topic, &error);
    let client = session.client()?;
    let mut check = NumberCheck::new();
    let before = bounds(&client, topic).await?;
    let total = before
        .values()
        .map(|(start, end)| end.saturating_sub(*start));
    let total = total.sum();
    let reader = client
        .reader(topic)
        .start(Start::Earliest)
        .follow(false)
        .max_bytes_in_flight(BYTES_IN_FLIGHT)
        .build();
    let mut reader = reader.await.map_err(failed)?;
    let mut view = VerifyView {
        target: reader.topic().to_owned(),
        kind: "topic".to_owned(),
        clean: true,
        ..VerifyView::default()
    };
    let mut progress = Progress::new(session.output, format!("reading {topic}"), Some(total));
    let mut records = 0;
    let mut ends: BTreeMap<u32, u64> = BTreeMap::new();
    loop {
        match reader.next().await {
            Ok(None) => break,
            Ok(Some(record)) => {
                records += 1;
                ends.insert(record.partition, record.offset.0 + 1);
                // What is wrong is in the report at the end.
                let _ = check.check(&record);
                progress.at(records);
            }
            Err(error) => judge(&error, &reader, &mut view).map_err(failed)?,
        }
    }
    drop(progress);
    view.records = Some(records);
    view.bytes = reader.stats().bytes;
    let lost = reader.stats().offsets_lost;
    if lost > 0 {
        let words = format!("{lost} offsets were lost and given up by an operator");
        let target = view.target.clone();
        view.found("lost", target, words);
    }
    // Logs may have been trimmed while they were read.
    for (partition, (start, _)) in bounds(&client, topic).await? {
        if start > 0 {
            check.trimmed(partition);
        }
    }
    view.read = before
        .into_iter()
        .map(|(partition, (start, end))| ReadView {
            partition,
            first_offset: start,
            end_offset: ends.get(&partition).map_or(end, |read| end.max(*read)),
        })
        .collect();
    report(&check, &mut view);
    Ok(view)
}

/// First offset of each partition, and the one behind its last.
async fn bounds(client: &Client, topic: &str) -> Result<BTreeMap<u32, (u64, u64)>, Failure> {
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot verify the topic", topic, &error);
    let admin = client.admin();
    let partitions = admin
        .describe_topic(topic)
        .await
        .map_err(failed)?
        .partitions;
    let mut found = BTreeMap::new();
    for partition in 0..partitions {
        let bounds = admin
            .offsets(topic, partition, None)
            .await
            .map_err(failed)?;
        found.insert(partition, (bounds.start.0, bounds.end.0));
    }
    Ok(found)
}

/// Damage and gaps are findings, after which reading goes on with what is left.
fn judge(
    error: &hulse_sdk::Error,
    reader: &Reader,
    view: &mut VerifyView,
) -> Result<(), hulse_sdk::Error> {
    if let Some(gap) = error.gap() {
        let object = format!("{}, partition {}", reader.topic(), gap.partition);
        view.found("gap", object, error.to_string());
        return Ok(());
    }
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Invalid => {
            view.found("damage", reader.topic(), error.to_string());
            Ok(())
        }
        _ => Err(error.clone()),
    }
}

fn report(check: &NumberCheck, view: &mut VerifyView) {
    let report = check.report();
    let numbered = report.records - report.unnumbered;
    view.numbered = Some(numbered);
    view.streams = Some(report.streams as u64);
    view.missing = Some(report.missing);
    view.duplicates = Some(report.duplicates);
    view.out_of_order = Some(report.out_of_order);
    view.trimmed = report
        .trimmed
        .iter()
        .map(|gone| TrimmedView {
            producer: gone.producer.to_string(),
            partition: gone.partition,
            first: gone.numbers.start,
            end: gone.numbers.end,
        })
        .collect();
    view.clean &= report.is_clean();
    for finding in &report.findings {
        let (kind, partition) = match finding {
            NumberFinding::Missing { partition, .. } => ("missing", *partition),
            NumberFinding::Duplicate { partition, .. } => ("duplicate", *partition),
            NumberFinding::OutOfOrder { partition, .. } => ("order", *partition),
            NumberFinding::Malformed { at } => ("damage", at.partition),
            _ => ("damage", 0),
        };
        let object = format!("{}, partition {partition}", view.target);
        view.found(kind, object, finding.to_string());
    }
    if !report.complete {
        let target = view.target.clone();
        view.found(
            "damage",
            target,
            "there were too many producers or holes to look at all of them",
        );
    }
}
