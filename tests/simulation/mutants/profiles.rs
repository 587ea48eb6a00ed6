//! Histories in which a rule matters, each as a trouble that a run of three members is in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate};
use bookie_metadata::{Op, Txn};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use tests_harness::network::{Delivery, Kind};
use tests_harness::{PowerLoss, SimBookie, World};
use tokio::time::sleep;

/// What a run of E = Qw = 3, Qa = 2 is made of besides its writer.
pub struct Profile {
    /// How many bookies there are.
    pub bookies: u32,
    /// The writer's appends, about one in 10 ms.
    pub appends: u32,
    /// Recoverers.
    pub recoverers: u32,
    /// They begin this long after the trouble, ms.
    pub delay: (u64, u64),
    /// Each dies at most this long after it began, ms.
    pub life_max: Option<u64>,
    /// Plans what goes wrong from now on.
    pub trouble: fn(&Arc<World>, &mut ChaCha12Rng),
    /// Until the world heals.
    pub fire: Duration,
}

/// T1: no fence reaches one member, and the writer's adds reach it late; another one's answers to recovery are lost; the third
/// lacks the newest entries.
pub const LATE_ADDS: Profile = Profile {
    bookies: 3,
    appends: 60,
    recoverers: 1,
    delay: (10, 200),
    life_max: None,
    trouble: late_adds,
    fire: Duration::from_secs(3),
};

/// T4: the newest entries lie at one member; recoverers die while they write them back, and a part of that is lost.
pub const DYING_RECOVERERS: Profile = Profile {
    bookies: 3,
    appends: 60,
    recoverers: 3,
    delay: (50, 1_500),
    life_max: Some(60),
    trouble: dying_recoverers,
    fire: Duration::from_secs(3),
};

/// W4 as amended: the answers of one member are lost until the owner proposes another in its place; that takes effect, and the
/// owner is told late. Meanwhile the member acks again, a second one lacks the newest entries, and the answers of the third to
/// recovery are lost.
pub const LATE_CHANGE: Profile = Profile {
    bookies: 4,
    appends: 300,
    recoverers: 1,
    delay: (750, 1_500),
    life_max: None,
    trouble: late_change,
    fire: Duration::from_secs(4),
};

/// T3: the answers of one member are lost until the owner proposes another in its place, which never takes effect. From then on a
/// second member lacks the newest entries, and the answers of the third to recovery are lost: what the proposed one holds is nobody's.
pub const LOST_CHANGE: Profile = Profile {
    trouble: lost_change,
    ..LATE_CHANGE
};

/// 4.3: one member lacks the newest entries, another one restarts with a bad group in the middle of its log, and the answers of the
/// third to recovery are lost, its fence's too. It alone may know how far the ledger is confirmed, so no add reaches the second
/// behind its damage: such an add would tell that, too.
pub const BAD_GROUP: Profile = Profile {
    bookies: 3,
    appends: 200,
    recoverers: 1,
    delay: (1_500, 2_500),
    life_max: None,
    trouble: bad_group,
    fire: Duration::from_secs(6),
};

/// The names of all bookies, in random order.
fn shuffled(world: &World, rng: &mut ChaCha12Rng) -> Vec<String> {
    let names = world.bookies.iter().map(|bookie| bookie.name().to_owned());
    let mut names: Vec<String> = names.collect();
    names.shuffle(rng);
    names
}

fn late_adds(world: &Arc<World>, rng: &mut ChaCha12Rng) {
    let names = shuffled(world, rng);
    let late = Duration::from_millis(rng.random_range(200..900));
    world.network.script(move |message| {
        let [deaf, mute, lacking] = [0, 1, 2].map(|place| names[place] == message.bookie);
        match (message.kind, message.answer) {
            (Kind::Add, false) if deaf => Some(Delivery::After(late)),
            (Kind::Fence, false) if deaf => Some(Delivery::Drop),
            (Kind::RecoveryRead, true) if mute => Some(Delivery::Drop),
            (Kind::Add, false) if lacking => Some(Delivery::Drop),
            _ => None,
        }
    });
}

fn dying_recoverers(world: &Arc<World>, rng: &mut ChaCha12Rng) {
    let names = shuffled(world, rng);
    let mut chance = world.seeds.stream("write-backs");
    world.network.script(move |message| {
        let full = names[0] == message.bookie;
        match (message.kind, message.answer) {
            (Kind::Add, false) if !full => Some(Delivery::Drop),
            (Kind::WriteBack, false) if !full && chance.random_bool(0.6) => Some(Delivery::Drop),
            _ => None,
        }
    });
}

