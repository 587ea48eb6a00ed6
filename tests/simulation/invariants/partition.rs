//! A short history of a partition that the tests of this folder break at each of its steps, and what must hold at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::list_all;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState, Quorums};
use hulse_proto::mutant::Mutant;
use hulse_proto::wire::Message;
use hulse_proto::wire::metadata::ChainChunk;
use tests_harness::{BrokerSizes, Cluster, Manner, Producer, World, WorldSetup, runtime};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::scene::USUAL;
use crate::partition::finish;

/// The name of the chain of records.
const LOG: &str = "log";
/// Nothing of these histories takes longer, in virtual time.
const STUCK: Duration = Duration::from_secs(200);

/// Two brokers over three bookies; ledgers are rolled every few batches.
pub async fn cluster(quorums: Quorums) -> Arc<Cluster> {
    mutated(quorums, None).await
}

/// The same with a rule switched off.
pub async fn mutated(quorums: Quorums, mutant: Option<Mutant>) -> Arc<Cluster> {
    let world = Arc::new(World::new(WorldSetup {
        seed: 11,
        whole_trace: false,
        quorums,
        bookies: quorums.ensemble,
        mutant,
    }));
    world.start_bookies().await;
    let sizes = BrokerSizes {
        roll_bytes: 700,
        roll_age: Duration::from_secs(3_600),
        tail_bytes: 0,
    };
    Cluster::start(&world, sizes)
}

/// An idempotent producer of so many batches.
pub fn produce(cluster: &Arc<Cluster>, number: u32, batches: u32) -> JoinHandle<()> {
    let manner = Manner {
        number,
        idempotent: true,
        batches,
        pause_ms: 25,
        gives_up: false,
        echoes: false,
        strays: false,
    };
    tokio::spawn(Producer::new(cluster, manner).run())
}

/// Waits for a producer.
pub async fn all_sent(cluster: &Cluster, producer: JoinHandle<()>, case: &str) {
    let ended = timeout(STUCK, producer).await;
    assert!(
        matches!(ended, Ok(Ok(()))),
        "{case}: STUCK\n{}",
        cluster.world.trace.text()
    );
}

/// Heals the world, reads everything back and judges it, and the chains.
pub async fn judge(cluster: &Arc<Cluster>, case: &str) {
    cluster.world.heal().await;
    let run = finish(cluster).await;
    assert!(
        run.violations.is_empty(),
        "{case}\n{}\n{:#?}",
        run.text,
        run.violations
    );
    let chains = Chains::load(&cluster.world).await;
    let wrong = chains.wrong();
    assert!(
        wrong.is_empty(),
        "{case}\n{}\n{wrong:#?}\n{chains:#?}",
        cluster.world.trace.text()
    );
}

/// The partition's chains and ledgers, as metadata have them.
#[derive(Debug)]
pub struct Chains {
    links: BTreeMap<&'static str, Vec<(LedgerId, u64)>>,
    ledgers: BTreeMap<LedgerId, LedgerMetadata>,
}

impl Chains {
    /// Reads them.
    pub async fn load(world: &World) -> Self {
        let mut links: BTreeMap<&'static str, Vec<(LedgerId, u64)>> = BTreeMap::new();
        let found = list_all(&*world.store, "chain/").await;
        for item in found.expect("memory answers") {
            let kind = match item.key.contains("/log/") {
                true => LOG,
                false => "state",
            };
            let chunk = ChainChunk::decode(&item.value[..]).expect("a broker wrote it");
            let chunk = chunk.links.iter();
            let chunk = chunk.map(|link| (LedgerId(link.ledger), link.base_offset));
            links.entry(kind).or_default().extend(chunk);
        }
        let ledgers = world.store.ledgers().into_iter();
        let ledgers = ledgers.map(|(number, metadata)| (LedgerId(number), metadata));
        Self {
            links,
            ledgers: ledgers.collect(),
        }
    }

    /// How many log ledgers are linked.
    pub fn logs(&self) -> usize {
        self.links.get(LOG).map_or(0, Vec::len)
    }

    /// What is wrong with them: nothing is linked twice, nothing that is linked is gone or marked, no log ledger lives unlinked, and
    /// each base follows from the ledger before (P3).
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut linked = BTreeSet::new();
        for (kind, links) in &self.links {
            let mut next = None;
            for (ledger, base) in links {
                if !linked.insert(*ledger) {
                    wrong.push(format!("{ledger} is linked twice"));
                }
                match self.ledgers.get(ledger) {
                    None => wrong.push(format!("{ledger} is linked, and gone")),
                    Some(found) if found.state == LedgerState::Deleting => {
                        wrong.push(format!("{ledger} is linked, and marked as deleted"));
                    }
                    Some(found) => {
                        let right = next.is_none_or(|next| next == *base);
                        if *kind == LOG && !(right && found.base_offset.0 == *base) {
                            wrong.push(format!(
                                "{ledger} begins at {base}, says {}, and {next:?} is next",
                                found.base_offset
                            ));
                        }
                        next = found.closed.map(|closed| base + closed.offset_span);
                    }
                }
            }
        }
        for (ledger, metadata) in &self.ledgers {
            if metadata.kind == LedgerKind::Log && !linked.contains(ledger) {
                wrong.push(format!("log ledger {ledger} lives and is not linked"));
            }
        }
        wrong
    }
}

/// Waits a while in virtual time.
pub async fn rest(ms: u64) {
    sleep(Duration::from_millis(ms)).await;
}

#[test]
fn short_history_rolls_and_leaves_chains_in_order() {
    runtime().block_on(async {
        let cluster = cluster(USUAL).await;
        let producer = produce(&cluster, 0, 12);
        all_sent(&cluster, producer, "calm").await;
        let chains = Chains::load(&cluster.world).await;
        assert!(chains.logs() >= 3, "{chains:#?}");
        judge(&cluster, "calm").await;
    });
}
