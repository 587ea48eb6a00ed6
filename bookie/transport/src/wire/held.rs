//! Inventories as rows of one field: a list of messages would have a decoder make room for each before anybody could count them.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::bookie::{HeldLedger, HeldRun, INVENTORY_RUNS_MAX, Inventory};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::wire::bookie as wire;

use super::Malformed;

/// Of a run: ledger, first entry, end, whether there is a digest, digest.
const RUN_BYTES: usize = 40;

pub(super) fn encode_held(held: &Inventory) -> wire::Held {
    let runs: usize = held.ledgers.iter().map(|found| found.runs.len()).sum();
    let mut rows = BytesMut::with_capacity(runs * RUN_BYTES);
    for found in &held.ledgers {
        for run in &found.runs {
            rows.put_u64_le(found.ledger.0);
            rows.put_u64_le(run.first.0);
            rows.put_u64_le(run.end.0);
            rows.put_u64_le(u64::from(run.digest.is_some()));
            rows.put_u64_le(run.digest.unwrap_or(0));
        }
    }
    wire::Held {
        runs: rows.freeze(),
        next: held.next.map(|next| next.0),
    }
}

/// # Errors
/// [`Malformed`]: the rows are cut off, too many, out of order, or of no entries.
pub(super) fn decode_held(held: &wire::Held) -> Result<Inventory, Malformed> {
    let count = held.runs.len() / RUN_BYTES;
    if !held.runs.len().is_multiple_of(RUN_BYTES) || count > INVENTORY_RUNS_MAX {
        return Err(Malformed::new("an inventory of too many runs, or cut off"));
    }
    let mut ledgers: Vec<HeldLedger> = Vec::new();
    let mut rows: Bytes = held.runs.clone();
    while rows.has_remaining() {
        let ledger = LedgerId(rows.get_u64_le());
        let (first, end) = (EntryId(rows.get_u64_le()), EntryId(rows.get_u64_le()));
        let told = rows.get_u64_le();
        let digest = rows.get_u64_le();
        let run = HeldRun {
            first,
            end,
            digest: (told == 1).then_some(digest),
        };
        let behind = ledgers.last().map(|last| (last.ledger, last.runs.last()));
        let grows = match behind {
            Some((before, Some(last))) if before == ledger => last.end <= first,
            Some((before, _)) => before < ledger,
            None => true,
        };
        if first >= end || told > 1 || !grows {
            return Err(Malformed::new("a run of an inventory that cannot be"));
        }
        match ledgers.last_mut().filter(|last| last.ledger == ledger) {
            Some(last) => last.runs.push(run),
            None => ledgers.push(HeldLedger {
                ledger,
                runs: vec![run],
            }),
        }
    }
    Ok(Inventory {
        ledgers,
        next: held.next.map(LedgerId),
    })
}
