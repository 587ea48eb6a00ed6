//! A thousand partitions over two brokers, one of which is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use hulse_sdk::{Producer, Record};
use tokio::runtime::Runtime;

use super::super::server::processor_seconds;
use super::super::table::Table;
use super::cell::Cell;

const TOPIC: &str = "many";
const PARTITIONS: u32 = 1_000;
/// Of the broker that is left.
const LOOK_UPS: &str = "hulse_requests_total{api=\"Lookup.Resolve\",code=\"OK\"}";

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let mut cell = Cell::start(folder, runtime, (3, 2), &[])?;
    let client = cell.client()?;
    let producer = runtime.block_on(async {
        client.admin().create_topic(TOPIC, PARTITIONS).await?;
        anyhow::Ok(client.producer(TOPIC).build().await?)
    })?;
    let first = runtime.block_on(one_in_each(&producer))?;
    let usual = runtime.block_on(one_in_each(&producer))?;
    let victim = runtime.block_on(cell.owner(&client, TOPIC, 0))?;
    let lost = cell.brokers[victim].metric("hulse_partitions_open")?;
    let heir = 1 - victim;
    // Nobody may have asked it yet.
    let look_ups = |cell: &Cell| cell.brokers[heir].metric(LOOK_UPS).unwrap_or_default();
    let before = (look_ups(&cell), processor_seconds(std::process::id())?);
    let killed = cell.brokers[victim].kill()?;
    let served = runtime.block_on(one_in_each(&producer))?;
    let after = (look_ups(&cell), processor_seconds(std::process::id())?);
    table.row(
        &format!("{PARTITIONS} partitions over 2 brokers, {lost:.0} of them of one that is killed: all are served after"),
        &format!("{:.2?}", served[served.len() - 1] - killed),
        &format!(
            "lease 3 s; the first of them after {:.2?}; a record in each without a kill {:.0?}, at first {:.2?}",
            served[served.len() - lost as usize] - killed,
            took(&usual),
            took(&first)
        ),
        "-",
        "at most 10 s",
    );
    table.note(&format!(
        "until then the client asked {:.0} times where partitions are, and used {:.1} processor seconds",
        after.0 - before.0,
        after.1 - before.1
    ));
    runtime.block_on(producer.close())?;
    Ok(())
}

fn took(answers: &[Instant]) -> Duration {
    answers[answers.len() - 1] - answers[0]
}

/// One record with a key in each partition; when it began and when each was answered, sorted.
async fn one_in_each(producer: &Producer) -> anyhow::Result<Vec<Instant>> {
    let mut answers = vec![Instant::now()];
    let mut tickets = Vec::new();
    for partition in 0..PARTITIONS {
        let record = Record::new("value").key(partition.to_string());
        tickets.push(producer.send(record.partition(partition)).await?);
    }
    let answered = tickets.into_iter().map(|ticket| async move {
        ticket.await?;
        anyhow::Ok(Instant::now())
    });
    let answered = futures::future::join_all(answered).await;
    answers.extend(answered.into_iter().collect::<Result<Vec<_>, _>>()?);
    answers.sort_unstable();
    Ok(answers)
}
