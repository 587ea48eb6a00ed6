//! First contact with a ledger: what metadata says of it (storage.md B2).

use std::time::Duration;

use bookie_metadata::MetadataStore;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};

use crate::core::Verdict;

/// Reads the ledger's metadata, linearizably, and judges it for this member.
pub async fn verify(
    metadata: &dyn MetadataStore,
    me: &Member,
    ledger: LedgerId,
    timeout: Duration,
) -> Verdict {
    let key = ledger_key(ledger);
    let found = match tokio::time::timeout(timeout, metadata.get(&key)).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => return Verdict::Unavailable,
    };
    let Some(found) = found else {
        return Verdict::Deleted;
    };
    match LedgerMetadata::decode(&found.value) {
        Ok(value) => judge(&value, me),
        Err(error) => {
            tracing::warn!(%ledger, %error, "ledger's metadata cannot be read");
            Verdict::Unavailable
        }
    }
}

fn judge(value: &LedgerMetadata, me: &Member) -> Verdict {
    match value.state {
        LedgerState::Deleting => Verdict::Deleted,
        LedgerState::InRecovery | LedgerState::Closed => Verdict::Fenced {
            token: value.recovery_token,
        },
        LedgerState::Open => {
            let last = value.fragments.last();
            match last.is_some_and(|fragment| fragment.ensemble.contains(me)) {
                true => Verdict::Open,
                false => Verdict::NotInEnsemble,
            }
        }
    }
}
