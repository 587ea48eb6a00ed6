//! A cell in memory.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::testing::FaultyStore;
use bookie_metadata::{MemoryStore, MetadataStore};
use bookie_transport::testing::Loopback;
use bytes::Bytes;
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::id::{CellId, Incarnation, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, Quorums};
use uuid::Uuid;

use crate::testing::{FixedClock, MemoryBookie, StaticDirectory};
use crate::{ClientConfig, LedgerClient, NewLedger};

/// Body bytes of [`data`].
const ENTRY_BYTES: usize = 16;

/// With `FAR` each bookie is behind a pipe, and called through the transport.
pub(crate) struct Cluster<const FAR: bool> {
    pub(crate) cell: CellId,
    pub(crate) store: FaultyStore<MemoryStore>,
    pub(crate) bookies: Vec<Arc<MemoryBookie>>,
    pub(crate) config: ClientConfig,
}

impl<const FAR: bool> Cluster<FAR> {
    pub(crate) fn new(count: usize, ensemble: u32, write: u32, ack: u32) -> Self {
        let cell = CellId(Uuid::from_u128(7));
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        let bookies = (0..count)
            .map(|index| {
                let incarnation = Incarnation(Uuid::from_u128(100 + index as u128));
                let metadata: Arc<dyn MetadataStore> = store.store();
                MemoryBookie::start(cell, &format!("b{index}"), incarnation, Some(metadata))
            })
            .collect();
        let mut config = ClientConfig::new(Quorums {
            ensemble,
            write,
            ack,
        });
        config.add_timeout = Duration::from_secs(4);
        config.answer_timeout = Duration::from_secs(1);
        config.read_timeout = Duration::from_secs(1);
        Self {
            cell,
            store,
            bookies,
            config,
        }
    }

    pub(crate) fn client(&self, seed: u8) -> LedgerClient {
        LedgerClient::new(
            self.cell,
            self.config.clone(),
            Arc::new(self.store.clone()),
            Arc::new(self.directory()),
            Arc::new(FixedClock(1_000)),
            [seed; 32],
        )
    }
}

impl<const FAR: bool> Cluster<FAR> {
    fn directory(&self) -> StaticDirectory {
        if !FAR {
            return StaticDirectory::of(&self.bookies);
        }
        let bookies = self.bookies.iter();
        bookies.fold(StaticDirectory::new(), |directory, bookie| {
            let member = bookie.member().clone();
            let loopback = Loopback::start(&member.bookie, bookie.clone());
            directory.with(member, loopback.remote)
        })
    }
}

pub(crate) fn new_log(base: u64) -> NewLedger {
    NewLedger {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(Uuid::from_u128(1)),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(base),
    }
}

/// An entry of one record at `offset`; the body tells it from others.
pub(crate) fn data(offset: u64, mark: u8) -> NewEntry {
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
        body: vec![Bytes::from(vec![mark; ENTRY_BYTES])],
    }
}
