//! Partitions with many ledgers, made by the product's own code over bookies in memory, some of which refuse now and then so that
//! ledgers come to have several fragments.

use std::sync::Arc;

use bookie_client::testing::MemoryBookie;
use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::MetadataStore;
use bytes::Bytes;
use futures::StreamExt as _;
use hulse_proto::batch::{BatchBuilder, Compression, ProducerStamp, RecordRef};
use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    ReadRequest, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::entry::EntryClass;
use hulse_proto::id::{CellId, NodeName, PartitionId, ProducerId, TopicId};
use hulse_proto::ledger::Quorums;
use serving_broker::{BrokerConfig, Lease, PartitionHandle, Partitions, PartitionsConfig};
use uuid::Uuid;

use super::super::sink::{Bookies, SystemClock, member};

/// Bookies of the cell.
const BOOKIES: usize = 6;
/// A bookie refuses one ledger of so many from its second entry on.
const REFUSES_ONE_IN: u64 = 16;
/// Entries of a ledger; it rolls when they are there.
const ENTRIES: usize = 3;
/// Less than three entries of [`batch`] and more than two.
const ROLL_BYTES: u64 = 600;
/// Partitions of a topic.
const PER_TOPIC: u32 = 10;
/// Partitions at work at once.
pub(crate) const AT_ONCE: usize = 64;

/// Keeps what it is given in memory; refuses the data of some ledgers, as a bookie does whose disk fills up.
struct Moody {
    kept: Arc<MemoryBookie>,
    number: u64,
}

impl BookieCalls for Moody {
    fn add(&self, request: AddRequest) -> Call<()> {
        let header = request.entry.header();
        let draw = (header.ledger.0 ^ (self.number << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let refuses = (draw >> 32).is_multiple_of(REFUSES_ONE_IN);
        if refuses && header.entry.0 > 0 && header.class == EntryClass::Data {
            let why = "disk is nearly full".to_owned();
            return Box::pin(async { Err(BookieError::ReadOnly { why }) });
        }
        self.kept.add(request)
    }

    fn fence(&self, request: FenceRequest) -> Call<FenceAnswer> {
        self.kept.fence(request)
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        self.kept.recovery_read(request)
    }

    fn read(&self, request: ReadRequest) -> Call<Vec<StoredEntry>> {
        self.kept.read(request)
    }

    fn read_heads(&self, request: ReadRequest) -> Call<Vec<EntryHead>> {
        self.kept.read_heads(request)
    }

    fn delete(&self, to: Address) -> Call<()> {
        self.kept.delete(to)
    }
}

/// A cell whose metadata are in `store`.
pub(crate) struct Filled {
    store: Arc<dyn MetadataStore>,
    bookies: Vec<Arc<MemoryBookie>>,
}

impl Filled {
    pub(crate) fn new(store: Arc<dyn MetadataStore>) -> Self {
        let bookies = (0..BOOKIES).map(|number| {
            let member = member(number);
            MemoryBookie::start(cell(), member.bookie.as_str(), member.incarnation, None)
        });
        Self {
            store,
            bookies: bookies.collect(),
        }
    }

    /// From now on brokers start with this store.
    pub(crate) fn turn_to(&mut self, store: Arc<dyn MetadataStore>) {
        self.store = store;
    }

    /// A broker that has just started.
    pub(crate) fn broker(&self, boot: u128) -> anyhow::Result<Partitions> {
        let bookies = self.bookies.iter().zip(0..).map(|(kept, number)| {
            let moody = Moody {
                kept: kept.clone(),
                number,
            };
            let calls: Arc<dyn BookieCalls> = Arc::new(moody);
            (kept.member().clone(), calls)
        });
        let quorums = Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        };
        let client = LedgerClient::new(
            cell(),
            ClientConfig::new(quorums),
            self.store.clone(),
            Arc::new(Bookies(bookies.collect())),
            Arc::new(SystemClock),
            [boot as u8; 32],
        );
        let name = NodeName::new("hulse-broker-0")?;
        let mut config = BrokerConfig::new(name, "nowhere:1");
        config.ledger_roll_bytes = ROLL_BYTES;
        let parts = PartitionsConfig {
            metadata: self.store.clone(),
            client,
            clock: Arc::new(SystemClock),
            boot: Uuid::from_u128(boot),
            lease: Lease::none(),
        };
        Ok(Partitions::new(&config, parts))
    }
}

fn cell() -> CellId {
    CellId(Uuid::from_u128(1))
}

/// The partition of this number.
pub(crate) fn partition(number: u32) -> PartitionId {
    let topic = u128::from(number / PER_TOPIC) + (0x7e57_7e57_4000_8000 << 64);
    PartitionId {
        topic: TopicId(Uuid::from_u128(topic)),
        index: number % PER_TOPIC,
    }
}

/// Opens partitions `0..count`, many at once.
pub(crate) async fn open(broker: &Partitions, count: u32) -> anyhow::Result<Vec<PartitionHandle>> {
    let opened = futures::stream::iter(0..count)
        .map(|number| broker.open(partition(number)))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    Ok(opened.into_iter().collect::<Result<_, _>>()?)
}

/// Gives each partition so many ledgers more.
pub(crate) async fn grow(handles: &[PartitionHandle], ledgers: usize) -> anyhow::Result<()> {
    let grown = futures::stream::iter(handles)
        .map(|handle| grow_one(handle, ledgers))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    grown.into_iter().collect()
}

/// Gives one partition so many ledgers more, one after the other.
pub(crate) async fn grow_one(handle: &PartitionHandle, ledgers: usize) -> anyhow::Result<()> {
    let stored = handle.producer(producer()).await?;
    let first = stored.map_or(0, |(_, last)| last + 1);
    for sequence in (first..).take(ledgers * ENTRIES) {
        handle.produce(batch(sequence)?).await?;
    }
    Ok(())
}

fn producer() -> ProducerId {
    ProducerId(7)
}

/// One record of 100 bytes.
fn batch(sequence: i32) -> anyhow::Result<Bytes> {
    let mut builder = BatchBuilder::new(Compression::None)?;
    builder.push(&RecordRef {
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(&[b'x'; 100]),
        headers: &[],
    })?;
    Ok(builder.build(Some(ProducerStamp {
        id: producer(),
        epoch: 0,
        base_sequence: sequence,
    })))
}
