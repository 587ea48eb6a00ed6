//! Our keys in etcd: a prefix before each, and ranges of them.

use crate::store::{ListRequest, MetadataError, Revision, Versioned};
use hulse_proto::wire::etcd;

/// Adds and removes the cell's prefix.
#[derive(Debug, Clone)]
pub(super) struct Keyspace(String);

impl Keyspace {
    pub(super) fn new(prefix: String) -> Self {
        Self(prefix)
    }

    /// The key as etcd has it.
    pub(super) fn inside(&self, key: &str) -> Vec<u8> {
        [self.0.as_bytes(), key.as_bytes()].concat()
    }

    /// The first key of a page, and the end of its prefix.
    pub(super) fn range(&self, request: &ListRequest) -> (Vec<u8>, Vec<u8>) {
        let (from, end) = self.prefix(&request.prefix);
        let first = match &request.after {
            Some(after) if after.as_str() >= request.prefix.as_str() => {
                let mut next = self.inside(after);
                next.push(0);
                next
            }
            _ => from,
        };
        (first, end)
    }

    /// The range of all keys that begin with `prefix`.
    pub(super) fn prefix(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        let from = self.inside(prefix);
        let mut end = from.clone();
        // Keys are ASCII, so the last byte has a next one. An empty end would mean the one key only; `\0` means "to the last".
        match end.last_mut() {
            Some(last) => *last += 1,
            None => return (vec![0], vec![0]),
        }
        (from, end)
    }

    /// A row as callers know it.
    ///
    /// # Errors
    /// `Corrupt` for a key that is not under the prefix, or that is none of ours.
    pub(super) fn row(&self, row: etcd::KeyValue) -> Result<Versioned, MetadataError> {
        Ok(Versioned {
            key: self.outside(&row.key)?,
            value: row.value,
            version: Revision(unsigned(row.mod_revision)?),
            lease: super::request::lease(row.lease),
        })
    }

    /// The key as callers know it.
    pub(super) fn outside(&self, key: &[u8]) -> Result<String, MetadataError> {
        std::str::from_utf8(key)
            .ok()
            .and_then(|key| key.strip_prefix(self.0.as_str()))
            .map(str::to_owned)
            .ok_or_else(|| MetadataError::Corrupt {
                why: format!(
                    "etcd answered the key {:?}, which is not under {:?}",
                    String::from_utf8_lossy(key),
                    self.0
                ),
            })
    }
}

/// A number that is never negative.
pub(super) fn unsigned(number: i64) -> Result<u64, MetadataError> {
    u64::try_from(number).map_err(|_| MetadataError::Corrupt {
        why: format!("etcd answered the number {number}"),
    })
}
