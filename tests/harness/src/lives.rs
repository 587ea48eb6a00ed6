//! The keys that leases would keep: which bookies and brokers live, as metadata have it. A node that is down, or stands still, is seen
//! so a while later; and while metadata are silent nothing of it changes (ARCHITECTURE D6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::wire::metadata::Node;
use prost::Message as _;
use tokio::time::sleep;

use crate::broker::Cluster;
use crate::world::World;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// So many looks in a row must find a node down.
const MISSED_MAX: u32 = 8;

/// What is known of one node.
#[derive(Default)]
struct Seen {
    missed: u32,
    /// As it stands in metadata.
    written: Option<Node>,
}

/// Keeps the keys of bookies, and of the brokers of a cluster, until it is dropped.
pub async fn keep(world: Arc<World>, cluster: Arc<Cluster>) {
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    loop {
        if !world.is_silent() {
            for (key, node) in bookies(&world).into_iter().chain(brokers(&cluster)) {
                let known = seen.entry(key.clone()).or_default();
                look(&world, key, node, known).await;
            }
        }
        sleep(LOOK).await;
    }
}

/// `None`: it does not run.
type Found = (String, Option<Node>);

fn bookies(world: &World) -> Vec<Found> {
    let found = world.bookies.iter().map(|bookie| {
        let mode = match bookie.is_writable() {
            true => "normal",
            false => "readonly",
        };
        let node = bookie.is_up().then(|| Node {
            endpoint: format!("{}:1", bookie.name()),
            mode: mode.to_owned(),
            ..Node::default()
        });
        (format!("node/bookie/{}", bookie.name()), node)
    });
    found.collect()
}

fn brokers(cluster: &Cluster) -> Vec<Found> {
    let found = cluster.brokers().into_iter().map(|broker| {
        let name = broker.name().to_owned();
        let node = broker.process.is_running().then(|| Node {
            boot_uuid: broker.boot.as_bytes().to_vec().into(),
            endpoint: Cluster::endpoint(&name),
            mode: "normal".to_owned(),
            ..Node::default()
        });
        (format!("node/broker/{name}"), node)
    });
    found.collect()
}

async fn look(world: &World, key: String, node: Option<Node>, known: &mut Seen) {
    let op = match node {
        Some(node) => {
            known.missed = 0;
            if known.written.as_ref() == Some(&node) {
                return;
            }
            let op = Op::put(key, node.encode_to_vec());
            known.written = Some(node);
            op
        }
        None => {
            known.missed += 1;
            if known.missed < MISSED_MAX || known.written.take().is_none() {
                return;
            }
            Op::Delete { key }
        }
    };
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![op],
    };
    let done = world.store.txn(txn).await;
    done.expect("the store itself never errs");
}
