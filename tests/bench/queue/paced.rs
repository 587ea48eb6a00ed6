//! At a pace: how long a record is on its way, and its ack; and handlers that take their time.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{QueueConsumer, QueueMessage, Record};
use tokio::runtime::Runtime;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::support::{PATIENCE, RECORD_BYTES, client, fill, percentiles, share};
use crate::latency::echo_round_trip;
use crate::server::Server;
use crate::table::Table;

const RATE: usize = 10_000;
const SECONDS: usize = 5;
const CONSUMERS: usize = 10;
/// Records are sent so often, a few at a time.
const TICK: Duration = Duration::from_millis(2);
/// Of one handler.
const WORK: Duration = Duration::from_millis(5);
/// Handlers run for about so long.
const HANDLED: Duration = Duration::from_secs(2);

/// Times from `send` to a consumer, and from `ack` to its receipt.
#[derive(Default)]
struct Times {
    there: Vec<Duration>,
    receipts: Vec<Duration>,
}

pub(super) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let _server = Server::start(folder, "off")?;
    let mut times = runtime.block_on(paced())?;
    let echo = echo_round_trip()?;
    let mut row = |what: &str, times: &mut [Duration], goal: &str| {
        let (p50, p99) = percentiles(times);
        table.row(
            &format!("{what} at {RATE} records/s, {CONSUMERS} consumers, sync off"),
            &format!("p50 {p50:.1?}, p99 {p99:.1?}"),
            &format!("TCP echo on loopback {echo:.0?}"),
            &format!("{:.1}", p50.as_secs_f64() / echo.as_secs_f64()),
            goal,
        );
    };
    row("QUEUE end to end", &mut times.there, "p99 at most 10 ms");
    row(
        "QUEUE ack receipt",
        &mut times.receipts,
        "p99 at most 20 ms",
    );
    Ok(())
}

async fn paced() -> anyhow::Result<Times> {
    client()?.admin().create_topic("paced", 1).await?;
    let (times, began) = (Arc::new(Mutex::new(Times::default())), Instant::now());
    let mut consumers = Vec::new();
    for number in 0..CONSUMERS {
        let consumer = share("paced", &format!("c{number}"), false, 200).await?;
        tokio::spawn(time_each(consumer.clone(), times.clone(), began));
        consumers.push(consumer);
    }
    let producer = client()?.producer("paced").build().await?;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let each = RATE * TICK.as_millis() as usize / 1_000;
    for _ in 0..RATE * SECONDS / each {
        ticks.tick().await;
        for _ in 0..each {
            let mut value = vec![7; RECORD_BYTES];
            let now = began.elapsed().as_nanos() as u64;
            value[..8].copy_from_slice(&now.to_le_bytes());
            drop(producer.send(Record::new(Bytes::from(value))).await?);
        }
    }
    producer.close().await?;
    let all = || {
        times
            .lock()
            .is_ok_and(|times| times.receipts.len() >= RATE * SECONDS)
    };
    let done = async {
        while !all() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, done).await?;
    for consumer in consumers {
        consumer.close().await?;
    }
    let mut times = times
        .lock()
        .map_err(|_| anyhow::anyhow!("a consumer panicked"))?;
    Ok(std::mem::take(&mut *times))
}

async fn time_each(consumer: QueueConsumer, times: Arc<Mutex<Times>>, began: Instant) {
    while let Ok(Some(message)) = consumer.next().await {
        let now = began.elapsed();
        let value = message.value.as_ref().and_then(|value| value.first_chunk());
        let sent = Duration::from_nanos(value.map_or(0, |value| u64::from_le_bytes(*value)));
        let receipt = consumer.ack(&message);
        let times = times.clone();
        tokio::spawn(async move {
            let outcome = receipt.await;
            if let (Ok(()), Ok(mut times)) = (outcome, times.lock()) {
                times.there.push(now.saturating_sub(sent));
                times.receipts.push(began.elapsed().saturating_sub(now));
            }
        });
    }
}

pub(super) fn handlers(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let mut single = 0.0;
    for consumers in [1, 5, 50] {
        let _server = Server::start(folder, "off")?;
        let ideal = consumers as f64 / WORK.as_secs_f64();
        let records = (ideal * HANDLED.as_secs_f64()) as usize;
        let took = runtime.block_on(handled(consumers, records))?;
        let rate = records as f64 / took.as_secs_f64();
        single = if consumers == 1 { rate } else { single };
        table.row(
            &format!("QUEUE, {consumers} consumers with handlers of 5 ms"),
            &format!("{rate:.0} records/s, {:.1} times one", rate / single),
            &format!("handlers alone {ideal:.0} records/s"),
            &format!("{:.2}", rate / ideal),
            "0.90",
        );
    }
    Ok(())
}

/// Each consumer handles one record after the other.
async fn handled(consumers: usize, records: usize) -> anyhow::Result<Duration> {
    fill("slow", 1, records, 0).await?;
    let mut all = Vec::new();
    for number in 0..consumers {
        // Few: what waits for one consumer is not another's.
        all.push(share("slow", &format!("c{number}"), false, 4).await?);
    }
    let left = Arc::new(tokio::sync::Semaphore::new(0));
    let began = Instant::now();
    for consumer in &all {
        let (consumer, done) = (consumer.clone(), left.clone());
        tokio::spawn(async move {
            let handler = |_: Arc<QueueMessage>| async {
                tokio::time::sleep(WORK).await;
                done.add_permits(1);
                Ok::<_, String>(())
            };
            consumer.handle(1, handler).await
        });
    }
    let all_done = left.acquire_many(u32::try_from(records)?);
    drop(timeout(PATIENCE, all_done).await??);
    let took = began.elapsed();
    for consumer in all {
        consumer.close().await?;
    }
    Ok(took)
}
