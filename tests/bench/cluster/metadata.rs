//! What topics, partitions and ledgers take in etcd, as brokers and bookies write them, and one pass of the audit over them.

use std::path::Path;

use bookie_metadata::{Versioned, list_all};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use hulse_proto::id::TopicId;
use hulse_proto::ledger::{LEDGER_PREFIX, LedgerMetadata};
use hulse_sdk::{Client, Record};
use tokio::runtime::Runtime;

use super::super::audit::{Asked, one_pass};
use super::super::disk::incompressible;
use super::super::etcd::PREFIX;
use super::super::table::Table;
use super::cell::Cell;

/// Topics of four partitions each, with one record in each partition.
const TOPICS: u32 = 250;
const PARTITIONS: u32 = 4;
/// One more topic, and about how many ledgers each of its partitions gets.
const ROLLED: &str = "rolled";
const LEDGERS: usize = 40;
/// A ledger of this length goes on in the next one.
const ROLL: (&str, &str) = ("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB");
const FILES: (&str, &str) = ("HULSE_BOOKIE__LOG_FILE_SIZE", "64MiB");
/// What a million ledgers may take, MB.
const MEGABYTES: f64 = 300.0;
const AT_ONCE: usize = 16;

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let cell = Cell::start(folder, runtime, (3, 1), &[ROLL, FILES])?;
    let client = cell.client()?;
    let (rows, rolled) = runtime.block_on(async {
        fill(&client).await?;
        let rolled = client.admin().describe_topic(ROLLED).await?;
        anyhow::Ok((list_all(&cell.etcd.store()?, "").await?, rolled.id))
    })?;
    let topics = sum(rows.iter().filter(|row| row.key.starts_with("topic/")));
    let (long, short): (Vec<&Versioned>, Vec<&Versioned>) = rows
        .iter()
        .filter(|row| topic_of(row).is_some())
        .partition(|row| topic_of(row) == Some(rolled));
    let partitions = |rows: &[&Versioned]| {
        let keys = rows.iter().filter(|row| row.key.starts_with("part/"));
        keys.count()
    };
    let short_bytes = sum(short.iter().copied()).1 as f64 / partitions(&short).max(1) as f64;
    table.row(
        "metadata of a topic; of a partition with one record",
        &format!(
            "{:.0} B; {short_bytes:.0} B",
            topics.1 as f64 / topics.0.max(1) as f64
        ),
        &format!(
            "{} topics, {} partitions with a ledger each",
            topics.0,
            partitions(&short)
        ),
        "-",
        "-",
    );
    let ledgers = long.iter().filter(|row| row.key.starts_with(LEDGER_PREFIX));
    let (count, of_keys) = sum(ledgers.copied());
    let chains = long.iter().filter(|row| row.key.starts_with("chain/"));
    let of_chains = sum(chains.copied()).1;
    let per_ledger = (of_keys + of_chains) as f64 / count.max(1) as f64;
    table.row(
        "metadata per ledger",
        &format!("{per_ledger:.0} B: {per_ledger:.0} MB for a million, extrapolated"),
        &format!(
            "{count} ledgers in {} partitions; its own key and value {:.0} B, the rest in the chains",
            partitions(&long),
            of_keys as f64 / count.max(1) as f64
        ),
        "-",
        &format!("at most {MEGABYTES:.0} MB for a million; `cargo bench -- million` makes them"),
    );
    audit(&cell, table)
}

/// Rows, and bytes of their keys and values as etcd has them.
fn sum<'a>(rows: impl Iterator<Item = &'a Versioned>) -> (usize, usize) {
    rows.fold((0, 0), |(count, bytes), row| {
        (
            count + 1,
            bytes + PREFIX.len() + row.key.len() + row.value.len(),
        )
    })
}

/// Whose partition's the row is.
fn topic_of(row: &Versioned) -> Option<TopicId> {
    if row.key.starts_with(LEDGER_PREFIX) {
        let ledger = LedgerMetadata::decode(&row.value).ok()?;
        return Some(ledger.partition.topic);
    }
    let (kind, rest) = row.key.split_once('/')?;
    let topic = rest.split('/').next()?;
    match kind {
        "part" | "chain" => topic.parse().ok().map(TopicId),
        _ => None,
    }
}

fn audit(cell: &Cell, table: &mut Table) -> anyhow::Result<()> {
    let pass = one_pass(&cell.etcd.url(), Asked::Registered)?;
    table.row(
        &format!("one pass of the audit over {} ledgers", pass.ledgers),
        &format!("{:.0?}, at most {:.1} MB", pass.took, pass.peak),
        &format!(
            "{:.1} MB before it; three bookies over the network; {} findings",
            pass.before, pass.findings
        ),
        &format!(
            "{:.0} ledgers/s",
            pass.ledgers as f64 / pass.took.as_secs_f64()
        ),
        "-",
    );
    Ok(())
}

async fn fill(client: &Client) -> anyhow::Result<()> {
    let topics = stream::iter(0..TOPICS).map(|number| async move {
        let name = format!("topic-{number}");
        client.admin().create_topic(&name, PARTITIONS).await?;
        write(client, &name, 1, 100).await
    });
    topics.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    client.admin().create_topic(ROLLED, PARTITIONS).await?;
    write(client, ROLLED, 2 * LEDGERS, 600 << 10).await
}

/// So many records of so many bytes in each partition.
async fn write(client: &Client, topic: &str, count: usize, bytes: usize) -> anyhow::Result<()> {
    let producer = client.producer(topic).build().await?;
    let value = bytes::Bytes::from(incompressible(bytes));
    for _ in 0..count {
        for partition in 0..PARTITIONS {
            let record = Record::new(value.clone()).partition(partition);
            // Failures of dropped tickets are returned by flush.
            drop(producer.send(record).await?);
        }
        producer.flush().await?;
    }
    producer.close().await?;
    Ok(())
}
