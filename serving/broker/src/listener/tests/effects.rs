//! What a dry run of a change of a topic costs, however large the topic is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate};
use hulse_proto::error::Reason;
use hulse_proto::time::WallClock;
use hulse_proto::wire::v1;
use tokio::time::{Instant, sleep};

use super::consumer::{create, earliest, store};
use super::world::World;
use crate::backlogs::{BacklogLimits, QuotaAction};
use crate::listener::effects::Rules;
use crate::retention::Limits;
use crate::testing::MemoryBroker;

fn rules(bytes: u64) -> Rules {
    Rules {
        retention: Limits {
            time: None,
            bytes: Some(bytes),
        },
        backlog: BacklogLimits {
            bytes: None,
            time: None,
            action: QuotaAction::Hold,
        },
    }
}

/// What is opened goes on opening when nobody waits any more: so a look that took too long begins no more of it.
#[tokio::test(start_paused = true)]
async fn dry_run_on_very_many_partitions_that_open_slowly_opens_no_more_than_it_waits_for() {
    let memory = MemoryBroker::default();
    let front = memory.front(|_| {});
    MemoryBroker::follow(&front).await;
    let name = "t".parse().unwrap();
    let topic = front.topics().create(&name, 2_000).await.unwrap();
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = asked.clone();
    memory.metadata.choose(move |call| match call {
        Call::Get(key) if key.starts_with("part/") => {
            seen.lock().unwrap().insert(key.to_owned());
            Fate::Silent(Duration::from_secs(3))
        }
        _ => Fate::Pass,
    });
    let began = Instant::now();
    let effects = front.effects(&topic, rules(1)).await;
    assert!(began.elapsed() < Duration::from_secs(12), "{began:?}");
    assert_eq!(effects.len(), 2_000);
    let faults = effects.iter().filter_map(|effect| effect.fault.as_ref());
    let late = faults.filter(|fault| fault.reason == Reason::PartitionLoading.as_str());
    assert!(late.count() > 1_900);
    sleep(Duration::from_secs(60)).await;
    let opened = asked.lock().unwrap().len();
    assert!(
        opened <= 64,
        "{opened} partitions were opened for one question"
    );
}

/// Whether one or fifty keep old records, their age is looked for once.
#[tokio::test]
async fn dry_run_with_many_subscriptions_reads_no_more_than_with_one() {
    let world = World::with(|config| config.tail_cache_bytes = 0).await;
    let topic = world.topic("t", 1).await;
    create(&world, "t", "s0", Some(earliest())).await.unwrap();
    for _ in 0..8 {
        store(&world, &topic, 4).await;
    }
    let wall = &world.memory.wall;
    wall.set(wall.now_ms() + 60_000);
    let request = v1::UpdateTopicRequest {
        name: "t".to_owned(),
        backlog_ms: Some(10_000),
        backlog_action: Some(v1::BacklogAction::Evict as i32),
        dry_run: true,
        ..Default::default()
    };
    let look = async || {
        let before = world.bookie.reads();
        let answer = world.admin().update_topic(request.clone()).await.unwrap();
        let reads = world.bookie.reads() - before;
        (answer.into_inner().effect.swap_remove(0).loss, reads)
    };
    let (one, with_one) = look().await;
    assert_eq!((one.len(), one[0].records), (1, 32));
    assert!(with_one > 0);
    for number in 1..50 {
        let name = format!("s{number}");
        create(&world, "t", &name, Some(earliest())).await.unwrap();
    }
    let (many, with_many) = look().await;
    assert_eq!(many.len(), 50);
    assert!(many.iter().all(|loss| loss.records == 32), "{many:?}");
    assert!(
        with_many <= with_one,
        "{with_many} reads, {with_one} with one"
    );
}
