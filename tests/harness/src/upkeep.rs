//! Repair as it is (`bookie-upkeep`), at random: what members lack is copied, and members of fragments that change no more are replaced
//! without any need (storage.md X2–X6). So its changes come between those of writers, recoverers and deletions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_client::BookieDirectory;
use bookie_metadata::MetadataStore;
use bookie_upkeep::Pace;
use bookie_upkeep::repair::{Hands, RepairEnd, RepairLimits, RepairTask, repair};
use hulse_proto::bookie::{Address, InventoryRequest};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use rand::seq::{IndexedRandom, IteratorRandom as _};
use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use tokio::time::{sleep, timeout};

use crate::bookie::SimBookie;
use crate::process::Process;
use crate::trace;
use crate::world::World;

/// How long it waits for a bookie.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(900);
/// A repair that takes longer is dropped, as if its process had died.
const REPAIR_MAX: Duration = Duration::from_secs(8);

/// Repair, as a process.
pub struct Upkeep {
    world: Arc<World>,
    process: Process,
    store: Arc<dyn MetadataStore>,
    bookies: Arc<dyn BookieDirectory>,
    hands: Hands,
    rng: ChaCha12Rng,
    /// It likes to bring copies back to where they just were.
    goes_back: bool,
}

/// What one round works at.
struct Round {
    ledger: LedgerId,
    metadata: LedgerMetadata,
    /// Which fragment.
    place: usize,
}

impl Upkeep {
    /// One that has done nothing yet.
    pub fn new(world: &Arc<World>, process: Process) -> Self {
        let mut rng = world.seeds.stream(process.name());
        let store = world.upkeep_metadata(&process);
        let bookies: Arc<dyn BookieDirectory> = Arc::new(world.directory(&process));
        let hands = Hands {
            cell: world.cell,
            metadata: Arc::clone(&store),
            bookies: Arc::clone(&bookies),
            pace: Pace::new(1 << 20),
            limits: RepairLimits {
                flying_bytes_max: 2_000,
                copy_tries_max: 3,
                swap_tries_max: 3,
                mutation: world.mutation(),
            },
            answer_timeout: ANSWER_TIMEOUT,
            metadata_timeout: Duration::from_secs(2),
            read_bytes: 1_000,
            rng: Mutex::new(ChaCha12Rng::from_rng(&mut rng)),
        };
        Self {
            world: world.clone(),
            process,
            store,
            bookies,
            hands,
            rng,
            goes_back: false,
        }
    }

    /// From now on mostly bookies get copies that hold strays of them, which they may be letting go of.
    #[must_use]
    pub fn going_back(mut self) -> Self {
        self.goes_back = true;
        self
    }

    /// Works until its process dies.
    pub async fn run(mut self) {
        loop {
            sleep(Duration::from_millis(self.rng.random_range(50..900))).await;
            if self.process.is_dead() {
                return;
            }
            let Some(round) = self.choose().await else {
                continue;
            };
            let position = self.rng.random_range(0..round.fragment_size());
            let task = match self.rng.random_bool(0.4) {
                true => self.filling(&round, position).await,
                false => self.replacing(&round, position),
            };
            if let Some(task) = task {
                self.repair(&round, task).await;
            }
        }
    }

    async fn repair(&self, round: &Round, task: RepairTask) {
        let (fills, ledger) = (task.fills(), task.ledger);
        let trace = &self.world.trace;
        let name = self.process.name();
        trace!(trace, "{name} begins {task:?}");
        let repairing = self.process.heard(repair(&self.hands, task));
        let end = timeout(REPAIR_MAX, repairing).await;
        trace!(trace, "{name} ends with ledger {ledger}: {end:?}");
        let Ok(Some(RepairEnd::Done { entries, .. })) = end else {
            return;
        };
        let counts = &self.world.counts;
        match (fills, round.metadata.state) {
            (true, _) if entries > 0 => counts.add("members given what they lacked by repair"),
            (true, _) => {}
            (false, LedgerState::Open) => counts.add("members of open ledgers replaced by repair"),
            (false, _) => counts.add("members of closed ledgers replaced by repair"),
        }
    }

    /// A fragment, mostly one that changes no more; whether it does is the repair's to judge.
    async fn choose(&mut self) -> Option<Round> {
        let ledgers = self.world.store.ledgers();
        let (number, _) = ledgers.choose(&mut self.rng)?;
        let ledger = LedgerId(*number);
        let found = self.store.get(&ledger_key(ledger)).await.ok()??;
        let metadata = LedgerMetadata::decode(&found.value).ok()?;
        let place = self.rng.random_range(0..metadata.fragments.len());
        Some(Round {
            ledger,
            place,
            metadata,
        })
    }

    /// A random bookie in the place of a member.
    fn replacing(&mut self, round: &Round, position: usize) -> Option<RepairTask> {
        let fragment = &round.metadata.fragments[round.place];
        let (world, ledger) = (&self.world, round.ledger);
        let goes_back = self.goes_back && self.rng.random_bool(0.8);
        let stay = |b: &&Arc<SimBookie>| {
            !world.store.is_leaving(b.name()) && (!goes_back || b.holds(ledger))
        };
        let staying = world.bookies.iter().filter(stay);
        let new = staying
            .filter_map(|b| b.member())
            .filter(|member| !fragment.ensemble.contains(member))
            .choose(&mut self.rng)?;
        Some(RepairTask {
            ledger: round.ledger,
            first: fragment.first,
            position,
            old: fragment.ensemble[position].clone(),
            new,
            lacking: Vec::new(),
        })
    }

    /// What a member says that it does not hold.
    async fn filling(&self, round: &Round, position: usize) -> Option<RepairTask> {
        let fragment = &round.metadata.fragments[round.place];
        let member = fragment.ensemble[position].clone();
        let bound = round.metadata.settled_end(round.place)?;
        let mut held = self
            .held(&member, round.ledger, (fragment.first, bound))
            .await?;
        held.push((bound.0, bound.0));
        let mut lacking = Vec::new();
        let mut at = fragment.first.0;
        for (first, end) in held {
            if at < first {
                lacking.push(at..first);
            }
            at = end;
        }
        Some(RepairTask {
            ledger: round.ledger,
            first: fragment.first,
            position,
            old: member.clone(),
            new: member,
            lacking,
        })
    }

    async fn held(
        &self,
        member: &Member,
        ledger: LedgerId,
        (first, end): (EntryId, EntryId),
    ) -> Option<Vec<(u64, u64)>> {
        let request = InventoryRequest {
            to: Address {
                cell: self.world.cell,
                incarnation: member.incarnation,
                ledger,
            },
            ledgers_end: LedgerId(ledger.0 + 1),
            first,
            end,
            digests: false,
        };
        let asked = self.bookies.calls(member)?.inventory(request);
        let answer = timeout(ANSWER_TIMEOUT, self.process.heard(asked)).await;
        let ledgers = answer.ok()??.ok()?.ledgers.into_iter();
        let runs = ledgers.flat_map(|found| found.runs);
        Some(runs.map(|run| (run.first.0, run.end.0)).collect())
    }
}

impl Round {
    fn fragment_size(&self) -> usize {
        self.metadata.fragments[self.place].ensemble.len()
    }
}
