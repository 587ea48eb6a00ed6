//! One planner at a time: a key that is bound to a lease.
//!
//! Two planners would do no harm: every change compares the version that it was made from. They would only copy twice.

use std::time::Duration;

use bookie_metadata::{Compare, LeaseId, MetadataError, MetadataStore, Op, Txn, TxnOutcome};
use tokio::time::sleep;

/// The planner's key.
pub(super) const PLANNER_KEY: &str = "upkeep/planner";
/// How long others wait for one that died.
const LEASE: Duration = Duration::from_secs(10);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(3);

/// Takes the key if nobody has it.
///
/// # Errors
/// Of the store. A lease that was granted meanwhile ends by itself.
pub(super) async fn try_lead(
    metadata: &dyn MetadataStore,
    name: &str,
) -> Result<Option<LeaseId>, MetadataError> {
    if metadata.get(PLANNER_KEY).await?.is_some() {
        return Ok(None);
    }
    let lease = metadata.grant_lease(LEASE).await?;
    let txn = Txn {
        compares: vec![Compare::Absent(PLANNER_KEY.to_owned())],
        ops: vec![Op::Put {
            key: PLANNER_KEY.to_owned(),
            value: name.to_owned().into(),
            lease: Some(lease),
        }],
    };
    match metadata.txn(txn).await? {
        TxnOutcome::Committed { .. } => Ok(Some(lease)),
        TxnOutcome::Conflict { .. } => {
            metadata.end_lease(lease).await?;
            Ok(None)
        }
    }
}

/// Renews until the store says that the lease is lost; its silence ends nothing.
pub(super) async fn keep(metadata: &dyn MetadataStore, lease: LeaseId) {
    loop {
        sleep(RENEW).await;
        if let Err(MetadataError::LeaseEnded(_)) = metadata.renew_lease(lease).await {
            return;
        }
    }
}
