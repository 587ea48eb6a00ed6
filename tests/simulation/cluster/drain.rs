//! A bookie that is drained in the middle of everything (storage.md C7): the drain ends once the world is healed, or upkeep says which
//! ledger blocks it; and then the bookie is taken away for good, and nothing is missed.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::{RegistrationError, RegistrationState, change_registration, upkeep_report};
use hulse_proto::id::NodeName;
use hulse_proto::ledger::LedgerMetadata;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tests_harness::{Process, SimBookie, World, trace};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// An operator tries again after this.
const AGAIN: Duration = Duration::from_millis(300);
/// The drain begins within so long, ms.
const BEGINS_MS: u64 = 7_000;
/// In a healed world it ends within so many looks …
const LOOKS_MAX: u32 = 360;
/// … one of which comes after each of these.
const LOOK: Duration = Duration::from_millis(500);

/// The drain of one bookie.
pub struct Drain {
    bookie: Arc<SimBookie>,
    /// What became of the operator's word: true when it stands.
    word: JoinHandle<bool>,
}

impl Drain {
    /// An operator is going to drain one of the bookies.
    pub fn plan(world: &Arc<World>, rng: &mut ChaCha12Rng) -> Self {
        let bookie = world.bookies.choose(rng).expect("a world has bookies");
        let wait = Duration::from_millis(rng.random_range(100..BEGINS_MS));
        let word = tokio::spawn(say(world.clone(), bookie.clone(), wait));
        Self {
            bookie: bookie.clone(),
            word,
        }
    }

    /// Waits for the end of the drain, in a healed world, and takes the bookie away.
    pub async fn end(mut self, world: &World) {
        if !(&mut self.word).await.unwrap_or(false) {
            return;
        }
        let name = self.bookie.name();
        for _ in 0..LOOKS_MAX {
            if self.bookie.is_retired() && self.naming(world).is_empty() {
                trace!(world.trace, "{name} is taken away");
                self.bookie.take_away();
                return;
            }
            sleep(LOOK).await;
        }
        let report = upkeep_report(&*world.store).await.ok().flatten();
        let blocked = report.unwrap_or_default().blocked;
        let blocked: Vec<String> = blocked
            .iter()
            .filter(|row| row.bookie == name)
            .map(|row| format!("ledger {}: {}", row.ledger, row.why))
            .collect();
        // Every disk that lost something has its copies elsewhere, so nothing may block for ever; and if it did, upkeep would have to say
        // what.
        world.violations.add(format!(
            "STUCK: {name} drains for ever, retired: {}, upkeep says: {blocked:?}, named by {:?}",
            self.bookie.is_retired(),
            self.naming(world).first()
        ));
    }

    /// The ledgers that name it.
    fn naming(&self, world: &World) -> Vec<(u64, LedgerMetadata)> {
        let me = self.bookie.member();
        let mut ledgers = world.store.ledgers();
        ledgers.retain(|(_, ledger)| me.as_ref().is_some_and(|me| ledger.names(me)));
        ledgers
    }
}

/// The operator's word, again and again until it is heard.
async fn say(world: Arc<World>, bookie: Arc<SimBookie>, wait: Duration) -> bool {
    sleep(wait).await;
    let operator = Process::new("operator");
    let metadata = world.metadata(&operator);
    let name = NodeName::new(bookie.name()).expect("it is one");
    loop {
        match change_registration(&*metadata, &name, RegistrationState::Draining).await {
            Ok(_) => {
                world.counts.add("bookies drained");
                return true;
            }
            Err(RegistrationError::NotEnough { .. }) => {
                world.counts.add("drains refused for want of bookies");
                return false;
            }
            Err(error) => trace!(world.trace, "{name} is not drained: {error}"),
        }
        sleep(AGAIN).await;
    }
}
