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

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! golden {
        ($path:literal) => {
            &include_bytes!(concat!("../../", $path))[..]
        };
    }

    /// Rows of version 1, byte for byte, not made by this code (`proto/golden/make.py`).
    #[test]
    fn rows_of_version_1_are_read_and_written() {
        let row = |key: &str, value: &'static [u8], version, lease: Option<u64>| Versioned {
            key: key.to_owned(),
            value: Bytes::from_static(value),
            version: Revision(version),
            lease: lease.map(LeaseId),
        };
        let topic = golden!("../../proto/golden/v1/topic");
        let node = golden!("../../proto/golden/v1/node");
        for (bytes, row) in [
            (
                golden!("golden/v1/row"),
                row("topic/a/b/c", topic, 71, None),
            ),
            (
                golden!("golden/v1/row_leased"),
                row("node/bookie/b", node, 72, Some(9)),
            ),
        ] {
            assert_eq!(decode(&row.key, bytes).ok(), Some(row.clone()));
            assert_eq!(encode(&row), bytes);
            for cut in 0..HEAD_BYTES {
                assert!(matches!(
                    decode(&row.key, &bytes[..cut]),
                    Err(RowError::Damaged(_))
                ));
            }
        }
    }
}
