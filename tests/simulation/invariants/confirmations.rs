//! Storage.md §12, 2 (amended): an observer that knows every answer which reached the writer, and what metadata said.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bookie_client::LedgerWriter;
use hulse_proto::bookie::Origin;
use hulse_proto::id::{EntryId, Incarnation, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Quorums};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand::seq::IndexedRandom;
use tests_harness::bookie::{Reply, Request};
use tests_harness::network::{NetworkRates, Sight};
use tests_harness::{MetadataRates, PowerLoss, Process, Seeds, World, WorldSetup, runtime};
use tokio::time::sleep;

use super::scene::{USUAL, quorums};
use crate::ledger::entry;

/// Who said that they hold an entry.
type Acks = BTreeMap<(LedgerId, EntryId), BTreeSet<Incarnation>>;

/// What the observer knows.
#[derive(Default)]
struct Known {
    acks: Acks,
    /// Highest confirmed end that an add of the ledger carried.
    carried: BTreeMap<LedgerId, EntryId>,
    /// Acks that had arrived when an entry's completion was told, or first carried by an add.
    at_confirmation: BTreeMap<(LedgerId, EntryId), BTreeSet<Incarnation>>,
    /// Next completion of each ledger.
    completed: BTreeMap<LedgerId, EntryId>,
    wrong: Vec<String>,
}

#[derive(Clone)]
struct Observer {
    world: Arc<World>,
    known: Arc<Mutex<Known>>,
}

/// Positions of the members that should hold an entry.
fn write_set(quorums: Quorums, entry: EntryId) -> impl Iterator<Item = usize> {
    let (ensemble, write) = (u64::from(quorums.ensemble), u64::from(quorums.write));
    (0..write).map(move |step| ((entry.0 + step) % ensemble) as usize)
}

/// How many of the right members are in the set.
fn count(metadata: &LedgerMetadata, entry: EntryId, acks: &BTreeSet<Incarnation>) -> usize {
    let ensemble = &metadata.fragment_of(entry).ensemble;
    let right = write_set(metadata.quorums, entry);
    right
        .filter(|at| acks.contains(&ensemble[*at].incarnation))
        .count()
}

