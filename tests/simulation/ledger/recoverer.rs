//! A recoverer: closes ledgers that others may still be writing or recovering.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::Txn;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerMetadata;
use tests_harness::{Process, World, trace};
use tokio::time::sleep;

use super::book::Book;

/// Tries of one recoverer under fire.
const TRIES: u32 = 3;
/// Tries in a healed world before the ledger counts as stuck.
const HEALED_TRIES: u32 = 12;

/// Recovers every ledger of the book after `wait`, a few times each.
pub async fn recover_all(world: Arc<World>, process: Process, book: Book, wait: Duration) {
    sleep(wait).await;
    let client = world.client(&process);
    for ledger in book.ledgers() {
        for _ in 0..TRIES {
            let Some(recovered) = process.heard(client.recover(ledger, Txn::default())).await
            else {
                return;
            };
            match recovered {
                Ok(metadata) => {
                    note(&world, &process, &book, ledger, &metadata);
                    break;
                }
                Err(error) => {
                    trace!(world.trace, "{} recovers {ledger}: {error}", process.name());
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

fn note(
    world: &World,
    process: &Process,
    book: &Book,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
) {
    match metadata.closed {
        Some(closed) => {
            trace!(
                world.trace,
                "{} closed {ledger} at {}",
                process.name(),
                closed.end
            );
            book.end(ledger, closed.end);
        }
        None => world
            .violations
            .add(format!("ledger {ledger} was recovered and has no end")),
    }
}

/// Recovers one ledger in a healed world, if it ever came into being.
pub async fn recover_healed(world: &Arc<World>, process: &Process, book: &Book, ledger: LedgerId) {
    let client = world.client(process);
    let mut last = String::new();
    for _ in 0..HEALED_TRIES {
        if let Ok(None) = client.describe(ledger).await {
            return;
        }
        match client.recover(ledger, Txn::default()).await {
            Ok(metadata) => {
                return note(world, process, book, ledger, &metadata);
            }
            Err(error) => last = error.to_string(),
        }
        sleep(Duration::from_millis(500)).await;
    }
    world.violations.add(format!(
        "ledger {ledger} is stuck in a healed world: {last}"
    ));
}
