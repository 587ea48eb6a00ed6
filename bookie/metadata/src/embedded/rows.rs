//! Rows in redb tables.
//!
//! | table | key | value |
//! |---|---|---|
//! | `keys` | key, compared bytewise | version u64 LE, lease u64 LE (0: none), value |
//! | `leased` | key | lease u64 |
//! | `meta` | `format`, `revision`, `boot` | u64 |

use bytes::Bytes;
use redb::{ReadableTable, Table, TableDefinition};

use crate::basis::apply::Rows;
use crate::store::{LeaseId, Revision, Versioned};

/// Rows.
pub(super) const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");
/// Keys that are bound to a lease.
pub(super) const LEASED: TableDefinition<'_, &str, u64> = TableDefinition::new("leased");
/// Facts about the file.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// Bytes before the value.
const HEAD_BYTES: usize = 16;

/// Why a row could not be had.
#[derive(Debug)]
pub(super) enum RowError {
    /// redb failed.
    Redb(redb::Error),
    /// The row makes no sense.
    Damaged(String),
}

impl<E: Into<redb::Error>> From<E> for RowError {
    fn from(error: E) -> Self {
        Self::Redb(error.into())
    }
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(key: &str, bytes: &[u8]) -> Result<Versioned, RowError> {
    let damaged = || RowError::Damaged(format!("row of key {key:?} has {} bytes", bytes.len()));
    let (version, rest) = bytes.split_first_chunk::<8>().ok_or_else(damaged)?;
    let (lease, value) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
    let lease = u64::from_le_bytes(*lease);
    Ok(Versioned {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value),
        version: Revision(u64::from_le_bytes(*version)),
        lease: (lease != 0).then_some(LeaseId(lease)),
    })
}

fn encode(row: &Versioned) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + row.value.len());
    bytes.extend_from_slice(&row.version.0.to_le_bytes());
    bytes.extend_from_slice(&row.lease.map_or(0, |lease| lease.0).to_le_bytes());
    bytes.extend_from_slice(&row.value);
    bytes
}

/// The tables of a write transaction.
pub(super) struct Tables<'t> {
    /// [`KEYS`].
    pub(super) keys: Table<'t, &'static str, &'static [u8]>,
    /// [`LEASED`].
    pub(super) leased: Table<'t, &'static str, u64>,
}

impl Rows for Tables<'_> {
    type Error = RowError;

    fn get(&mut self, key: &str) -> Result<Option<Versioned>, RowError> {
        match self.keys.get(key)? {
            Some(bytes) => decode(key, bytes.value()).map(Some),
            None => Ok(None),
        }
    }

    fn put(&mut self, row: &Versioned, before: Option<&Versioned>) -> Result<(), RowError> {
        self.keys.insert(row.key.as_str(), encode(row).as_slice())?;
        match row.lease {
            Some(lease) => {
                self.leased.insert(row.key.as_str(), lease.0)?;
            }
            None if before.is_some_and(|row| row.lease.is_some()) => {
                self.leased.remove(row.key.as_str())?;
            }
            None => {}
        }
        Ok(())
    }

    fn delete(&mut self, before: &Versioned) -> Result<(), RowError> {
        self.keys.remove(before.key.as_str())?;
        if before.lease.is_some() {
            self.leased.remove(before.key.as_str())?;
        }
        Ok(())
    }
}
