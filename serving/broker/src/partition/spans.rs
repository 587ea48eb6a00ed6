//! The ledgers of a log as readers need them, when all of them are closed.

use hulse_proto::error::Fault;
use hulse_proto::id::{LedgerId, Offset, OwnerEpoch};
use hulse_proto::ledger::LedgerMetadata;

use super::takeover::{Collaborators, totals};
use crate::log::{Chain, LedgerSpan};
use crate::storage_fault;

/// The ledgers of the log, checked against P3: each begins where the one before ended, or at a recorded gap, and the first one not
/// above the log start.
pub(super) fn spans(
    with: &Collaborators,
    chain: &Chain,
    ledgers: Vec<(LedgerId, LedgerMetadata)>,
) -> Result<Vec<LedgerSpan>, Fault> {
    let mut spans: Vec<LedgerSpan> = Vec::with_capacity(ledgers.len());
    for (link, (ledger, metadata)) in chain.links().zip(ledgers) {
        let totals = totals(ledger, &metadata)?;
        let begins = link.gap_start.map_or(Offset(link.base_offset), Offset);
        let (follows, expected) = match spans.last() {
            Some(before) => (before.end == begins, before.end),
            None => (begins <= chain.log_start(), chain.log_start()),
        };
        if !follows {
            let why = format!("it begins at offset {begins}, what is before it ends at {expected}");
            return Err(storage_fault::damaged(ledger, &why));
        }
        let created_at = metadata.created_at;
        let mut span = LedgerSpan::new(
            ledger,
            Offset(link.base_offset),
            OwnerEpoch(link.owner_epoch),
            with.client.reader(ledger, metadata),
        );
        span.gap_start = link.gap_start.map(Offset);
        span.end = Offset(link.base_offset + totals.offset_span);
        span.end_entry = totals.end;
        span.bytes = totals.bytes;
        span.created_at = created_at;
        spans.push(span);
    }
    Ok(spans)
}
