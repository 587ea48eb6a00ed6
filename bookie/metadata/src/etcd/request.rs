//! Transactions and leases in etcd's words.

use super::keyspace::{Keyspace, unsigned};
use crate::store::{Compare, LeaseId, MetadataError, Op, Revision, Txn, TxnOutcome};
use hulse_proto::wire::etcd::compare::{CompareResult, CompareTarget, TargetUnion};
use hulse_proto::wire::etcd::{self, request_op::Request, response_op::Response};

/// etcd counts leases by a signed number; the bits are the same.
pub(super) fn lease_number(lease: LeaseId) -> i64 {
    lease.0.cast_signed()
}

/// The lease of a row; 0 is none.
pub(super) fn lease(number: i64) -> Option<LeaseId> {
    (number != 0).then_some(LeaseId(number.cast_unsigned()))
}

/// The transaction; when it conflicts, it reads every compared key at the same revision.
pub(super) fn transaction(keys: &Keyspace, txn: &Txn) -> etcd::TxnRequest {
    etcd::TxnRequest {
        compare: txn.compares.iter().map(|c| compare(keys, c)).collect(),
        success: txn.ops.iter().map(|op| operation(keys, op)).collect(),
        failure: txn
            .compares
            .iter()
            .map(|compare| read(keys.inside(compare.key())))
            .collect(),
    }
}

/// The same, which also compares that the fence was last written by the revision `at` (0: never). A conflict reads it last.
pub(super) fn fenced(mut txn: etcd::TxnRequest, fence: &[u8], at: i64) -> etcd::TxnRequest {
    txn.compare.push(etcd::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: fence.to_vec().into(),
        target_union: Some(TargetUnion::ModRevision(at)),
    });
    txn.failure.push(read(fence.to_vec()));
    txn
}

fn compare(keys: &Keyspace, compare: &Compare) -> etcd::Compare {
    // A key that does not exist has creation and modification revision 0.
    let (result, target, union) = match compare {
        Compare::Absent(_) => (CompareResult::Equal, CompareTarget::Create, created(0)),
        Compare::Exists(_) => (CompareResult::Greater, CompareTarget::Create, created(0)),
        Compare::Version(_, version) => {
            // No key was ever written by revision 0, nor by one beyond etcd's numbers: both compare with what never is.
            let number = i64::try_from(version.0).ok().filter(|number| *number > 0);
            let union = TargetUnion::ModRevision(number.unwrap_or(-1));
            (CompareResult::Equal, CompareTarget::Mod, union)
        }
    };
    etcd::Compare {
        result: result.into(),
        target: target.into(),
        key: keys.inside(compare.key()).into(),
        target_union: Some(union),
    }
}

fn created(revision: i64) -> TargetUnion {
    TargetUnion::CreateRevision(revision)
}

fn operation(keys: &Keyspace, op: &Op) -> etcd::RequestOp {
    let key = keys.inside(op.key()).into();
    let request = match op {
        Op::Put { value, lease, .. } => Request::RequestPut(etcd::PutRequest {
            key,
            value: value.clone(),
            lease: lease.map_or(0, lease_number),
        }),
        Op::Delete { .. } => Request::RequestDeleteRange(etcd::DeleteRangeRequest { key }),
    };
    etcd::RequestOp {
        request: Some(request),
    }
}

fn read(key: Vec<u8>) -> etcd::RequestOp {
    etcd::RequestOp {
        request: Some(Request::RequestRange(etcd::RangeRequest {
            key: key.into(),
            ..etcd::RangeRequest::default()
        })),
    }
}

/// Takes from the answer to a [`fenced`] transaction what it says of the fence: the revision that wrote it last (0: none), or `None` when
/// it committed.
///
/// # Errors
/// `Corrupt` when the answer has another shape than the request asked for.
pub(super) fn fence(answer: &mut etcd::TxnResponse) -> Result<Option<i64>, MetadataError> {
    if answer.succeeded {
        return Ok(None);
    }
    let found = answer.responses.pop();
    match found.and_then(|found| found.response) {
        Some(Response::ResponseRange(range)) => {
            Ok(Some(range.kvs.first().map_or(0, |row| row.mod_revision)))
        }
        other => Err(not_a_read(&other)),
    }
}

fn not_a_read(answer: &Option<Response>) -> MetadataError {
    MetadataError::Corrupt {
        why: format!("etcd answered a read with {answer:?}"),
    }
}

/// What became of it.
///
/// # Errors
/// `Corrupt` when the answer has another shape than the request asked for.
pub(super) fn outcome(
    keys: &Keyspace,
    answer: etcd::TxnResponse,
) -> Result<TxnOutcome, MetadataError> {
    if answer.succeeded {
        let revision = answer.header.unwrap_or_default().revision;
        return Ok(TxnOutcome::Committed {
            revision: Revision(unsigned(revision)?),
        });
    }
    let current = answer
        .responses
        .into_iter()
        .map(|response| match response.response {
            Some(Response::ResponseRange(range)) => range
                .kvs
                .into_iter()
                .next()
                .map(|row| keys.row(row))
                .transpose(),
            other => Err(not_a_read(&other)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(TxnOutcome::Conflict { current })
}

/// The leases that a transaction binds keys to.
pub(super) fn leases(txn: &Txn) -> Vec<LeaseId> {
    let mut leases: Vec<LeaseId> = txn
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::Put { lease, .. } => *lease,
            Op::Delete { .. } => None,
        })
        .collect();
    leases.dedup();
    leases
}
