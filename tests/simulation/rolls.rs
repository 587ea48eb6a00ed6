//! Why a log ledger is rolled besides its size and age, and what is looked at before one that rested is written to (storage.md W15, P2).

use std::sync::Arc;
use std::time::Duration;

use bookie_client::Standing;
use bookie_metadata::Txn;
use hulse_proto::error::{Fate, Reason};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState, Quorums};
use tests_harness::{
    BrokerSizes, Cluster, MetadataRates, PowerLoss, Process, SimBookie, World, runtime,
};
use tokio::time::{Instant, sleep};

use crate::full_disk::{Client, SINGLE, cell, log_ledgers, new, record, world};
use crate::scenarios::{REPLICATED, all_is_well, all_sent, producer};

/// The log ledger that is written to.
fn current(world: &World) -> LedgerMetadata {
    let ledgers = world.store.ledgers().into_iter();
    let open = ledgers
        .filter(|(_, found)| found.kind == LedgerKind::Log && found.state == LedgerState::Open);
    open.last().expect("there is one").1
}

fn member<'a>(world: &'a World, ledger: &LedgerMetadata, position: usize) -> &'a Arc<SimBookie> {
    let name = ledger.last_fragment().ensemble[position].bookie.clone();
    let mut bookies = world.bookies.iter();
    bookies
        .find(|bookie| bookie.name() == name.as_str())
        .expect("members are bookies of the world")
}

/// Lets the members of the ledger die one after the other, `times` times, each for long enough to be replaced.
async fn deaths(cluster: &Cluster, times: usize) {
    for round in 0..times {
        let world = &cluster.world;
        let bookie = member(world, &current(world), round % 3);
        bookie.hold_down(PowerLoss::Yes);
        sleep(Duration::from_millis(1_800)).await;
        bookie.start().await;
    }
}

#[test]
fn ledger_whose_ensemble_changes_all_the_time_is_rolled() {
    runtime().block_on(async {
        let cluster = cell(REPLICATED, 13).await;
        let sending = producer(&cluster, 0, 700, 120);
        sleep(Duration::from_millis(300)).await;
        deaths(&cluster, 10).await;
        all_sent(&cluster, sending).await;
        let (open, closed) = log_ledgers(&cluster.world);
        assert_eq!((open, closed), (1, 1), "rolled once, after eight changes");
        let fragments = cluster
            .world
            .store
            .ledgers()
            .into_iter()
            .filter_map(|(_, found)| {
                (found.state == LedgerState::Closed).then_some(found.fragments.len())
            });
        assert!(fragments.max().unwrap() <= 10);
        all_is_well(&cluster).await;
    });
}

/// A rolling restart of four bookies: every spare has failed in the ledger once, and is as good as before.
#[test]
fn ledger_that_used_up_its_spares_is_rolled() {
    runtime().block_on(async {
        let cluster = cell(REPLICATED, 4).await;
        let sending = producer(&cluster, 0, 300, 120);
        sleep(Duration::from_millis(300)).await;
        deaths(&cluster, 3).await;
        all_sent(&cluster, sending).await;
        let (_, closed) = log_ledgers(&cluster.world);
        assert!(closed > 0, "the ledger stays degraded for ever");
        all_is_well(&cluster).await;
    });
}

/// Pulsar #26074: an idle, empty ledger on bookies whose disks are gone.
#[test]
fn empty_ledger_on_replaced_bookies_is_found_out_and_rolled() {
    runtime().block_on(async {
        let world = world(REPLICATED, 3).await;
        let process = Process::new("owner");
        let client = world.client(&process);
        let create = client.create(new(LedgerKind::Log, 0), |_| Txn::default());
        let writer = create.await.unwrap();
        assert_eq!(client.verify(&writer).await, Standing::Good);
        for bookie in &world.bookies[..2] {
            bookie.replace(&*world.metadata(&process)).await;
            bookie.start().await;
        }
        let Standing::Gone(gone) = client.verify(&writer).await else {
            panic!("two members of three are gone")
        };
        assert_eq!(gone.len(), 2);
        let roll = client.roll(&writer, new(LedgerKind::Log, 0), |_, _| Txn::default());
        let next = roll.await.unwrap();
        assert_eq!(client.verify(&next).await, Standing::Good);
        next.append(record(0)).await.unwrap();
        world.silence();
        assert_eq!(client.verify(&next).await, Standing::Unknown);
        next.append(record(1)).await.unwrap();
        world.speak();
        let other = Process::new("another");
        let recover = world.client(&other);
        recover
            .recover(next.ledger(), Txn::default())
            .await
            .unwrap();
        assert_eq!(client.verify(&next).await, Standing::Lost);
        assert!(next.append(record(2)).await.is_err());
        let violations = world.violations.all();
        assert!(violations.is_empty(), "{violations:#?}");
    });
}