impl Observer {
    fn watch(world: &Arc<World>) -> Self {
        let observer = Self {
            world: world.clone(),
            known: Arc::default(),
        };
        let seeing = observer.clone();
        world.network.observe(move |sight| seeing.see(sight));
        observer
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn metadata(&self, ledger: LedgerId) -> Option<LedgerMetadata> {
        let all = self.world.store.ledgers();
        all.into_iter()
            .find(|(number, _)| *number == ledger.0)
            .map(|(_, metadata)| metadata)
    }

    fn see(&self, sight: &Sight<'_>) {
        let Request::Add(add) = sight.request else {
            return;
        };
        if add.origin != Origin::Normal {
            return;
        }
        let (ledger, entry) = (add.to.ledger, add.entry.header().entry);
        match sight.reply {
            Some(Reply::Add(Ok(()))) => {
                let mut known = self.known();
                let acks = known.acks.entry((ledger, entry)).or_default();
                acks.insert(add.to.incarnation);
            }
            Some(_) => {}
            None => self.carries(ledger, entry, add.confirmed_end),
        }
    }

    /// An add leaves with this confirmed end: it never goes back, lies at or below the entry, and holds only what is confirmed.
    fn carries(&self, ledger: LedgerId, entry: EntryId, end: EntryId) {
        let before = {
            let mut known = self.known();
            let carried = known.carried.entry(ledger).or_default();
            let before = *carried;
            *carried = before.max(end);
            // What is sent again, to a new member, lies below the end that is known by then.
            if end < before.min(entry) || end > entry {
                known.wrong.push(format!(
                    "add {entry} of ledger {ledger} carries {end} after {before}"
                ));
            }
            before
        };
        for entry in (before.0..end.0).map(EntryId) {
            self.confirmed(ledger, entry);
        }
    }

    /// The entry counts as confirmed from now on, at the latest.
    fn confirmed(&self, ledger: LedgerId, entry: EntryId) {
        let metadata = self.metadata(ledger);
        let mut known = self.known();
        let key = (ledger, entry);
        if known.at_confirmation.contains_key(&key) {
            return;
        }
        let acks = known.acks.get(&key).cloned().unwrap_or_default();
        if let Some(metadata) = metadata.filter(|m| m.state == LedgerState::Open) {
            let right = count(&metadata, entry, &acks);
            if right < metadata.quorums.ack as usize {
                known.wrong.push(format!(
                    "entry {entry} of ledger {ledger} was confirmed by {right} members that metadata name"
                ));
            }
        }
        known.at_confirmation.insert(key, acks);
    }

    /// The caller of an append is told that it is stored.
    fn completed(&self, ledger: LedgerId, entry: EntryId) {
        {
            let mut known = self.known();
            let next = known.completed.entry(ledger).or_default();
            let expected = *next;
            *next = entry.next();
            if expected != entry {
                known.wrong.push(format!(
                    "entry {entry} of ledger {ledger} was completed, {expected} was next"
                ));
            }
        }
        self.confirmed(ledger, entry);
    }

    /// What was proposed before a completion may have landed after it: the members that count are those of the end.
    fn finish(&self, recovered: bool) -> Vec<String> {
        let mut known = self.known();
        let mut wrong = std::mem::take(&mut known.wrong);
        for ((ledger, entry), acks) in &known.at_confirmation {
            let Some(metadata) = self.metadata(*ledger).filter(|_| !recovered) else {
                continue;
            };
            let right = count(&metadata, *entry, acks);
            if right < metadata.quorums.ack as usize {
                wrong.push(format!(
                    "entry {entry} of ledger {ledger} was confirmed by {right} members that metadata name in the end"
                ));
            }
        }
        wrong
    }
}

/// Appends; completions go to the observer in the order in which they come.
fn send(observer: &Observer, process: &Process, writer: &LedgerWriter) {
    let (ledger, number) = (writer.ledger(), writer.appended_end());
    let answer = writer.append(entry(number.0, "observed".into()));
    if writer.appended_end() == number {
        return;
    }
    let (observer, process) = (observer.clone(), process.clone());
    tokio::spawn(async move {
        if let Some(Ok(appended)) = process.heard(answer).await {
            observer.completed(ledger, appended.entry);
        }
    });
}

fn set_rates(world: &World, rng: &mut impl Rng) {
    world.network.set_rates(NetworkRates {
        drop: *[0.0, 0.03].choose(rng).expect("two"),
        late: *[0.0, 0.1, 0.25].choose(rng).expect("three"),
        twice: *[0.0, 0.05].choose(rng).expect("two"),
        delay_max: Duration::from_millis(8),
        late_max: Duration::from_millis(1_800),
    });
    world.set_metadata_rates(MetadataRates {
        unavailable: *[0.0, 0.1].choose(rng).expect("two"),
        unknown: *[0.0, 0.3, 0.7].choose(rng).expect("three"),
        delay_max_ms: *[2, 60].choose(rng).expect("two"),
        late_max_ms: 2_500,
    });
}

/// One seed: a writer among six bookies that come and go; what the observer found, and how many entries were confirmed.
fn run(seed: u64, mutant: Option<Mutant>) -> (Vec<String>, u64, u64) {
    runtime().block_on(async move {
        let mut rng = Seeds(seed).stream("confirmations");
        let shape = *[
            USUAL,
            USUAL,
            quorums(3, 2, 2),
            quorums(3, 3, 3),
            quorums(2, 2, 2),
        ]
        .choose(&mut rng)
        .expect("there are shapes");
        let world = Arc::new(World::new(WorldSetup {
            seed,
            whole_trace: false,
            quorums: shape,
            bookies: 6,
            mutant,
        }));
        world.start_bookies().await;
        let observer = Observer::watch(&world);
        let scene = super::scene::Scene {
            world: world.clone(),
            book: Default::default(),
        };
        let w = Process::new("w");
        let writer = scene.create(&w).await;
        set_rates(&world, &mut rng);
        let recovered = rng.random_bool(0.3);
        let pace = *[8, 40, 90].choose(&mut rng).expect("three paces");
        for number in 0..100 {
            send(&observer, &w, &writer);
            sleep(Duration::from_millis(rng.random_range(0..=pace))).await;
            let bookie = world.bookies.choose(&mut rng).expect("six").clone();
            match rng.random_range(0..60) {
                0..2 => bookie.crash(PowerLoss::Yes),
                2 => bookie.hold_down(PowerLoss::Yes),
                3 => bookie.start().await,
                4 => world.network.cut("w", bookie.name()),
                5 => world.network.mend(),
                6 if recovered && number > 40 => {
                    let _ = scene.recover(&Process::new("r"), writer.ledger()).await;
                }
                _ => {}
            }
        }
        sleep(Duration::from_secs(4)).await;
        world.heal().await;
        sleep(Duration::from_secs(9)).await;
        world.faults.land_all().await;
        let fragments = scene
            .metadata(writer.ledger())
            .map_or(0, |metadata| metadata.fragments.len() as u64);
        let told = observer
            .known()
            .completed
            .get(&writer.ledger())
            .map_or(0, |end| end.0);
        (observer.finish(recovered), told, fragments)
    })
}

/// 2: "LAC monotonic and gapless; caller completions in entry order; no completion counts an ack from outside the committed ensemble
/// or an unresolved proposal."
#[test]
fn confirmations_are_gapless_and_of_members_that_metadata_name() {
    let (mut confirmed, mut fragments) = (0, 0);
    for seed in 0..120 {
        let (wrong, told, changes) = run(seed, None);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        confirmed += told;
        fragments += changes;
    }
    assert!(
        confirmed > 3_000 && fragments > 200,
        "{confirmed} entries, {fragments} fragments"
    );
    println!("confirmations: {confirmed} entries, {fragments} fragments");
}

/// The observer sees each way to count what does not count.
#[test]
fn observer_sees_acks_that_do_not_count() {
    for mutant in [
        Mutant::ConfirmBelowAckQuorum,
        Mutant::ReplacedMemberCounts,
        Mutant::ProposedMemberCounts,
        Mutant::UnresolvedReplacedCounts,
        Mutant::OldVersionEndsProposal,
        Mutant::SecondProposal,
    ] {
        let found = (0..500).find(|seed| !run(*seed, Some(mutant)).0.is_empty());
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} is not seen");
    }
}