fn late_change(world: &Arc<World>, rng: &mut ChaCha12Rng) {
    let ledgers = world.store.ledgers();
    let Some((_, metadata)) = ledgers.last() else {
        return;
    };
    let members = metadata.last_fragment().ensemble.iter();
    let mut names: Vec<String> = members.map(|member| member.bookie.to_string()).collect();
    names.shuffle(rng);
    let late = Duration::from_millis(rng.random_range(500..2_000));
    let proposed = Arc::new(AtomicBool::new(false));
    let (replaced, seen) = (names[0].clone(), proposed.clone());
    world.faults.choose(move |call| match call {
        Call::Txn(txn) if replaces(txn, &replaced) => {
            seen.store(true, Ordering::Relaxed);
            Fate::Slow(late)
        }
        _ => Fate::Pass,
    });
    world.network.script(move |message| {
        let [replaced, lacking, mute] = [0, 1, 2].map(|place| names[place] == message.bookie);
        let proposed = proposed.load(Ordering::Relaxed);
        match (message.kind, message.answer) {
            (Kind::Add, true) if replaced && !proposed => Some(Delivery::Drop),
            (Kind::Add, false) if lacking && proposed => Some(Delivery::Drop),
            (Kind::RecoveryRead, true) if mute => Some(Delivery::Drop),
            _ => None,
        }
    });
}

fn lost_change(world: &Arc<World>, rng: &mut ChaCha12Rng) {
    let ledgers = world.store.ledgers();
    let Some((_, metadata)) = ledgers.last() else {
        return;
    };
    let members = metadata.last_fragment().ensemble.iter();
    let mut names: Vec<String> = members.map(|member| member.bookie.to_string()).collect();
    names.shuffle(rng);
    let proposed = Arc::new(AtomicBool::new(false));
    let (replaced, seen) = (names[0].clone(), proposed.clone());
    let silence = Duration::from_millis(rng.random_range(200..1_000));
    world.faults.choose(move |call| match call {
        Call::Txn(txn) if replaces(txn, &replaced) => {
            seen.store(true, Ordering::Relaxed);
            Fate::Silent(silence)
        }
        _ => Fate::Pass,
    });
    world.network.script(move |message| {
        let [replaced, lacking, mute] = [0, 1, 2].map(|place| names[place] == message.bookie);
        let proposed = proposed.load(Ordering::Relaxed);
        match (message.kind, message.answer) {
            (Kind::Add, true) if replaced && !proposed => Some(Delivery::Drop),
            (Kind::Add, false) if (replaced || lacking) && proposed => Some(Delivery::Drop),
            (Kind::RecoveryRead, true) if mute => Some(Delivery::Drop),
            _ => None,
        }
    });
}

fn bad_group(world: &Arc<World>, rng: &mut ChaCha12Rng) {
    let ledgers = world.store.ledgers();
    let Some((ledger, _)) = ledgers.last() else {
        return;
    };
    // Behind the newest file's beginning: of older files a start reads the footer only. And not the last: a later group proves the hole.
    let (ledger, back) = (LedgerId(*ledger), rng.random_range(2..12));
    let names = shuffled(world, rng);
    let damaged = world
        .bookies
        .iter()
        .find(|bookie| bookie.name() == names[0]);
    let spoiled = Arc::new(AtomicBool::new(false));
    if let Some(damaged) = damaged.cloned() {
        let wait = Duration::from_millis(rng.random_range(200..600));
        let now = spoiled.clone();
        tokio::spawn(async move {
            sleep(wait).await;
            let entry = EntryId(held(&damaged, ledger).saturating_sub(back));
            now.store(damaged.spoil_entry(ledger, entry), Ordering::Relaxed);
            damaged.crash(PowerLoss::No);
        });
    }
    world.network.script(move |message| {
        let [damaged, lacking, mute] = [0, 1, 2].map(|place| names[place] == message.bookie);
        let late = damaged && spoiled.load(Ordering::Relaxed);
        match (message.kind, message.answer) {
            (Kind::Add, false) if lacking || late => Some(Delivery::Drop),
            (Kind::Fence | Kind::RecoveryRead, true) if mute => Some(Delivery::Drop),
            _ => None,
        }
    });
}

/// The end of what a bookie holds of a ledger.
fn held(bookie: &SimBookie, ledger: LedgerId) -> u64 {
    let end = bookie.node(|node| {
        let ledger = node.core().state().ledgers.get(&ledger)?;
        Some(ledger.entries.end().0)
    });
    end.flatten().unwrap_or(0)
}

/// True for an owner's change of a ledger that leaves it without `member`.
fn replaces(txn: &Txn, member: &str) -> bool {
    txn.ops.iter().any(|op| match op {
        Op::Put { key, value, .. } if key.starts_with("ledger/") => LedgerMetadata::decode(value)
            .is_ok_and(|metadata| {
                let mut members = metadata.last_fragment().ensemble.iter();
                metadata.state == LedgerState::Open
                    && members.all(|found| found.bookie.as_str() != member)
            }),
        _ => false,
    })
}
