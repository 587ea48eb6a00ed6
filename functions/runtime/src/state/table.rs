//! Committed state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::StateDelta;

/// What one row costs besides its bytes: two `Bytes` and its share of a tree node.
pub const ROW_OVERHEAD: usize = 64;

/// Rows of one table, by key.
pub type Table = BTreeMap<Bytes, Bytes>;

/// What a row weighs, bytes.
pub(super) fn weight(key: &Bytes, value: &Bytes) -> usize {
    ROW_OVERHEAD + key.len() + value.len()
}

/// The tables of a task as of its last committed epoch.
///
/// A clone shares the rows: it is how a snapshot is frozen. The first fold after it copies the index of a table, not the rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    tables: Vec<Arc<Table>>,
    bytes: usize,
}

impl State {
    /// Empty tables.
    pub fn new(tables: usize) -> Self {
        Self {
            tables: vec![Arc::default(); tables],
            bytes: 0,
        }
    }

    /// One table. Empty if there is none of this number.
    pub fn table(&self, number: usize) -> &Table {
        static EMPTY: Table = BTreeMap::new();
        self.tables.get(number).map_or(&EMPTY, Arc::as_ref)
    }

    /// How many tables there are.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// What all rows weigh, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows of all tables.
    pub fn rows(&self) -> usize {
        self.tables.iter().map(|table| table.len()).sum()
    }

    /// Folds a committed delta in. Deterministic. Changes of tables that do not exist are left out: whoever decodes deltas refuses
    /// them before.
    pub fn fold(&mut self, delta: StateDelta) {
        for (table, changes) in self.tables.iter_mut().zip(delta.tables) {
            if changes.is_empty() {
                continue;
            }
            let table = Arc::make_mut(table);
            for (key, value) in changes {
                let before = match value {
                    Some(value) => {
                        self.bytes += weight(&key, &value);
                        table.insert(key.clone(), value)
                    }
                    None => table.remove(&key),
                };
                self.bytes -= before.map_or(0, |before| weight(&key, &before));
            }
        }
    }
}
