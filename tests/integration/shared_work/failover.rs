//! Case GR-06: a FAILOVER subscription delivers each record to one consumer.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::{Client, Start, SubscriptionConsumer, SubscriptionType};
use tokio::time::{sleep, timeout};

use super::super::cli::done;
use super::super::server::Server;
use super::super::subscriptions::{PATIENCE, backlog, client, send_batch};
use super::PORT;

async fn stand_by(client: &Client, name: &str) -> SubscriptionConsumer {
    let builder = client.consumer("jobs").subscription("f").name(name);
    let builder = builder.subscription_type(SubscriptionType::Failover);
    let builder = builder.start(Start::Earliest);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

/// Takes what comes until nothing does for a moment; acks all but the last `keeps`.
async fn take(consumer: &SubscriptionConsumer, keeps: usize, taken: &mut Vec<(u32, u64)>) {
    let mut got = Vec::new();
    while let Ok(record) = timeout(Duration::from_millis(700), consumer.receive()).await {
        let Some(record) = record.unwrap() else {
            break;
        };
        taken.push((record.partition, record.offset.0));
        got.push(record);
    }
    let acked = got.len().saturating_sub(keeps);
    for record in &got[..acked] {
        consumer.ack(record).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gr_06_each_record_of_a_failover_subscription_is_at_one_consumer() {
    const KEPT: usize = 5;
    let server = Server::start(PORT + 40);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "3"], "");
    let create = [
        "subs", "create", "jobs", "f", "--type", "failover", "--from", "start",
    ];
    done(&server, &create, "");
    // Names that sort the other way than they come.
    let mut here = vec![stand_by(&client, "B").await];
    for (round, name) in ["A", "C", "0", "Z"].into_iter().enumerate() {
        // Attach and send race.
        let (joined, ()) = tokio::join!(stand_by(&client, name), async {
            for _ in 0..10 {
                send_batch(&client, "jobs", 6).await;
            }
        });
        here.push(joined);
        let mut all: Vec<Vec<(u32, u64)>> = vec![Vec::new(); here.len()];
        for _ in 0..2 {
            for (consumer, taken) in here.iter().zip(&mut all) {
                take(consumer, 0, taken).await;
            }
        }
        let of: BTreeSet<_> = all.iter().flatten().copied().collect();
        let times: usize = all.iter().map(Vec::len).sum();
        assert!(of.len() >= 60, "round {round}: {} of 60 came", of.len());
        assert_eq!(
            times,
            of.len(),
            "round {round}: a record came to two consumers"
        );
        let mut active: Vec<u32> = here.iter().flat_map(|it| it.active_partitions()).collect();
        active.sort_unstable();
        assert_eq!(active, [0, 1, 2], "round {round}: one is active on each");
        // One that is active goes with records that it has not acknowledged: those, and no others, come again.
        send_batch(&client, "jobs", 60).await;
        let at = here
            .iter()
            .position(|it| !it.active_partitions().is_empty())
            .unwrap();
        let leaver = here.remove(at);
        let mut had = Vec::new();
        take(&leaver, KEPT, &mut had).await;
        drop(leaver.close().await.unwrap());
        let mut rest = Vec::new();
        for _ in 0..2 {
            for consumer in &here {
                take(consumer, 0, &mut rest).await;
            }
        }
        let again: BTreeSet<_> = rest.iter().filter(|it| had.contains(it)).copied().collect();
        let kept: BTreeSet<_> = had[had.len().saturating_sub(KEPT)..]
            .iter()
            .copied()
            .collect();
        assert_eq!(again, kept, "round {round}");
        let distinct: BTreeSet<_> = rest.iter().copied().collect();
        assert_eq!(distinct.len(), rest.len(), "round {round}: twice");
        until_no_backlog(&client).await;
    }
    for consumer in here {
        drop(consumer.close().await.unwrap());
    }
}

async fn until_no_backlog(client: &Client) {
    timeout(PATIENCE, async {
        while backlog(&client.admin(), "jobs", "f").await > 0 {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
}
