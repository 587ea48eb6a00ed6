//! Storage.md §12, 1 and 12: what was confirmed is read back after any crash, and with fewer than Qa copies of each entry lost.

use std::time::Duration;

use bookie_node::core::KnownDamage;
use bookie_node::log::LimboKind;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutant;
use tests_harness::crash_point::Side;
use tests_harness::{PowerLoss, Process, SimBookie, runtime};
use tokio::time::{sleep, timeout};

use super::scene::{SHAPES, Scene, USUAL, choices, finds, products};

/// Longer than a short history takes.
const HISTORY: Duration = Duration::from_millis(600);

/// What falls together with the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fall {
    /// Nothing else.
    Writer,
    /// Every bookie loses its power, and comes back.
    AllPower,
    /// Qa - 1 members are never seen again.
    Media,
}

/// Three entries, two of them at once. The writer dies at its effect number `effect`; false when it has fewer.
async fn crash(quorums: Quorums, (effect, side): (u64, Side), fall: Fall) -> bool {
    let case = format!("{quorums:?}, effect {effect} {side:?}, {fall:?}");
    let scene = Scene::new(quorums, quorums.ensemble + quorums.ack - 1).await;
    let w = Process::new("w");
    w.doom(effect, side);
    let history = async {
        let writer = scene.try_create(&w).await?;
        scene.send(&w, &writer);
        scene.send(&w, &writer);
        sleep(Duration::from_millis(40)).await;
        scene.send(&w, &writer);
        sleep(HISTORY).await;
        Some(writer)
    };
    let ended = timeout(HISTORY * 2, async {
        tokio::select! {
            biased;
            () = w.dead() => None,
            writer = history => writer,
        }
    })
    .await;
    let died = w.is_dead();
    w.kill();
    for ledger in scene.book.ledgers() {
        if scene.metadata(ledger).is_some() {
            break_down(&scene, quorums, ledger, fall, effect).await;
            let closed = scene.close("r", ledger, &case).await;
            scene.judge(ledger, &closed).await;
        }
    }
    drop(ended);
    if fall != Fall::Media {
        scene.world.check_copies();
    }
    scene.all_is_well(&case);
    died
}

async fn break_down(scene: &Scene, quorums: Quorums, ledger: LedgerId, fall: Fall, effect: u64) {
    let members = scene.members(ledger);
    match fall {
        Fall::Writer => {}
        Fall::AllPower => {
            for bookie in &members {
                bookie.crash(PowerLoss::Yes);
            }
            sleep(Duration::from_secs(2)).await;
        }
        Fall::Media => {
            let lost = choices(members.len(), quorums.ack as usize - 1);
            for index in &lost[effect as usize % lost.len()] {
                members[*index].hold_down(PowerLoss::Yes);
            }
        }
    }
}

/// 1: "Acked prefix: after any crash schedule with < Qa media losses per entry, all acked offsets read back with the same digest."
/// Here: every effect of a short history as the last one, before and after it, for every shape of quorums.
#[test]
fn acked_prefix_survives_a_crash_at_every_effect() {
    let mut cases = 0;
    for quorums in SHAPES {
        for fall in [Fall::Writer, Fall::AllPower, Fall::Media] {
            for side in [Side::Before, Side::After] {
                let mut effect = 0;
                while runtime().block_on(crash(quorums, (effect, side), fall)) {
                    effect += 1;
                }
                assert!(effect > 6, "{quorums:?}: only {effect} effects");
                cases += effect;
            }
        }
    }
    println!("acked prefix: {cases} crashes");
}

/// Four entries in flight; at this millisecond every bookie loses its power and the writer dies.
async fn blackout(quorums: Quorums, ms: u64, mutant: Option<Mutant>) -> u64 {
    let case = format!("{quorums:?}, blackout after {ms} ms");
    let scene = Scene::with(quorums, quorums.ensemble, mutant).await;
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    scene.fill(&w, &writer, 1).await;
    for _ in 0..3 {
        scene.send(&w, &writer);
    }
    sleep(Duration::from_millis(ms)).await;
    w.kill();
    let confirmed = scene.confirmed(ledger);
    for bookie in scene.members(ledger) {
        bookie.crash(PowerLoss::Yes);
    }
    sleep(Duration::from_secs(2)).await;
    let closed = scene.close("r", ledger, &case).await;
    scene.judge(ledger, &closed).await;
    scene.world.check_copies();
    scene.all_is_well(&case);
    confirmed
}

/// 1, with the power of all bookies at once, at every millisecond of three appends.
#[test]
fn acked_prefix_survives_a_blackout_at_every_millisecond() {
    for quorums in SHAPES {
        let ends = (0..40).map(|ms| runtime().block_on(blackout(quorums, ms, None)));
        let seen: std::collections::BTreeSet<u64> = ends.collect();
        assert!(
            seen.contains(&1) && seen.contains(&4),
            "{quorums:?}: {seen:?}"
        );
    }
}

