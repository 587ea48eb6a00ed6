//! A run made for repair: ledgers that were just closed, one that is being written to, repairers that swap members without need, a
//! process that deletes, and bookies that let go of copies as soon as metadata name others, whose listings lack rows.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bookie_client::LedgerWriter;
use bookie_metadata::testing::{Call, Fate};
use bookie_metadata::{Op, Txn};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand::seq::IndexedRandom;
use tests_harness::metadata::{ObservedStore, Poverty};
use tests_harness::network::{Delivery, Kind};
use tests_harness::{Process, Run, Upkeep, World};
use tokio::time::{sleep, timeout};

use super::scene::{fill, in_cell};
use crate::ledger::{Book, finish, recover_all};

/// Ledgers that are written and closed.
const LEDGERS: u64 = 4;
/// Repairers.
const REPAIRERS: u32 = 3;
/// Virtual time in which they work.
const WORK: Duration = Duration::from_secs(5);
/// Passes of the bookies follow each other within so long.
const COLLECT_MS: u64 = 150;
/// Share of rows that their listings lack.
const MISSING_ROWS: f64 = 0.1;
/// In a run with slow passes what they read is heard so much later at most, ms.
const LATE_MS: u64 = 1_500;

/// One seed.
pub fn hunt_repair(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    in_cell(seed, whole_trace, (5, mutant), |world| play(world, 0))
}

/// One seed in which bookies ask slowly whose their copies are, while repair brings copies back to where they were.
pub fn hunt_slow_passes(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    in_cell(seed, whole_trace, (5, mutant), |world| play(world, LATE_MS))
}

async fn play(world: Arc<World>, late_ms: u64) -> Run {
    let world = &world;
    let mut rng = world.seeds.stream("repaired");
    let book = Book::default();
    let process = Process::new("w0");
    for _ in 0..LEDGERS {
        let appends = rng.random_range(1..30);
        if let Some(writer) = filled(world, &process, &book, appends).await {
            close(&process, &book, &writer).await;
        }
    }
    for bookie in &world.bookies {
        bookie.collect_within(COLLECT_MS);
        bookie.impoverish(Poverty {
            missing_rows: MISSING_ROWS,
            late_ms,
        });
    }
    plan_losses(world);
    let owner = Process::new("w1");
    let writing = tokio::spawn(filled(world, &owner, &book, 400));
    let repairers: Vec<Process> = (0..REPAIRERS)
        .map(|number| Process::new(format!("u{number}")))
        .collect();
    for process in &repairers {
        let upkeep = Upkeep::new(world, process.clone());
        let upkeep = match late_ms {
            0 => upkeep,
            _ => upkeep.going_back(),
        };
        tokio::spawn(upkeep.run());
    }
    let recovery = Duration::from_millis(rng.random_range(2_000..5_000));
    let recoverer = recover_all(world.clone(), Process::new("r0"), book.clone(), recovery);
    tokio::spawn(recoverer);
    sleep(Duration::from_millis(rng.random_range(500..3_000))).await;
    let doomed = book.ledgers().choose(&mut rng).copied();
    if let Some(ledger) = doomed.filter(|_| rng.random_bool(0.5)) {
        delete(world, ledger).await;
    }
    sleep(WORK).await;
    repairers.iter().for_each(Process::kill);
    world.heal().await;
    if let Some(ledger) = world
        .store
        .ledgers()
        .iter()
        .find(|(_, m)| m.state == LedgerState::Deleting)
    {
        delete(world, LedgerId(ledger.0)).await;
    }
    finish(world, &book, vec![(owner, writing)]).await
}

/// Some copies and their answers are lost, and what is read of a ledger is often old when it is heard. Once repair exchanged a member that
/// is being written to, as it never may, one of the two others hears its writer no more, and recovery does not hear the other one.
fn plan_losses(world: &Arc<World>) {
    let exchanged: Arc<OnceLock<[String; 2]>> = Arc::default();
    let (seen, store) = (exchanged.clone(), world.store.clone());
    let mut slow = world.seeds.stream("slow reads");
    world.faults.choose(move |call| match call {
        Call::Get(key) if key.starts_with("ledger/") => {
            Fate::Slow(Duration::from_millis(slow.random_range(0..300)))
        }
        Call::Txn(txn) => {
            if let Some(others) = others_of_open_tail(&store, txn) {
                // The first one counts.
                let _ = seen.set(others);
            }
            Fate::Pass
        }
        _ => Fate::Pass,
    });
    let mut chance = world.seeds.stream("losses");
    world.network.script(move |message| {
        let is = |which: usize| {
            let others = exchanged.get();
            others.is_some_and(|others| others[which] == message.bookie)
        };
        let lost = match (message.kind, message.answer) {
            (Kind::WriteBack, _) => 0.1,
            (Kind::Add, false) if is(0) => 1.0,
            (Kind::RecoveryRead, true) if is(1) => 1.0,
            _ => 0.0,
        };
        chance.random_bool(lost).then_some(Delivery::Drop)
    });
}

/// The members that stay when a transaction exchanges one of the last fragment of an open ledger.
fn others_of_open_tail(store: &ObservedStore, txn: &Txn) -> Option<[String; 2]> {
    let (key, after) = txn.ops.iter().find_map(|op| match op {
        Op::Put { key, value, .. } if key.starts_with("ledger/") => {
            Some((key, LedgerMetadata::decode(value).ok()?))
        }
        _ => None,
    })?;
    let number: u64 = key.rsplit('/').next()?.parse().ok()?;
    let ledgers = store.ledgers();
    let (_, before) = ledgers.iter().find(|(found, _)| *found == number)?;
    let exchanges = before.state == LedgerState::Open
        && after.state == LedgerState::Open
        && before.fragments.len() == after.fragments.len()
        && before.writer_nonce == after.writer_nonce;
    let places = before.last_fragment().ensemble.iter();
    let stay = places.zip(&after.last_fragment().ensemble);
    let stay = stay.filter(|(old, new)| old == new);
    let names: Vec<String> = stay.map(|(old, _)| old.bookie.to_string()).collect();
    names.try_into().ok().filter(|_| exchanges)
}

/// Deletes a ledger, if it is closed; for a while.
async fn delete(world: &Arc<World>, ledger: LedgerId) {
    let process = Process::new("d0");
    let client = world.client(&process);
    let deleting = client.delete(ledger, Txn::default());
    if let Ok(Ok(())) = timeout(Duration::from_secs(20), deleting).await {
        world.counts.add("ledgers deleted beside repair");
    }
}

/// Fills a ledger; each one has its own chance.
fn filled(
    world: &Arc<World>,
    process: &Process,
    book: &Book,
    appends: u32,
) -> impl Future<Output = Option<LedgerWriter>> + Send + use<> {
    let rng = world.seeds.stream(&format!("{} {appends}", process.name()));
    fill(world.clone(), process.clone(), book.clone(), (rng, appends))
}

async fn close(process: &Process, book: &Book, writer: &LedgerWriter) {
    let closed = process.heard(writer.close(Txn::default())).await;
    if let Some(Ok(totals)) = closed {
        book.end(writer.ledger(), totals.end);
    }
}
