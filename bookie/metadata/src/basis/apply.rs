//! The effect of one transaction on rows, whoever keeps them.
//!
//! # Invariants
//! 1. Everything is read before anything is written: a failing read leaves no trace.
//! 2. Compares come first: a transaction that conflicts is a conflict, also when it names an ended lease.

use crate::basis::history::Change;
use crate::store::{
    Compare, LeaseId, MetadataError, Op, Revision, Txn, TxnOutcome, Versioned, WatchEvent,
};

/// Rows by key.
pub(crate) trait Rows {
    /// Why a row could not be read or written.
    type Error;

    /// Reads a row.
    fn get(&mut self, key: &str) -> Result<Option<Versioned>, Self::Error>;

    /// Writes a row; `before` is what it was.
    fn put(&mut self, row: &Versioned, before: Option<&Versioned>) -> Result<(), Self::Error>;

    /// Removes a row that exists.
    fn delete(&mut self, before: &Versioned) -> Result<(), Self::Error>;
}

/// What a transaction did.
pub(crate) struct Applied {
    /// The answer to the caller.
    pub(crate) answer: Result<TxnOutcome, MetadataError>,
    /// Every changed key, in the order of the operations.
    pub(crate) changes: Vec<Change>,
    /// The last revision after it.
    pub(crate) revision: Revision,
}

/// Whether a compare holds for the key as it is.
pub(crate) fn holds(compare: &Compare, current: Option<&Versioned>) -> bool {
    match compare {
        Compare::Absent(_) => current.is_none(),
        Compare::Exists(_) => current.is_some(),
        Compare::Version(_, version) => current.is_some_and(|row| row.version == *version),
    }
}

/// Applies `txn`, which was checked, after revision `last`. A transaction without operations changes nothing and shows `last`.
pub(crate) fn apply<R: Rows>(
    rows: &mut R,
    txn: Txn,
    last: Revision,
    alive: impl Fn(LeaseId) -> bool,
) -> Result<Applied, R::Error> {
    let nothing = |answer| Applied {
        answer,
        changes: Vec::new(),
        revision: last,
    };
    let mut current = Vec::with_capacity(txn.compares.len());
    for compare in &txn.compares {
        current.push(rows.get(compare.key())?);
    }
    let all_hold = txn
        .compares
        .iter()
        .zip(&current)
        .all(|(compare, row)| holds(compare, row.as_ref()));
    if !all_hold {
        return Ok(nothing(Ok(TxnOutcome::Conflict { current })));
    }
    if txn.ops.is_empty() {
        return Ok(nothing(Ok(TxnOutcome::Committed { revision: last })));
    }
    let ended = txn.ops.iter().find_map(|op| match op {
        Op::Put {
            lease: Some(lease), ..
        } if !alive(*lease) => Some(*lease),
        _ => None,
    });
    if let Some(lease) = ended {
        return Ok(nothing(Err(MetadataError::LeaseEnded(lease.0))));
    }
    let revision = Revision(last.0 + 1);
    let mut changes = Vec::with_capacity(txn.ops.len());
    for op in txn.ops {
        changes.extend(plan(rows, op, revision)?);
    }
    for change in &changes {
        write(rows, change)?;
    }
    Ok(Applied {
        answer: Ok(TxnOutcome::Committed { revision }),
        changes,
        revision,
    })
}

/// Removes keys in one revision, as the end of a lease does. Empty when none of them exists.
pub(crate) fn remove<R: Rows>(
    rows: &mut R,
    keys: impl IntoIterator<Item = String>,
    revision: Revision,
) -> Result<Vec<Change>, R::Error> {
    let mut changes = Vec::new();
    for key in keys {
        changes.extend(plan(rows, Op::Delete { key }, revision)?);
    }
    for change in &changes {
        write(rows, change)?;
    }
    Ok(changes)
}

fn plan<R: Rows>(rows: &mut R, op: Op, revision: Revision) -> Result<Option<Change>, R::Error> {
    let before = rows.get(op.key())?;
    let event = match op {
        Op::Put { key, value, lease } => WatchEvent::Put(Versioned {
            key,
            value,
            version: revision,
            lease,
        }),
        Op::Delete { .. } if before.is_none() => return Ok(None),
        Op::Delete { key } => WatchEvent::Deleted { key, revision },
    };
    Ok(Some(Change { before, event }))
}

fn write<R: Rows>(rows: &mut R, change: &Change) -> Result<(), R::Error> {
    match (&change.event, &change.before) {
        (WatchEvent::Put(row), before) => rows.put(row, before.as_ref()),
        (WatchEvent::Deleted { .. }, Some(before)) => rows.delete(before),
        (WatchEvent::Deleted { .. }, None) => Ok(()),
    }
}
