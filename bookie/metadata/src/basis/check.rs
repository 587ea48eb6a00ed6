//! Limits of a request, the same for every store.

use std::collections::BTreeSet;

use crate::store::{ListRequest, MetadataError, Op, TXN_OPS_MAX, Txn, VALUE_BYTES_MAX};

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// Most bytes of keys and values in one transaction; etcd refuses requests above 1.5 MiB (storage.md Z2).
pub const TXN_BYTES_MAX: usize = 1 << 20;

fn invalid(why: String) -> MetadataError {
    MetadataError::Invalid { why }
}

/// Checks one key.
pub(crate) fn key(key: &str) -> Result<(), MetadataError> {
    if key.is_empty() {
        return Err(invalid("the key is empty".to_owned()));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(invalid(format!(
            "a key of {} bytes is longer than {KEY_BYTES_MAX}",
            key.len()
        )));
    }
    if !key.is_ascii() {
        return Err(invalid(format!("the key {key:?} is not ASCII")));
    }
    Ok(())
}

/// Checks a transaction.
pub(crate) fn txn(txn: &Txn) -> Result<(), MetadataError> {
    let parts = txn.compares.len() + txn.ops.len();
    if parts > TXN_OPS_MAX {
        return Err(invalid(format!(
            "{parts} compares and operations are more than {TXN_OPS_MAX}"
        )));
    }
    for compare in &txn.compares {
        key(compare.key())?;
    }
    let mut written = BTreeSet::new();
    let mut bytes = 0;
    for op in &txn.ops {
        key(op.key())?;
        bytes += op.key().len();
        if !written.insert(op.key()) {
            return Err(invalid(format!("two operations on the key {:?}", op.key())));
        }
        if let Op::Put { key, value, .. } = op {
            if value.len() > VALUE_BYTES_MAX {
                return Err(invalid(format!(
                    "the value of {key:?} has {} bytes, more than {VALUE_BYTES_MAX}",
                    value.len()
                )));
            }
            bytes += value.len();
        }
    }
    if bytes > TXN_BYTES_MAX {
        return Err(invalid(format!(
            "{bytes} bytes in one transaction are more than {TXN_BYTES_MAX}"
        )));
    }
    Ok(())
}

/// Checks a listing.
pub(crate) fn list(request: &ListRequest) -> Result<(), MetadataError> {
    if request.limit == 0 {
        return Err(invalid("the limit of a page is 0".to_owned()));
    }
    Ok(())
}