/// When copies are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Under the running bookies of an open ledger.
    Running,
    /// Their bookies start again and find the damage.
    Restarted,
    /// After the ledger was closed; its bookies start again.
    Closed,
}

/// How they are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Nothing tells any more what stood there.
    Unknown,
    /// Their payload only.
    Payload,
}

/// Loses one set of copies: `lost[e]` are the members whose copy of entry `e` is spoiled.
async fn lose(
    quorums: Quorums,
    lost: &[Vec<usize>],
    (when, how): (When, How),
    mutant: Option<Mutant>,
) {
    let case = format!("{quorums:?}, {when:?}, {how:?}, copies {lost:?}");
    let scene = Scene::with(quorums, quorums.ensemble + quorums.ack - 1, mutant).await;
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    scene.fill(&w, &writer, lost.len() as u64).await;
    assert_eq!(scene.confirmed(ledger), lost.len() as u64, "{case}");
    if when == When::Closed {
        let totals = writer.close(Default::default()).await.expect("it is calm");
        scene.book.end(ledger, totals.end);
    }
    w.kill();
    let members = scene.members(ledger);
    let set = |entry: usize| -> Vec<usize> {
        let steps = 0..quorums.write as usize;
        steps.map(|step| (entry + step) % members.len()).collect()
    };
    let mut spoiled = std::collections::BTreeSet::new();
    for (entry, copies) in lost.iter().enumerate() {
        let set = set(entry);
        for copy in copies {
            let at = set[*copy];
            let entry_id = EntryId(entry as u64);
            let had = match how {
                How::Unknown => members[at].spoil_entry(ledger, entry_id),
                How::Payload => members[at].rot_entry(ledger, entry_id),
            };
            assert!(had, "{case}: member {at} has no entry {entry}");
            spoiled.insert(at);
        }
    }
    if when != When::Running {
        for at in &spoiled {
            members[*at].crash(PowerLoss::Yes);
        }
        sleep(Duration::from_secs(2)).await;
        for at in &spoiled {
            match how {
                How::Unknown => check_start(&members[*at], ledger, when, &case),
                How::Payload => check_rotten(&members[*at], ledger, &case),
            }
        }
    }
    // The end is decided by the members that would hold the next entry.
    let decides = set(lost.len());
    let limbo = decides.iter().filter(|at| spoiled.contains(at)).count();
    let closes = when != When::Restarted || how == How::Payload || limbo < quorums.ack as usize;
    settle(&scene, ledger, closes, &case).await;
}

/// A start that finds damage says so, and puts the ledger into limbo, closed or not.
fn check_start(bookie: &SimBookie, ledger: LedgerId, when: When, case: &str) {
    let found = bookie.node(|node| {
        let state = node.core().state().ledgers.get(&ledger);
        let unknown = state.is_none();
        (
            node.damage().len(),
            state.and_then(|state| state.limbo()),
            unknown,
        )
    });
    let (damage, limbo, unknown) = found.expect("it is up again");
    assert!(damage > 0, "{case}: {} calls it a torn tail", bookie.name());
    // Of a closed ledger all of whose copies are lost nothing is known: then the next add asks metadata.
    let asks = unknown && when == When::Closed;
    assert!(
        asks || limbo == Some(LimboKind::Damage),
        "{case}: {limbo:?}"
    );
}

/// A start that finds nothing but rotten payload says which, and puts nobody into limbo (S3).
fn check_rotten(bookie: &SimBookie, ledger: LedgerId, case: &str) {
    let found = bookie.node(|node| {
        let core = node.core();
        let mut known = KnownDamage::default();
        core.damage_page(None, &mut known);
        let limbo = core.state().ledgers.get(&ledger).map(|state| state.limbo());
        (node.damage().len(), known.entries.len(), limbo)
    });
    let (ranges, entries, limbo) = found.expect("it is up again");
    assert_eq!((ranges, limbo), (0, Some(None)), "{case}");
    assert!(
        entries > 0,
        "{case}: {} calls it a torn tail",
        bookie.name()
    );
}

/// Closes the ledger, by an operator's word when so many members promise nothing that recovery must not; then judges it.
async fn settle(scene: &Scene, ledger: LedgerId, closes: bool, case: &str) {
    let r = Process::new("r");
    if closes {
        let metadata = scene.close("r", ledger, case).await;
        scene.judge(ledger, &metadata).await;
    } else {
        let tried = scene.recover(&r, ledger).await;
        let open = !scene.is_closed(ledger);
        assert!(
            matches!(tried, Some(Err(_))) && open,
            "{case}: closed on the word of limbo: {tried:?}"
        );
        let accepted = scene.world.client(&r).accept_loss(ledger, None).await;
        let metadata = accepted.unwrap_or_else(|error| panic!("{case}: {error}"));
        scene.judge_accepted(ledger, &metadata).await;
    }
    scene.all_is_well(case);
}

