//! The planner over memory bookies: who is given up, who leaves, who takes over.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::testing::{Fault, FixedClock};
use bookie_client::{RegistrationState, change_registration, list_registrations, upkeep_report};
use bookie_metadata::{MetadataStore as _, Op};
use hulse_proto::id::{EntryId, NodeName};
use hulse_proto::ledger::{Intent, ledger_key};
use hulse_proto::wire::metadata::blocked_repair::Kind;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Upkeep, UpkeepConfig, UpkeepSeams};
use crate::tests::{CELL, Cell};

fn start(cell: &Cell, name: &str) -> (CancellationToken, JoinHandle<()>) {
    let config = UpkeepConfig {
        lost_after: Duration::from_secs(30),
        audit_interval: Duration::from_secs(5),
        ..UpkeepConfig::default()
    };
    let seams = UpkeepSeams {
        cell: CELL,
        name: NodeName::new(name).unwrap(),
        metadata: Arc::new(cell.store.clone()),
        bookies: cell.directory(),
        clock: Arc::new(FixedClock(5_000)),
        seed: [name.len() as u8; 32],
        metrics: crate::UpkeepMetrics::default(),
    };
    let stop = CancellationToken::new();
    let upkeep = Upkeep::new(config, seams);
    let running = tokio::spawn(upkeep.run(stop.clone()));
    (stop, running)
}

async fn until(what: &str, seconds: u64, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds().await {
        assert!(
            began.elapsed() < Duration::from_secs(seconds),
            "{what} in {seconds} s"
        );
        sleep(Duration::from_millis(200)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn copies_of_a_bookie_that_stays_away_are_made_elsewhere_after_its_time() {
    let cell = Cell::new(4).await;
    let ledgers = [
        cell.closed(20).await,
        cell.closed(20).await,
        cell.closed(0).await,
    ];
    let _upkeep = start(&cell, "b1");
    sleep(Duration::from_secs(6)).await;
    let ensemble = cell
        .metadata(ledgers[0])
        .await
        .last_fragment()
        .ensemble
        .clone();
    let lost = cell.index_of(&ensemble[0]);
    cell.bookies[lost].always(Some(Fault::RequestLost));
    cell.live(lost, false).await;
    let gone = format!("b{lost}");
    let took = until("it is replaced", 60, async || {
        for ledger in ledgers {
            if cell.ensemble(ledger).await.contains(&gone) || !cell.is_whole(ledger).await {
                return false;
            }
        }
        true
    })
    .await;
    assert!(took > Duration::from_secs(29), "{took:?}");
    let report = async || upkeep_report(&cell.store).await.unwrap().unwrap();
    until("it is told", 20, async || {
        report().await.lacking_ledgers == 0
    })
    .await;
    assert!(report().await.copied_bytes > 20 * 300);
}

#[tokio::test(start_paused = true)]
async fn draining_bookie_is_emptied_and_retired_and_another_planner_goes_on() {
    let cell = Cell::new(5).await;
    let ledgers = [cell.closed(20).await, cell.closed(3).await];
    let first = start(&cell, "b1");
    sleep(Duration::from_secs(4)).await;
    let second = start(&cell, "b22");
    let ensemble = cell
        .metadata(ledgers[0])
        .await
        .last_fragment()
        .ensemble
        .clone();
    let leaves = ensemble[1].bookie.clone();
    first.0.cancel();
    first.1.await.unwrap();
    let changed = change_registration(&cell.store, &leaves, RegistrationState::Draining).await;
    assert_eq!(changed.unwrap().state, RegistrationState::Draining);
    let state = async || {
        let all = list_registrations(&cell.store).await.unwrap();
        all.into_iter()
            .find(|found| found.member.bookie == leaves)
            .unwrap()
            .state
    };
    until("it is retired", 60, async || {
        state().await == RegistrationState::Retired
    })
    .await;
    for ledger in ledgers {
        assert!(!cell.ensemble(ledger).await.contains(leaves.as_str()));
        assert!(cell.is_whole(ledger).await);
    }
    assert!(!second.1.is_finished());
    let again = change_registration(&cell.store, &leaves, RegistrationState::Active).await;
    assert!(again.unwrap_err().to_string().contains("for ever"));
}

/// A planner that died in the middle of a repair leaves its intent, which names the target; when the old member is there again, nobody
/// repairs that place any more.
#[tokio::test(start_paused = true)]
async fn bookie_to_which_a_repair_was_only_begun_is_retired_all_the_same() {
    let cell = Cell::new(5).await;
    let ledger = cell.closed(5).await;
    let mut begun = cell.metadata(ledger).await;
    let ensemble = begun.last_fragment().ensemble.clone();
    let mut others = (0..5).map(|index| cell.member(index));
    let target = others.find(|member| !ensemble.contains(member)).unwrap();
    begun.intents.push(Intent {
        first: EntryId(0),
        old: ensemble[1].clone(),
        new: target.clone(),
        task: [9; 16],
    });
    cell.put(Op::put(ledger_key(ledger), begun.encode())).await;
    let changed = change_registration(&cell.store, &target.bookie, RegistrationState::Draining);
    changed.await.unwrap();
    let _upkeep = start(&cell, "b1");
    until("it is retired", 60, async || {
        let all = list_registrations(&cell.store).await.unwrap();
        let mut all = all.iter();
        all.any(|found| found.member == target && found.state == RegistrationState::Retired)
    })
    .await;
    assert_eq!(cell.metadata(ledger).await.intents, []);
    assert_eq!(
        cell.metadata(ledger).await.last_fragment().ensemble,
        ensemble
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_repaired_is_told_with_the_reason_and_done_once_it_can() {
    let cell = Cell::new(3).await;
    let ledger = cell.closed(10).await;
    let ensemble = cell.metadata(ledger).await.last_fragment().ensemble.clone();
    let _upkeep = start(&cell, "b1");
    let state = RegistrationState::Lost;
    let running = change_registration(&cell.store, &ensemble[0].bookie, state).await;
    assert!(running.unwrap_err().to_string().contains("stop it first"));
    let lost = cell.index_of(&ensemble[0]);
    cell.live(lost, false).await;
    change_registration(&cell.store, &ensemble[0].bookie, state)
        .await
        .unwrap();
    let blocked = async || {
        let report = upkeep_report(&cell.store).await.unwrap();
        report.map_or(Vec::new(), |report| report.blocked)
    };
    until("it is blocked", 30, async || {
        blocked()
            .await
            .iter()
            .any(|found| found.kind() == Kind::NoTarget)
    })
    .await;
    let report = upkeep_report(&cell.store).await.unwrap().unwrap();
    assert_eq!(
        (report.lacking_ledgers, report.lacking_since_ms),
        (1, 5_000)
    );
    // A bookie that lacks entries while everybody is there.
    cell.register(lost, hulse_proto::wire::metadata::bookie::State::Active)
        .await;
    cell.live(lost, true).await;
    let fill = &cell.bookies[cell.index_of(&ensemble[2])];
    fill.ledgers()
        .lose_from(ledger, EntryId(4), Default::default());
    until("it is whole again", 30, async || {
        cell.is_whole(ledger).await
    })
    .await;
    until("nothing is blocked", 30, async || {
        blocked().await.is_empty()
    })
    .await;
    assert!(cell.store.get("upkeep/planner").await.unwrap().is_some());
}
