//! A cell in memory, for the tests of the crate.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_client::testing::{FixedClock, MemoryBookie, StaticDirectory};
use bookie_client::{
    BookieDirectory, Candidate, ClientConfig, LedgerClient, NewLedger, list_bookies,
};
use bookie_metadata::testing::FaultyStore;
use bookie_metadata::{BoxFuture, MemoryStore, MetadataError, MetadataStore, Op, Txn};
use bytes::Bytes;
use hulse_proto::bookie::BookieCalls;
use hulse_proto::entry::{EntryClass, NewEntry};
use hulse_proto::id::{
    CellId, EntryId, Incarnation, LedgerId, Offset, OwnerEpoch, PartitionId, TopicId,
};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, Member, Quorums, ledger_key};
use hulse_proto::wire::{Message as _, metadata as wire};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

use crate::Pace;
use crate::repair::{Hands, RepairLimits};

pub(crate) const CELL: CellId = CellId(Uuid::from_u128(7));

pub(crate) struct Cell {
    pub(crate) store: FaultyStore<MemoryStore>,
    pub(crate) bookies: Vec<Arc<MemoryBookie>>,
}

/// Calls of the memory bookies, placement by metadata.
struct Directory {
    calls: StaticDirectory,
    store: FaultyStore<MemoryStore>,
}

impl BookieDirectory for Directory {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        self.calls.calls(member)
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        Box::pin(async move {
            let listed = list_bookies(&self.store).await?;
            Ok(listed.into_iter().map(|listed| listed.candidate).collect())
        })
    }
}

impl Cell {
    /// Registered and running bookies `b0`, `b1`, …
    pub(crate) async fn new(count: usize) -> Self {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        let bookies = (0..count).map(|index| {
            let life = Incarnation(Uuid::from_u128(100 + index as u128));
            let metadata: Arc<dyn MetadataStore> = store.store();
            MemoryBookie::start(CELL, &format!("b{index}"), life, Some(metadata))
        });
        let cell = Self {
            bookies: bookies.collect(),
            store: store.clone(),
        };
        for index in 0..count {
            cell.register(index, wire::bookie::State::Active).await;
            cell.live(index, true).await;
        }
        cell
    }

    pub(crate) async fn put(&self, op: Op) {
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![op],
        };
        self.store.txn(txn).await.unwrap();
    }

    pub(crate) async fn register(&self, index: usize, state: wire::bookie::State) {
        let bookie = wire::Bookie {
            incarnation: self.member(index).incarnation.to_bytes(),
            state: state as i32,
            ..wire::Bookie::default()
        };
        self.put(Op::put(format!("bookie/b{index}"), bookie.encode_to_vec()))
            .await;
    }

    pub(crate) async fn live(&self, index: usize, live: bool) {
        let key = format!("node/bookie/b{index}");
        let node = wire::Node {
            mode: "normal".to_owned(),
            endpoint: format!("b{index}:1"),
            ..wire::Node::default()
        };
        self.put(match live {
            true => Op::put(key, node.encode_to_vec()),
            false => Op::Delete { key },
        })
        .await;
    }

    pub(crate) fn member(&self, index: usize) -> Member {
        self.bookies[index].member().clone()
    }

    pub(crate) fn directory(&self) -> Arc<dyn BookieDirectory> {
        Arc::new(Directory {
            calls: StaticDirectory::of(&self.bookies),
            store: self.store.clone(),
        })
    }

    pub(crate) fn client(&self) -> LedgerClient {
        let mut config = ClientConfig::new(Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        });
        config.add_timeout = Duration::from_secs(4);
        LedgerClient::new(
            CELL,
            config,
            Arc::new(self.store.clone()),
            self.directory(),
            Arc::new(FixedClock(1_000)),
            [3; 32],
        )
    }

    pub(crate) fn hands(&self) -> Hands {
        Hands {
            cell: CELL,
            metadata: Arc::new(self.store.clone()),
            bookies: self.directory(),
            pace: Pace::new(u64::MAX),
            limits: RepairLimits::default(),
            answer_timeout: Duration::from_secs(1),
            metadata_timeout: Duration::from_secs(5),
            read_bytes: 4096,
            rng: Mutex::new(ChaCha12Rng::seed_from_u64(4)),
        }
    }

    /// A closed ledger of so many entries.
    pub(crate) async fn closed(&self, entries: u64) -> LedgerId {
        self.closed_by(&self.client(), entries).await
    }

    /// The same, made by this client.
    pub(crate) async fn closed_by(&self, client: &LedgerClient, entries: u64) -> LedgerId {
        let new = NewLedger {
            kind: LedgerKind::Log,
            partition: PartitionId {
                topic: TopicId(Uuid::from_u128(5)),
                index: 0,
            },
            owner_epoch: OwnerEpoch(1),
            base_offset: Offset(0),
        };
        let writer = client.create(new, |_| Txn::default()).await.unwrap();
        for entry in 0..entries {
            let appended = writer.append(NewEntry {
                class: EntryClass::Data,
                first_offset: Offset(entry),
                offset_span: 1,
                record_count: 1,
                envelope: Bytes::from_static(b"envelope."),
                body: vec![Bytes::from(vec![entry as u8; 300])],
            });
            appended.await.unwrap();
        }
        client
            .recover(writer.ledger(), Txn::default())
            .await
            .unwrap();
        writer.ledger()
    }

    pub(crate) async fn metadata(&self, ledger: LedgerId) -> LedgerMetadata {
        let row = self.store.get(&ledger_key(ledger)).await.unwrap().unwrap();
        LedgerMetadata::decode(&row.value).unwrap()
    }

    pub(crate) fn index_of(&self, member: &Member) -> usize {
        self.bookies
            .iter()
            .position(|bookie| bookie.member() == member)
            .unwrap()
    }

    /// Names of the members of the last fragment.
    pub(crate) async fn ensemble(&self, ledger: LedgerId) -> BTreeSet<String> {
        let metadata = self.metadata(ledger).await;
        let members = metadata.last_fragment().ensemble.iter();
        members.map(|member| member.bookie.to_string()).collect()
    }

    /// Every entry is at every member of its fragment.
    pub(crate) async fn is_whole(&self, ledger: LedgerId) -> bool {
        let metadata = self.metadata(ledger).await;
        let end = metadata.closed.unwrap().end.0;
        (0..end).map(EntryId).all(|entry| {
            let mut members = metadata.fragment_of(entry).ensemble.iter();
            members.all(|member| {
                let bookie = &self.bookies[self.index_of(member)];
                bookie.ledgers().held(ledger, entry).is_some()
            })
        })
    }
}