/// 1, with copies lost: every way to spoil Qa - 1 copies of each of three entries, other members for other entries included.
/// 12: "Corruption before synced_lsn is reported as damage + limbo, never as a truncated tail; peers repair it": the recovery
/// closes the ledger from the peers with everything that was confirmed.
#[test]
fn acked_prefix_survives_the_loss_of_fewer_than_qa_copies_of_each_entry() {
    let mut cases = 0;
    for quorums in SHAPES {
        let each = choices(quorums.write as usize, quorums.ack as usize - 1);
        for lost in products(&each, 3) {
            for when in [When::Running, When::Restarted, When::Closed] {
                for how in [How::Unknown, How::Payload] {
                    runtime().block_on(lose(quorums, &lost, (when, how), None));
                    cases += 1;
                }
            }
        }
    }
    println!("acked prefix: {cases} sets of lost copies");
}

/// Damages one byte of a member's log; true when an entry was lost there.
async fn damage(block: u64, at: u64, mutant: Option<Mutant>) -> bool {
    let case = format!("block {block}, byte {at}");
    let scene = Scene::with(USUAL, 3, mutant).await;
    let w = Process::new("w");
    let writer = scene.create(&w).await;
    let ledger = writer.ledger();
    scene.fill(&w, &writer, 3).await;
    w.kill();
    let bookie = &scene.members(ledger)[block as usize % 3];
    let entries = |node: &bookie_node::step::StepNode| {
        let state = node.core().state().ledgers.get(&ledger).cloned();
        let limbo = state.as_ref().and_then(|state| state.limbo());
        let held = state.map(|state| state.entries.ranges());
        (held, limbo, node.damage().len())
    };
    let (written, _, _) = bookie.node(entries).expect("it is up");
    bookie.spoil_byte(bookie.newest_log(), block * 4096 + at);
    bookie.crash(PowerLoss::Yes);
    sleep(Duration::from_secs(2)).await;
    let (kept, limbo, damage) = bookie.node(entries).expect("it is up again");
    let lost = kept != written;
    assert!(
        !lost || (damage > 0 && limbo == Some(LimboKind::Damage)),
        "{case}: lost without a word"
    );
    let closed = scene.close("r", ledger, &case).await;
    assert_eq!(closed.closed.expect("closed").end, EntryId(3), "{case}");
    scene.judge(ledger, &closed).await;
    scene.all_is_well(&case);
    lost
}

/// 12, byte by byte: each field of each group of one member's log, that of seals and marks too.
#[test]
fn damage_of_any_group_of_a_member_is_limbo_and_recovery_takes_the_peers() {
    let mut lost = 0;
    for block in 1..9 {
        for at in [0, 7, 20, 40, 63, 64, 70, 100, 150] {
            lost += u32::from(runtime().block_on(damage(block, at, None)));
        }
    }
    assert!(lost > 15, "only {lost} of the flips hit an entry");
}

#[test]
fn acked_prefix_is_broken_without_its_rules() {
    let early = Some(Mutant::AckBeforeSync);
    let crashed = (0..40).any(|ms| finds(|| runtime().block_on(blackout(USUAL, ms, early))));
    assert!(crashed, "an ack before its sync is not seen");
    let lost = vec![vec![0], vec![0], vec![0]];
    let hasty = Some(Mutant::NegativeFromLimbo);
    let closed =
        finds(|| runtime().block_on(lose(USUAL, &lost, (When::Restarted, How::Unknown), hasty)));
    assert!(closed, "a negative from limbo is not seen");
    let cuts = Some(Mutant::TruncateAtFirstBadGroup);
    let cut = finds(|| runtime().block_on(damage(2, 100, cuts)));
    assert!(cut, "a log that is cut at its first bad group is not seen");
}

/// 1, with whole disks lost: Qa - 1 members get fresh disks under their old names, before or after the writer dies.
#[test]
fn acked_prefix_survives_fresh_disks_of_fewer_than_qa_members() {
    for quorums in SHAPES {
        for fresh in choices(quorums.ensemble as usize, quorums.ack as usize - 1) {
            for goes_on in [false, true] {
                runtime().block_on(async {
                    let case =
                        format!("{quorums:?}, fresh {fresh:?}, the writer goes on: {goes_on}");
                    let spares = quorums.ack - 1;
                    let scene = Scene::new(quorums, quorums.ensemble + spares).await;
                    let w = Process::new("w");
                    let writer = scene.create(&w).await;
                    let ledger = writer.ledger();
                    scene.fill(&w, &writer, 3).await;
                    let members = scene.members(ledger);
                    for at in &fresh {
                        members[*at].replace(&*scene.world.store).await;
                        members[*at].start().await;
                    }
                    if goes_on {
                        for _ in 0..3 {
                            scene.send(&w, &writer);
                        }
                        sleep(Duration::from_secs(3)).await;
                        assert_eq!(scene.confirmed(ledger), 6, "{case}");
                    }
                    w.kill();
                    let closed = scene.close("r", ledger, &case).await;
                    scene.judge(ledger, &closed).await;
                    scene.all_is_well(&case);
                });
            }
        }
    }
}
