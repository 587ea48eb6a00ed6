//! A few dozen transactions and what must be there after them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::disk::Disk;
use crate::embedded::{EmbeddedOptions, EmbeddedStore, OpenError, engine};
use crate::store::{
    Compare, LeaseId, MetadataError, MetadataStore, Op, Revision, Txn, TxnOutcome, list_all,
};

/// Transactions in the workload.
pub(super) const TXNS: usize = 36;
/// Attempts of one transaction.
const TRIES_MAX: usize = 8;

/// What is stored, and as of when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Values by key; whether a lease is bound.
    pub(super) rows: BTreeMap<String, (Bytes, bool)>,
    /// The last revision.
    pub(super) revision: Revision,
}

impl Facts {
    /// Follows a transaction that took effect.
    pub(super) fn apply(&mut self, txn: &Txn) {
        for op in &txn.ops {
            match op {
                Op::Put { key, value, lease } => {
                    let row = (value.clone(), lease.is_some());
                    self.rows.insert(key.clone(), row);
                }
                Op::Delete { key } => {
                    self.rows.remove(key);
                }
            }
        }
        self.revision.0 += u64::from(!txn.ops.is_empty());
    }

    /// What the next boot leaves of it.
    pub(super) fn after_boot(&self) -> Self {
        let mut next = self.clone();
        next.rows.retain(|_, (_, leased)| !*leased);
        next.revision.0 += u64::from(next.rows.len() < self.rows.len());
        next
    }
}

/// Options of a test: the disk decides, and nothing ends the process.
pub(super) fn options() -> EmbeddedOptions {
    EmbeddedOptions {
        reopen_tries: 1,
        abort: || {},
        ..EmbeddedOptions::default()
    }
}

/// Bytes of a freshly formatted store.
pub(super) fn formatted() -> Vec<u8> {
    let disk = Disk::default();
    engine::format(Path::new("memory"), &disk).unwrap();
    disk.synced()
}

/// Opens the store on a disk.
pub(super) fn open(disk: &Disk) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::on_medium(Box::new(disk.clone()), &options())
}

/// What a store shows.
pub(super) async fn shown(store: &EmbeddedStore) -> Result<Facts, MetadataError> {
    let rows = list_all(store, "").await?;
    let revision = store
        .list(crate::store::ListRequest {
            prefix: String::new(),
            after: None,
            limit: 1,
            at: None,
        })
        .await?
        .revision;
    let rows = rows
        .into_iter()
        .map(|row| (row.key, (row.value, row.lease.is_some())))
        .collect();
    Ok(Facts { rows, revision })
}

/// The `n`-th transaction: several keys, values of all sizes, some bound to a lease.
pub(super) fn txn(n: usize, lease: LeaseId) -> Txn {
    let mut rng = StdRng::seed_from_u64(n as u64);
    let mut ops = Vec::new();
    for key in 0..rng.random_range(1..6) {
        let name = format!("key/{}{}", rng.random_range(0..4), key);
        if rng.random_bool(0.2) {
            ops.push(Op::Delete { key: name });
            continue;
        }
        let bytes = match rng.random_range(0..10) {
            0 => 20_000,
            1..4 => 2_000,
            _ => 40,
        };
        let fill = u8::try_from(n).unwrap();
        ops.push(Op::Put {
            key: name,
            value: Bytes::from(vec![fill; rng.random_range(0..bytes)]),
            lease: rng.random_bool(0.2).then_some(lease),
        });
    }
    Txn {
        compares: vec![Compare::Absent("never".to_owned())],
        ops,
    }
}

/// How a workload ended.
pub(super) struct Ran {
    /// After all answered transactions.
    pub(super) answered: Facts,
    /// The one whose outcome is unknown.
    pub(super) caught: Option<Txn>,
    /// Answers that said "certainly not written".
    pub(super) refused: usize,
}

/// Runs the workload on an empty store; stops at the first unknown outcome, or after an answer when told so.
pub(super) async fn run(store: &EmbeddedStore, stop: impl Fn() -> bool) -> Ran {
    let mut facts = Facts::default();
    let lease = store.grant_lease(Duration::from_secs(3600)).await.unwrap();
    let mut refused = 0;
    for n in 0..TXNS {
        let txn = txn(n, lease);
        let mut tries = 0;
        loop {
            match store.txn(txn.clone()).await {
                Ok(TxnOutcome::Committed { revision }) => {
                    facts.apply(&txn);
                    assert_eq!(revision, facts.revision);
                    break;
                }
                Err(MetadataError::OutcomeUnknown { .. }) => {
                    return Ran {
                        answered: facts,
                        caught: Some(txn),
                        refused,
                    };
                }
                Err(MetadataError::Unavailable { .. }) if tries < TRIES_MAX => refused += 1,
                other => panic!("transaction {n}: {other:?}"),
            }
            tries += 1;
        }
        if stop() {
            break;
        }
    }
    Ran {
        answered: facts,
        caught: None,
        refused,
    }
}
