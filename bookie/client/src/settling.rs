//! The owner's word that a ledger is settled (ARCHITECTURE D7): what tiering waits for.

use std::sync::Arc;

use bookie_metadata::Txn;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerKind, LedgerState, ledger_key};
use hulse_proto::tier::Settled;
use tokio::time::Instant;

use crate::error::{GuardFailed, SettleError};
use crate::ledger_client::Inner;
use crate::metadata::{NonceField, NotCommitted, Proposal, commit, read_ledger};

/// Others may change the ledger meanwhile, repair say.
const TRIES_MAX: u32 = 8;

pub(crate) async fn settle(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    settled: Settled,
    part: Txn,
) -> Result<(), SettleError> {
    let mut last = GuardFailed {
        current: Vec::new(),
    };
    for _ in 0..TRIES_MAX {
        let found = read_ledger(&*inner.metadata, ledger).await?;
        let (mut metadata, version) = found.ok_or(SettleError::NotFound { ledger })?;
        if metadata.state != LedgerState::Closed || metadata.kind != LedgerKind::Log {
            return Err(SettleError::NotClosed { ledger });
        }
        let tier = metadata.tier.get_or_insert_default();
        if tier.settled.is_some() {
            return Ok(());
        }
        tier.settled = Some(settled.clone());
        tier.nonce = inner.nonce();
        let key = ledger_key(ledger);
        let field = NonceField::Tier;
        let proposal = Proposal::new(key, Some(version), &metadata, field, part.clone());
        let deadline = Instant::now() + inner.config.metadata_deadline;
        match commit(&*inner.metadata, proposal, Some(deadline)).await {
            Ok(_) => return Ok(()),
            Err(NotCommitted::Failed { found, guard }) => {
                let changed = found.is_none_or(|found| found.1 != version);
                last = guard;
                if !changed {
                    break;
                }
            }
            Err(NotCommitted::Store(error)) => return Err(error.into()),
            Err(NotCommitted::Unknown(why)) => {
                return Err(bookie_metadata::MetadataError::OutcomeUnknown { why }.into());
            }
        }
    }
    Err(SettleError::Conflict {
        ledger,
        guard: last,
    })
}
