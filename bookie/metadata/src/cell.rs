//! The cell record: what all nodes of one cluster must agree on (ARCHITECTURE D4), at the key [`CELL_KEY`].
//!
//! The first node makes it by compare-and-set; every later one compares its own configuration with it and refuses to
//! start when they differ.

use prost::Message;

use hulse_proto::error::ErrorKind;
use hulse_proto::id::CellId;
use hulse_proto::ledger::Quorums;
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::metadata::Cell;

use crate::store::{Compare, MetadataError, MetadataStore, Op, Txn, TxnOutcome};

/// Where the record is.
pub const CELL_KEY: &str = "cell";
/// Format of the record that this release writes, and the newest it reads.
pub const CELL_FORMAT_VERSION: u32 = 1;
/// Attempts at most when answers are lost.
const ENSURE_TRIES_MAX: u32 = 8;

/// What a node's configuration says of the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellSettings {
    /// Copies of each entry.
    pub quorums: Quorums,
    /// Internal shards of group coordination.
    pub group_shards: u32,
    /// Internal shards of transaction coordination.
    pub transaction_shards: u32,
}

/// The record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellRecord {
    /// Identity of the cell.
    pub cell: CellId,
    /// What its nodes agree on.
    pub settings: CellSettings,
    /// When it was made, by the clock of the node that made it.
    pub created_at_ms: TimestampMs,
}

/// Why a node may not work in this cell.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// The configuration differs from the record.
    #[error(
        "this node is configured with {field} = {wanted}, but cell {cell} was made with {field} = {found}; set {field} to {found} on this node, or use another metadata store for a new cell"
    )]
    Disagrees {
        /// The cell.
        cell: CellId,
        /// What differs.
        field: &'static str,
        /// The node's value.
        wanted: u32,
        /// The cell's value.
        found: u32,
    },
    /// A newer release made it.
    #[error(
        "cell {cell} has format {found}, this release knows up to {CELL_FORMAT_VERSION}; start a newer release"
    )]
    NewerFormat {
        /// The cell.
        cell: CellId,
        /// Its format.
        found: u32,
    },
    /// The wanted quorums contradict each other.
    #[error(
        "quorums {0:?} are impossible; 1 <= ack quorum <= write quorum <= ensemble is required"
    )]
    Quorums(Quorums),
    /// The store did not answer as asked.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

impl CellError {
    /// What the caller should do, in the words all layers share.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Disagrees { .. } | Self::NewerFormat { .. } => ErrorKind::Conflict,
            Self::Quorums(_) => ErrorKind::Invalid,
            Self::Metadata(error) => error.kind(),
        }
    }
}

