//! Many subscriptions of one topic: what one more costs, and what they cost the producer.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use hulse_sdk::{NewSubscription, Record, Start, SubscriptionType};
use tokio::runtime::Runtime;

use super::support::{RECORD_BYTES, client};
use crate::disk::incompressible;
use crate::server::Server;
use crate::table::Table;

const SUBSCRIPTIONS: usize = 10_000;
/// Calls under way at once.
const CALLS: usize = 16;
/// Records of one run.
const RECORDS: usize = 100_000;

pub(super) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let server = Server::start(folder, "off")?;
    let alone = runtime.block_on(produce())?;
    let resident = server.resident()?;
    let took = runtime.block_on(subscribe())?;
    let grown = server.resident()? - resident;
    let beside = runtime.block_on(produce())?;
    table.row(
        &format!("produce 1 KiB beside {SUBSCRIPTIONS} subscriptions of the topic"),
        &format!("{beside:.0} records/s"),
        &format!("without them {alone:.0} records/s"),
        &format!("{:.2}", beside / alone),
        "0.95",
    );
    table.note(&format!(
        "made at {:.0}/s; {:.1} KB of memory for each",
        SUBSCRIPTIONS as f64 / took.as_secs_f64(),
        grown * 1e3 / SUBSCRIPTIONS as f64
    ));
    Ok(())
}

async fn produce() -> anyhow::Result<f64> {
    let producer = client()?.producer("wide").build().await?;
    let value = Bytes::from(incompressible(RECORD_BYTES));
    let began = Instant::now();
    for _ in 0..RECORDS {
        drop(producer.send(Record::new(value.clone())).await?);
    }
    producer.close().await?;
    Ok(RECORDS as f64 / began.elapsed().as_secs_f64())
}

async fn subscribe() -> anyhow::Result<Duration> {
    let (admin, began) = (client()?.admin(), Instant::now());
    let made = stream::iter(0..SUBSCRIPTIONS).map(|number| {
        let admin = &admin;
        async move {
            let new = NewSubscription {
                name: format!("s{number}"),
                topic: "wide".to_owned(),
                kind: SubscriptionType::Queue,
                start: Start::Latest,
                hold: None,
                sharing: None,
                ttl: None,
            };
            admin.create_subscription(new).await
        }
    });
    let made: Vec<_> = made.buffer_unordered(CALLS).collect().await;
    for one in made {
        one?;
    }
    Ok(began.elapsed())
}
