//! Storage.md §12, 10: the outcome of each transaction of a partition's life is unknown once, in each way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate, Late};
use bookie_metadata::{Op, Txn, list_all};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::mutant::Mutant;
use serving_broker::PartitionHandle;
use tests_harness::reader::read_all;
use tests_harness::{Cluster, SimBroker, runtime};

use super::partition::{Chains, all_sent, mutated, produce, rest};
use super::scene::{USUAL, finds};

/// Every way in which an outcome is not known.
const FATES: [Fate; 5] = [
    Fate::UnknownCommitted,
    Fate::UnknownNever,
    Fate::UnknownLater(Late::AfterReads(1)),
    Fate::UnknownLater(Late::AfterReads(3)),
    Fate::UnknownLater(Late::After(Duration::from_millis(1_200))),
];

/// What a transaction does, for a person and for the count of what was met.
fn describe(txn: &Txn) -> Option<String> {
    let mut words = Vec::new();
    for op in &txn.ops {
        let key = op.key();
        if key.starts_with("bookie/") || key.starts_with("node/") {
            return None;
        }
        let kind = key.split('/').next().unwrap_or_default();
        let what = match op {
            Op::Put { value, .. } if kind == "ledger" => match LedgerMetadata::decode(value) {
                Ok(metadata)
                    if metadata.state == LedgerState::Open && metadata.fragments.len() > 1 =>
                {
                    "changes ensemble".to_owned()
                }
                Ok(metadata) => format!("{:?}", metadata.state),
                Err(_) => "?".to_owned(),
            },
            Op::Put { .. } if kind == "chain" && key.contains("/log/") => "log".to_owned(),
            Op::Put { .. } if kind == "chain" => "state".to_owned(),
            Op::Put { .. } => "put".to_owned(),
            Op::Delete { .. } => "delete".to_owned(),
        };
        words.push(format!("{kind}:{what}"));
    }
    Some(words.join(" "))
}

/// A life: opened, written, rolled, its ensemble changed, taken over, stopped in good order, taken again, deleted. What was met.
async fn life(at: u64, fate: Fate, mutant: Option<Mutant>) -> Vec<String> {
    let case = format!("transaction {at}, {fate:?}");
    let cluster = mutated(USUAL, mutant).await;
    let met = Arc::new(Mutex::new(Vec::new()));
    let (count, seen) = (AtomicU64::new(0), met.clone());
    cluster.world.faults.choose(move |call| {
        let Call::Txn(txn) = call else {
            return Fate::Pass;
        };
        let Some(words) = describe(txn) else {
            return Fate::Pass;
        };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(words);
        match count.fetch_add(1, Ordering::Relaxed) == at {
            true => fate,
            false => Fate::Pass,
        }
    });
    let first = produce(&cluster, 0, 9);
    all_sent(&cluster, first, &case).await;
    // A take-over of a dead owner, and one of an owner that lives on.
    cluster.replace(0);
    cluster.prefer(1);
    let second = produce(&cluster, 1, 5);
    all_sent(&cluster, second, &case).await;
    cluster.prefer(0);
    let third = produce(&cluster, 2, 3);
    all_sent(&cluster, third, &case).await;
    // In good order, then once more.
    let owner = cluster.broker(0);
    owner.partitions.close_all().await;
    cluster.prefer(1);
    let fourth = produce(&cluster, 3, 2);
    all_sent(&cluster, fourth, &case).await;
    rest(2_500).await;
    cluster.world.faults.land_all().await;
    let chains = Chains::load(&cluster.world).await;
    let wrong = chains.wrong();
    assert!(
        wrong.is_empty(),
        "{case}\n{}\n{wrong:#?}\n{chains:#?}",
        cluster.world.trace.text()
    );
    judge_then_delete(&cluster, &case).await;
    let met = met.lock().unwrap_or_else(PoisonError::into_inner);
    met.clone()
}

async fn judge_then_delete(cluster: &Arc<Cluster>, case: &str) {
    for place in 0..2 {
        cluster.replace(place);
    }
    // The end of the history is read by a third broker, whose transactions count too.
    let Some((_, handle)) = route(cluster).await else {
        panic!("{case}: does not open\n{}", cluster.world.trace.text());
    };
    let log = read_all(cluster, &handle)
        .await
        .unwrap_or_else(|fault| panic!("{case}: {fault}"));
    let wrong = cluster.truth().check(&log);
    assert!(
        wrong.is_empty(),
        "{case}\n{}\n{wrong:?}",
        cluster.world.trace.text()
    );
    cluster.clone().delete().await;
    rest(12_000).await;
    cluster.world.faults.land_all().await;
    rest(12_000).await;
    for prefix in ["ledger/", "chain/"] {
        let left = list_all(&*cluster.world.store, prefix)
            .await
            .expect("memory answers");
        let keys: Vec<&str> = left.iter().map(|item| item.key.as_str()).collect();
        assert!(
            keys.is_empty(),
            "{case}: left {keys:?}\n{}",
            cluster.world.trace.text()
        );
    }
    let violations = cluster.world.violations.all();
    assert!(
        violations.is_empty(),
        "{case}\n{}\n{violations:#?}",
        cluster.world.trace.text()
    );
}

async fn route(cluster: &Arc<Cluster>) -> Option<(Arc<SimBroker>, PartitionHandle)> {
    for _ in 0..60 {
        if let Some(found) = cluster.route(false).await {
            return Some(found);
        }
        rest(200).await;
    }
    None
}

/// 10: "Metadata unknown outcome on each CAS: exactly-once effect, no deleted-but-linked ledger."
#[test]
fn unknown_outcome_of_each_transaction_takes_effect_exactly_once() {
    let calm = runtime().block_on(life(u64::MAX, Fate::Pass, None));
    println!("a life: {calm:#?}");
    for at in 0..calm.len() as u64 {
        for fate in FATES {
            runtime().block_on(life(at, fate, None));
        }
    }
}

/// A close that compares no version takes effect although another one was faster, when it lands late.
#[test]
fn close_without_its_version_takes_effect_where_it_must_not() {
    let late = Fate::UnknownLater(Late::After(Duration::from_millis(1_200)));
    let blind = Some(Mutant::CloseWithoutVersion);
    let found = (0..60).any(|at| finds(|| runtime().block_on(life(at, late, blind))));
    assert!(found, "a close without its version is not seen");
}
