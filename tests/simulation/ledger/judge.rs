//! The oracle of storage.md §11 for closed ledgers.

use std::sync::Arc;

use hulse_proto::bookie::ReadClass;
use hulse_proto::entry::{Entry, Totals};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{ClosedTotals, LedgerMetadata, LossKind};
use tests_harness::{Outcome, Process, World};

use super::book::{Book, Page};

/// Judges one closed ledger: what was told, what is read back, and the totals.
pub async fn judge(
    world: &Arc<World>,
    process: &Process,
    book: &Book,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
) {
    let Some(closed) = metadata.closed else {
        return world
            .violations
            .add(format!("ledger {ledger} is left {:?}", metadata.state));
    };
    let page = book.page(ledger);
    for end in &page.ends {
        world.violations.check(*end == closed.end, || {
            format!(
                "ledger {ledger} ends at {}, and somebody was told {end}",
                closed.end
            )
        });
    }
    told(world, ledger, &page, metadata, closed.end);
    match read_all(world, process, ledger, metadata).await {
        Ok(entries) => content(world, ledger, &page, &closed, &entries),
        // A power failure may take the copies of a closed ledger that were never synced (amended B5).
        Err(_) if world.may_lack_tails() => world.counts.add("closed ledgers that lost their tail"),
        Err(words) => world
            .violations
            .add(format!("ledger {ledger} cannot be read: {words}")),
    }
}

/// Without syncs confirmed entries may be lost with the power, if metadata say so.
fn is_recorded(world: &World, metadata: &LedgerMetadata, entry: EntryId) -> bool {
    let recorded = metadata
        .loss
        .is_some_and(|loss| loss.kind == LossKind::TailLost && loss.from <= entry);
    world.may_lack_tails() && recorded
}

fn told(world: &World, ledger: LedgerId, page: &Page, metadata: &LedgerMetadata, end: EntryId) {
    if metadata.loss.is_some() {
        world.counts.add("tails lost and recorded");
        world.violations.check(world.may_lack_tails(), || {
            format!(
                "ledger {ledger} records {:?}, and everything is synced",
                metadata.loss
            )
        });
    }
    let mut failed = None;
    for (entry, told) in &page.appends {
        let inside = *entry < end;
        match told.outcome {
            Outcome::Ok(_) if !inside && !is_recorded(world, metadata, *entry) => {
                world.violations.add(format!(
                    "LOST entry {entry} of ledger {ledger}: confirmed, and the ledger ends at {end}"
                ))
            }
            Outcome::Failed if inside => world.violations.add(format!(
                "GHOST entry {entry} of ledger {ledger}: not written, and the ledger ends at {end}"
            )),
            _ => {}
        }
        match told.outcome {
            Outcome::Failed => failed = failed.or(Some(*entry)),
            Outcome::Ok(_) => world.violations.check(failed.is_none(), || {
                format!("entry {entry} of ledger {ledger} was confirmed behind a failed one")
            }),
            Outcome::Unknown => {}
        }
    }
}

async fn read_all(
    world: &Arc<World>,
    process: &Process,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
) -> Result<Vec<Entry>, String> {
    let end = metadata.closed.map_or(EntryId(0), |closed| closed.end);
    let reader = world.client(process).reader(ledger, metadata.clone());
    let mut entries = Vec::new();
    while (entries.len() as u64) < end.0 {
        let next = EntryId(entries.len() as u64);
        let read = reader.read(next, end, 1 << 20, ReadClass::CatchUp).await;
        let read = read.map_err(|error| error.to_string())?;
        if read.is_empty() {
            return Err(format!("nothing at entry {next}"));
        }
        entries.extend(read);
    }
    Ok(entries)
}

fn content(world: &World, ledger: LedgerId, page: &Page, closed: &ClosedTotals, entries: &[Entry]) {
    let mut totals = Totals::default();
    for (number, entry) in (0..).map(EntryId).zip(entries) {
        let same = page
            .appends
            .get(&number)
            .is_some_and(|told| told.body == entry.body());
        world
            .violations
            .check(same && entry.header().entry == number, || {
                format!("GHOST entry {number} of ledger {ledger} is not what was appended")
            });
        totals = entry.header().totals();
    }
    let right = closed.end.0 == entries.len() as u64
        && closed.record_count == closed.end.0
        && closed.offset_span == closed.end.0
        && (closed.bytes, closed.digest) == (totals.bytes, totals.digest);
    world.violations.check(right, || {
        format!("ledger {ledger} is closed with {closed:?}, its entries say {totals:?}")
    });
}
