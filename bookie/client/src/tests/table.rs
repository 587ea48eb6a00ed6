//! A metadata store without time or futures, and values to put into it.

use std::collections::BTreeMap;

use bookie_metadata::{Compare, Op, Revision, Txn, TxnOutcome, Versioned};
use bytes::Bytes;
use hulse_proto::id::{EntryId, FenceToken, Incarnation, NodeName};
use hulse_proto::ledger::{Fragment, LedgerMetadata, LedgerState, Member, Quorums};
use uuid::Uuid;

use super::new_log;

/// Versioned keys.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: BTreeMap<String, Versioned>,
    revision: u64,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<Versioned> {
        self.rows.get(key).cloned()
    }

    pub(crate) fn put(&mut self, key: &str, value: Bytes) {
        let ops = vec![Op::put(key, value)];
        self.txn(Txn {
            compares: Vec::new(),
            ops,
        });
    }

    pub(crate) fn txn(&mut self, txn: Txn) -> TxnOutcome {
        let holds = txn.compares.iter().all(|compare| {
            let found = self.rows.get(compare.key());
            match compare {
                Compare::Absent(_) => found.is_none(),
                Compare::Exists(_) => found.is_some(),
                Compare::Version(_, version) => found.is_some_and(|row| row.version == *version),
            }
        });
        if !holds {
            let current = txn.compares.iter().map(|compare| self.get(compare.key()));
            return TxnOutcome::Conflict {
                current: current.collect(),
            };
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        for op in txn.ops {
            match op {
                Op::Put { key, value, lease } => {
                    let row = Versioned {
                        key: key.clone(),
                        value,
                        version: revision,
                        lease,
                    };
                    self.rows.insert(key, row);
                }
                Op::Delete { key } => {
                    self.rows.remove(&key);
                }
            }
        }
        TxnOutcome::Committed { revision }
    }
}

/// Member number `index`.
pub(crate) fn member(index: usize) -> Member {
    Member {
        bookie: NodeName::new(&format!("b{index}")).unwrap(),
        incarnation: Incarnation(Uuid::from_u128(100 + index as u128)),
    }
}

/// An open log ledger on members 0..E.
pub(crate) fn open_metadata(ensemble: u32, write: u32, ack: u32) -> LedgerMetadata {
    let new = new_log(0);
    LedgerMetadata {
        kind: new.kind,
        partition: new.partition,
        owner_epoch: new.owner_epoch,
        quorums: Quorums {
            ensemble,
            write,
            ack,
        },
        state: LedgerState::Open,
        recovery_token: FenceToken(0),
        fragments: vec![Fragment {
            first: EntryId(0),
            ensemble: (0..ensemble as usize).map(member).collect(),
        }],
        base_offset: new.base_offset,
        writer_nonce: [5; 16],
        recovery_nonce: [0; 16],
        repair_nonce: [0; 16],
        tier: None,
        intents: Vec::new(),
        closed: None,
        degraded: Vec::new(),
        loss: None,
        created_at: 0,
    }
}
