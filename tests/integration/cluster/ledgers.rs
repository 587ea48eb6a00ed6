//! The ledger client of this process against bookies that are other processes.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::{
    AppendError, ClientConfig, LedgerClient, LedgerWriter, NewLedger, RegisteredBookies, WriterEnd,
};
use bookie_metadata::cell::{CellSettings, ensure_cell};
use bookie_metadata::{EtcdOptions, EtcdStore, MetadataStore, Txn};
use bookie_transport::{RemoteBookie, RemoteConfig, TcpConnect};
use bytes::Bytes;
use hulse_proto::bookie::{BookieCalls, ReadClass};
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::id::{CellId, EntryId, NodeName, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, LedgerState, Quorums};
use hulse_proto::time::{TimestampMs, WallClock};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::processes::Cluster;

const PORT: u16 = 17_800;
const QUORUMS: Quorums = Quorums {
    ensemble: 3,
    write: 3,
    ack: 2,
};

struct Noon;

impl WallClock for Noon {
    fn now_ms(&self) -> TimestampMs {
        1_700_000_000_000
    }
}

pub(super) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

pub(super) fn store(cluster: &Cluster) -> Arc<dyn MetadataStore> {
    let options = EtcdOptions::new([cluster.etcd.url()], "hulse/");
    Arc::new(EtcdStore::new(options).unwrap())
}

pub(super) async fn client(cluster: &Cluster, seed: u8) -> LedgerClient {
    let store = store(cluster);
    let wanted = CellSettings {
        quorums: QUORUMS,
        group_shards: 64,
        transaction_shards: 64,
    };
    let cell = ensure_cell(&*store, wanted, CellId(Uuid::from_u128(1)), 0);
    let cell = cell.await.unwrap().cell;
    let dial = |name: &NodeName, endpoint: &str| {
        let config = RemoteConfig::default();
        let remote = RemoteBookie::new(name.clone(), endpoint, config, Arc::new(TcpConnect));
        Arc::new(remote) as Arc<dyn BookieCalls>
    };
    let bookies = RegisteredBookies::start(Arc::clone(&store), Box::new(dial));
    LedgerClient::new(
        cell,
        ClientConfig::new(QUORUMS),
        store,
        Arc::new(bookies.await.unwrap()),
        Arc::new(Noon),
        [seed; 32],
    )
}

fn entry(offset: u64) -> NewEntry {
    let envelope = Envelope {
        kind: EntryKind::Data,
        append_time: 0,
        running_max_timestamp: 0,
        batches: Vec::new(),
    };
    NewEntry {
        class: EntryClass::Data,
        first_offset: Offset(offset),
        offset_span: 1,
        record_count: 1,
        envelope: envelope.encode(),
        body: vec![Bytes::from(format!("entry {offset:01000}"))],
    }
}

/// Appends entries `range`, some at a time; each must be confirmed.
pub(super) async fn fill(writer: &LedgerWriter, range: std::ops::Range<u64>) {
    let all: Vec<u64> = range.collect();
    for some in all.chunks(20) {
        let appends: Vec<_> = some
            .iter()
            .map(|offset| writer.append(entry(*offset)))
            .collect();
        for append in appends {
            append.await.unwrap();
        }
    }
}

pub(super) async fn open(client: &LedgerClient) -> LedgerWriter {
    let new = NewLedger {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(Uuid::from_u128(9)),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(0),
    };
    client.create(new, |_| Txn::default()).await.unwrap()
}

/// Reads a closed ledger from its beginning and compares every entry; how many there were.
pub(super) async fn read_all(client: &LedgerClient, writer: &LedgerWriter) -> u64 {
    let ledger = writer.ledger();
    let (metadata, _) = client.describe(ledger).await.unwrap().unwrap();
    let end = metadata.closed.unwrap().end;
    let reader = client.reader(ledger, metadata);
    let mut next = EntryId(0);
    while next < end {
        let found = reader.read(next, end, 1 << 20, ReadClass::CatchUp).await;
        for found in found.unwrap() {
            let expected = entry(next.0).body.concat();
            assert_eq!(found.header().entry, next);
            assert_eq!(found.body(), expected);
            next = next.next();
        }
    }
    end.0
}

#[test]
fn ledger_outlives_its_bookies_and_its_writer() {
    let Some(mut cluster) = Cluster::start(PORT, 3) else {
        return;
    };
    let runtime = runtime();
    let client_of_writer = runtime.block_on(client(&cluster, 1));
    let writer = runtime.block_on(open(&client_of_writer));
    runtime.block_on(fill(&writer, 0..200));
    // Killed in the middle: entries are under way to it.
    let (writer, ()) = runtime.block_on(async {
        let filling = tokio::spawn(async move {
            fill(&writer, 200..2_000).await;
            writer
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.bookies[1].kill();
        (filling.await.unwrap(), ())
    });
    assert_eq!(writer.confirmed_end(), EntryId(2_000));
    cluster.bookies[1].start();

    let other = runtime.block_on(client(&cluster, 2));
    let closed = runtime.block_on(other.recover(writer.ledger(), Txn::default()));
    let closed = closed.unwrap();
    assert_eq!(closed.state, LedgerState::Closed);
    assert_eq!(closed.closed.unwrap().end, EntryId(2_000));
    assert_eq!(closed.loss, None);
    let late = runtime.block_on(writer.append(entry(2_000)));
    // A fenced bookie tells it, or metadata, where it looked for the restarted one's sake.
    let ended = matches!(
        late,
        Err(AppendError::Fenced { .. } | AppendError::Ended(WriterEnd::MetadataChanged { .. }))
    );
    assert!(ended, "{late:?}");

    assert_eq!(runtime.block_on(read_all(&other, &writer)), 2_000);
    // One that always had everything is away now: the others have it, or one of them alone what the killed one missed.
    cluster.bookies[0].kill();
    assert_eq!(runtime.block_on(read_all(&other, &writer)), 2_000);
    cluster.bookies[0].start();
    drop(writer);
    cluster.stop();
}

#[test]
fn frozen_bookie_stops_nobody_and_is_heard_again() {
    let Some(cluster) = Cluster::start(PORT + 40, 3) else {
        return;
    };
    let runtime = runtime();
    let client = runtime.block_on(client(&cluster, 1));
    let writer = runtime.block_on(open(&client));
    runtime.block_on(fill(&writer, 0..100));
    cluster.bookies[2].signal("-STOP");
    let began = std::time::Instant::now();
    runtime.block_on(fill(&writer, 100..500));
    // Longer than its lease, and than the silence after which its connection is given up.
    std::thread::sleep(Duration::from_secs(8).saturating_sub(began.elapsed()));
    runtime.block_on(fill(&writer, 500..600));
    cluster.bookies[2].signal("-CONT");
    runtime.block_on(fill(&writer, 600..1_000));
    runtime.block_on(writer.close(Txn::default())).unwrap();
    assert_eq!(runtime.block_on(read_all(&client, &writer)), 1_000);
    cluster.stop();
}