#[test]
fn rested_ledger_of_a_replaced_bookie_is_rolled_before_it_is_written_to() {
    runtime().block_on(async {
        let cluster = cell(REPLICATED, 4).await;
        let world = &cluster.world;
        let mut client = Client::new(&cluster);
        for _ in 0..5 {
            client.send(10).await.unwrap();
        }
        sleep(Duration::from_secs(90)).await;
        let bookie = member(world, &current(world), 1);
        bookie
            .replace(&*world.metadata(&Process::new("operator")))
            .await;
        bookie.start().await;
        let begun = Instant::now();
        client.send(10).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert_eq!(log_ledgers(world), (1, 1));
        // Nothing is to be found out when it rested in peace.
        sleep(Duration::from_secs(90)).await;
        client.send(10).await.unwrap();
        assert_eq!(log_ledgers(world), (1, 1));
        all_is_well(&cluster).await;
    });
}

#[test]
fn first_write_after_a_rest_goes_on_when_metadata_are_silent() {
    runtime().block_on(async {
        let cluster = cell(REPLICATED, 3).await;
        let mut client = Client::new(&cluster);
        client.send(10).await.unwrap();
        sleep(Duration::from_secs(90)).await;
        cluster.world.silence();
        let begun = Instant::now();
        client.send(10).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(2));
        let begun = Instant::now();
        client.send(10).await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(500));
        cluster.world.speak();
        all_is_well(&cluster).await;
    });
}

#[test]
fn owner_that_lost_its_partition_at_rest_sends_nothing_any_more() {
    runtime().block_on(async {
        let cluster = cell(REPLICATED, 3).await;
        let mut client = Client::new(&cluster);
        client.send(10).await.unwrap();
        let (old, handle) = cluster.route(false).await.unwrap();
        old.process.pause();
        cluster.prefer(1);
        client.send(10).await.unwrap();
        sleep(Duration::from_secs(90)).await;
        old.process.resume();
        let late = crate::full_disk::stray_batch();
        let answer = old.process.heard(handle.produce(late)).await.unwrap();
        let fault = answer.unwrap_err();
        assert_eq!(
            (fault.reason, fault.fate),
            (Reason::PartitionMoved, Fate::NotApplied),
            "{fault}"
        );
        assert!(handle.ended().is_some());
        all_is_well(&cluster).await;
    });
}

/// P2: nearly all ledgers of a long chain are closed, and looked at together.
#[test]
fn take_over_of_a_long_chain_takes_few_round_trips() {
    runtime().block_on(async {
        let sizes = BrokerSizes {
            roll_bytes: 100,
            roll_age: Duration::from_secs(3_600),
            tail_bytes: 0,
        };
        let quorums: Quorums = SINGLE;
        let cluster = Cluster::start(&world(quorums, 1).await, sizes);
        let mut client = Client::new(&cluster);
        for _ in 0..200 {
            client.send(100).await.unwrap();
        }
        let (_, closed) = log_ledgers(&cluster.world);
        assert!(closed > 150, "{closed}");
        cluster.world.set_metadata_rates(MetadataRates {
            unavailable: 0.0,
            unknown: 0.0,
            delay_max_ms: 20,
            late_max_ms: 0,
        });
        cluster.replace(0);
        let begun = Instant::now();
        let (_, handle) = cluster.route(false).await.expect("it opens in time");
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1_000), "{took:?}");
        assert_eq!(handle.offsets().high_watermark.0, 200);
        all_is_well(&cluster).await;
    });
}