/// Reads the cell record, or makes it from `wanted` with the identity `new_uuid`.
///
/// Cancel-safe: a dropped call may have made the record; the next call finds it.
///
/// # Errors
/// [`CellError::Disagrees`] names the first field that differs; the record is as it was.
pub async fn ensure_cell(
    store: &dyn MetadataStore,
    wanted: CellSettings,
    new_uuid: CellId,
    now_ms: TimestampMs,
) -> Result<CellRecord, CellError> {
    if !wanted.quorums.valid() {
        return Err(CellError::Quorums(wanted.quorums));
    }
    let record = CellRecord {
        cell: new_uuid,
        settings: wanted,
        created_at_ms: now_ms,
    };
    let txn = Txn {
        compares: vec![Compare::Absent(CELL_KEY.to_owned())],
        ops: vec![Op::put(CELL_KEY, encode(&record))],
    };
    let mut last = None;
    for _ in 0..ENSURE_TRIES_MAX {
        if let Some(row) = store.get(CELL_KEY).await? {
            return agree(decode(row.value)?, wanted);
        }
        // The same bytes each time: of all attempts at most one takes effect, and the next read shows it.
        match store.txn(txn.clone()).await {
            Ok(TxnOutcome::Committed { .. }) => return Ok(record),
            Ok(TxnOutcome::Conflict { .. }) => {}
            Err(error @ MetadataError::OutcomeUnknown { .. }) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    let contended = MetadataError::Unavailable {
        why: "the cell record comes and goes".to_owned(),
    };
    Err(last.unwrap_or(contended).into())
}

/// Reads the cell record, linearizably; `None`: this store serves no cell yet, or no longer.
///
/// # Errors
/// [`CellError::NewerFormat`], or the store's.
pub async fn read_cell(store: &dyn MetadataStore) -> Result<Option<CellRecord>, CellError> {
    let row = store.get(CELL_KEY).await?;
    row.map(|row| decode(row.value)).transpose()
}

fn encode(record: &CellRecord) -> Vec<u8> {
    let settings = record.settings;
    Cell {
        cell_uuid: record.cell.to_bytes(),
        ensemble: settings.quorums.ensemble,
        write_quorum: settings.quorums.write,
        ack_quorum: settings.quorums.ack,
        group_shards: settings.group_shards,
        transaction_shards: settings.transaction_shards,
        format_version: CELL_FORMAT_VERSION,
        created_at_ms: record.created_at_ms,
    }
    .encode_to_vec()
}

fn decode(value: bytes::Bytes) -> Result<CellRecord, CellError> {
    let corrupt = |why: String| MetadataError::Corrupt {
        why: format!("the value of {CELL_KEY} is no cell record: {why}"),
    };
    let wire = Cell::decode(value).map_err(|error| corrupt(error.to_string()))?;
    let cell = CellId::from_slice(&wire.cell_uuid)
        .ok_or_else(|| corrupt(format!("identity of {} bytes", wire.cell_uuid.len())))?;
    if wire.format_version > CELL_FORMAT_VERSION {
        return Err(CellError::NewerFormat {
            cell,
            found: wire.format_version,
        });
    }
    let quorums = Quorums {
        ensemble: wire.ensemble,
        write: wire.write_quorum,
        ack: wire.ack_quorum,
    };
    if !quorums.valid() {
        return Err(corrupt(format!("{quorums:?}")).into());
    }
    Ok(CellRecord {
        cell,
        settings: CellSettings {
            quorums,
            group_shards: wire.group_shards,
            transaction_shards: wire.transaction_shards,
        },
        created_at_ms: wire.created_at_ms,
    })
}

fn agree(record: CellRecord, wanted: CellSettings) -> Result<CellRecord, CellError> {
    let found = record.settings;
    let fields = [
        ("ensemble", wanted.quorums.ensemble, found.quorums.ensemble),
        ("write_quorum", wanted.quorums.write, found.quorums.write),
        ("ack_quorum", wanted.quorums.ack, found.quorums.ack),
        ("group_shards", wanted.group_shards, found.group_shards),
        (
            "transaction_shards",
            wanted.transaction_shards,
            found.transaction_shards,
        ),
    ];
    match fields
        .into_iter()
        .find(|(_, wanted, found)| wanted != found)
    {
        Some((field, wanted, found)) => Err(CellError::Disagrees {
            cell: record.cell,
            field,
            wanted,
            found,
        }),
        None => Ok(record),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::MemoryStore;
    use crate::testing::{Fate, FaultyStore, Late};

    fn settings(ack: u32) -> CellSettings {
        CellSettings {
            quorums: Quorums {
                ensemble: 3,
                write: 3,
                ack,
            },
            group_shards: 64,
            transaction_shards: 50,
        }
    }

    fn id(n: u128) -> CellId {
        CellId(uuid::Uuid::from_u128(n))
    }

    #[tokio::test]
    async fn ensure_by_a_second_node_finds_the_first_one_s_record() {
        let store = MemoryStore::new();
        let made = ensure_cell(&store, settings(2), id(1), 5).await.unwrap();
        let found = ensure_cell(&store, settings(2), id(2), 6).await.unwrap();
        assert_eq!(made, found);
        assert_eq!((found.cell, found.created_at_ms), (id(1), 5));
    }

    #[tokio::test]
    async fn ensure_with_other_settings_is_refused_by_name() {
        let store = MemoryStore::new();
        ensure_cell(&store, settings(2), id(1), 5).await.unwrap();
        let error = ensure_cell(&store, settings(3), id(2), 6)
            .await
            .unwrap_err();
        let CellError::Disagrees {
            field,
            wanted,
            found,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*field, *wanted, *found), ("ack_quorum", 3, 2));
        assert!(error.to_string().contains("set ack_quorum to 2"), "{error}");
    }

    #[tokio::test]
    async fn ensure_with_impossible_quorums_is_refused() {
        let store = MemoryStore::new();
        let error = ensure_cell(&store, settings(4), id(1), 5).await;
        assert!(matches!(error, Err(CellError::Quorums(_))));
        assert_eq!(store.get(CELL_KEY).await.unwrap(), None);
    }

    #[tokio::test]
    async fn ensure_with_lost_answers_makes_one_record() {
        for fate in [
            Fate::UnknownCommitted,
            Fate::UnknownNever,
            Fate::UnknownLater(Late::AfterReads(1)),
            Fate::UnknownLater(Late::OnDemand),
        ] {
            let faulty = FaultyStore::new(Arc::new(MemoryStore::new()));
            faulty.plan_txns([fate]);
            let made = ensure_cell(&faulty, settings(2), id(1), 5).await.unwrap();
            faulty.land_all().await;
            let found = ensure_cell(&faulty, settings(2), id(2), 6).await.unwrap();
            assert_eq!(made, found, "{fate:?}");
        }
    }

    #[tokio::test]
    async fn ensure_on_a_damaged_record_is_refused() {
        let store = MemoryStore::new();
        let txn = Txn {
            compares: vec![],
            ops: vec![Op::put(CELL_KEY, &b"\xff"[..])],
        };
        store.txn(txn).await.unwrap();
        let error = ensure_cell(&store, settings(2), id(1), 5).await;
        assert!(matches!(
            error,
            Err(CellError::Metadata(MetadataError::Corrupt { .. }))
        ));
    }
}
