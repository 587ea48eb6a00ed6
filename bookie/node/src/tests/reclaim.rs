//! Space comes back (storage.md §6): what is dead is unlinked or compacted away, whatever lives is found where it is then, and no crash
//! in between loses it or leaves two copies for ever (§12 tests 15 and 17, crash points 10 and 11 of §10).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::bookie::BookieError;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::NodeConfig;
use crate::core::{Event, KnownDamage, NodeCore};
use crate::disk::Disk;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::step::{StepAnswer, StepNode};

const FILE: u64 = 128 << 10;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: FILE,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

/// Reclaims until nothing is left to do.
pub(super) fn reclaim(rig: &mut Rig) {
    for _ in 0..10_000 {
        let output = rig.node.reclaim();
        let busy = output.busy;
        assert!(rig.take(output.output).is_empty());
        assert!(rig.settle().is_empty());
        if !busy {
            return;
        }
    }
    panic!("reclaim finds no end");
}

/// Ledgers 1 to 4 side by side in several files.
fn fill(rig: &mut Rig) {
    for round in 0..30 {
        for ledger in 1..=4 {
            rig.store(ledger, round..round + 1, 4_000);
        }
    }
}

fn delete(rig: &mut Rig, ledger: u64) {
    assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    rig.confirmed.retain(|(of, _)| *of != ledger);
}

fn names(disk: &MemoryDisk, ending: &str) -> Vec<String> {
    let names = disk.list().unwrap().into_iter();
    names.filter(|name| name.ends_with(ending)).collect()
}

/// Bytes of what lives.
fn live_bytes(rig: &Rig) -> u64 {
    rig.confirmed.len() as u64 * 4_300
}

/// What lives, the file that is written, the next one, and two that are too new.
fn floor(rig: &Rig) -> u64 {
    live_bytes(rig) + 5 * FILE
}

/// Each start leaves a short file; joined ones are short for their overhead alone, and are not copied for ever.
#[test]
fn short_files_of_many_starts_are_joined_and_then_left_alone() {
    let mut rig = Rig::new(small());
    for boot in 0..6 {
        rig.store(1, boot..boot + 1, 100);
        rig = rig.reopen(small(), Survival::Everything, &[]);
        rig.node.idle();
    }
    reclaim(&mut rig);
    rig.check();
}

#[test]
fn wholly_dead_files_are_unlinked_and_their_numbers_are_not_missed() {
    let mut rig = Rig::new(small());
    rig.store(1, 0..200, 4_000);
    rig.store(2, 0..5, 4_000);
    let full = rig.disk.used();
    delete(&mut rig, 1);
    reclaim(&mut rig);
    assert!(rig.disk.used() < full - 4 * FILE, "{}", rig.disk.used());
    assert!(
        names(&rig.disk, ".cmp").is_empty(),
        "nothing was worth a copy"
    );
    rig.check();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(rig.node.damage().is_empty(), "{:?}", rig.node.damage());
    assert!(rig.is_dead(1));
    rig.check();
}

#[test]
fn half_dead_files_are_compacted_and_found_again_after_a_start() {
    let mut rig = Rig::new(small());
    fill(&mut rig);
    let full = rig.disk.used();
    for ledger in 2..=4 {
        delete(&mut rig, ledger);
    }
    reclaim(&mut rig);
    assert!(!names(&rig.disk, ".cmp").is_empty());
    assert!(rig.disk.used() < full / 2 + 2 * FILE);
    assert!(rig.disk.used() <= floor(&rig), "{}", rig.disk.used());
    rig.check();
    for survival in [Survival::Nothing, Survival::Everything] {
        rig = rig.reopen(small(), survival, &[]);
        assert!(rig.node.damage().is_empty(), "{:?}", rig.node.damage());
        rig.check();
        reclaim(&mut rig);
        rig.check();
    }
    // And what was moved dies as anything else.
    let moved = names(&rig.disk, ".cmp");
    rig.store(9, 0..100, 4_000);
    delete(&mut rig, 1);
    reclaim(&mut rig);
    let left = rig.disk.list().unwrap();
    assert!(moved.iter().all(|name| !left.contains(name)), "{left:?}");
    rig.check();
}

#[test]
fn fences_and_tombstones_outlive_the_files_that_they_stood_in() {
    let mut rig = Rig::new(small());
    rig.store(1, 0..3, 1_000);
    rig.store(2, 0..3, 1_000);
    assert!(matches!(rig.fence(1, 7), StepAnswer::Fence(Ok(_))));
    delete(&mut rig, 2);
    rig.store(3, 0..120, 4_000);
    delete(&mut rig, 3);
    rig.store(4, 0..120, 4_000);
    reclaim(&mut rig);
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert_eq!(
        rig.node.core().state().ledgers[&LedgerId(1)].fence,
        FenceToken(7)
    );
    assert!(rig.is_dead(2) && rig.is_dead(3));
    rig.check();
}

#[test]
fn damaged_live_entry_keeps_its_file_and_stops_no_other() {
    let mut rig = Rig::new(small());
    fill(&mut rig);
    let slot = rig.node.slot(LedgerId(1), EntryId(1)).unwrap();
    let source = log_files(&rig.disk)[slot.location.file as usize].clone();
    let last = u64::from(slot.location.offset + slot.location.bytes) - 1;
    rig.disk.flip(&source, last, 3);
    for ledger in 2..=4 {
        delete(&mut rig, ledger);
    }
    reclaim(&mut rig);
    assert!(rig.disk.list().unwrap().contains(&source), "it is evidence");
    assert!(!names(&rig.disk, ".cmp").is_empty(), "the others went on");
    assert!(rig.node.core().is_damaged(LedgerId(1), EntryId(1)));
    rig.confirmed.remove(&(1, 1));
    rig.check();
    // A new copy comes, as repair would send it; then the file may go.
    let copy = recovery_add(rig.to(1), entry(1, 1, 4_000), 1);
    let (_, output) = rig.node.add(copy);
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    rig.confirmed.insert((1, 1));
    rig.store(5, 0..60, 4_000);
    rig.node.advance(std::time::Duration::from_secs(60));
    reclaim(&mut rig);
    assert!(!rig.disk.list().unwrap().contains(&source));
    rig.check();
}

#[test]
fn scrub_finds_a_flipped_bit_before_a_reader_does() {
    let mut rig = Rig::new(NodeConfig {
        scrub_interval: std::time::Duration::from_secs(10),
        ..small()
    });
    fill(&mut rig);
    let slot = rig.node.slot(LedgerId(3), EntryId(2)).unwrap();
    let name = log_files(&rig.disk)[slot.location.file as usize].clone();
    rig.disk
        .flip(&name, u64::from(slot.location.offset) + 90, 3);
    for _ in 0..40 {
        rig.node.advance(std::time::Duration::from_secs(5));
        reclaim(&mut rig);
    }
    let damaged: Vec<(u64, u64)> = rig
        .confirmed
        .iter()
        .copied()
        .filter(|(ledger, entry)| {
            rig.node
                .core()
                .is_damaged(LedgerId(*ledger), EntryId(*entry))
        })
        .collect();
    assert_eq!(damaged, [(3, 2)]);
    let mut known = KnownDamage::default();
    assert_eq!(rig.node.core().damage_page(None, &mut known), None);
    let named = known
        .entries
        .iter()
        .map(|one| (one.ledger.0, one.first.0, one.end.0));
    assert_eq!(named.collect::<Vec<_>>(), [(3, 2, 3)]);
    assert_eq!(known.ranges, []);
}

#[test]
fn compaction_without_room_leaves_no_second_copy_and_works_once_there_is_room() {
    let mut rig = Rig::new(small());
    fill(&mut rig);
    for ledger in 2..=4 {
        delete(&mut rig, ledger);
    }
    rig.disk.set_capacity(Some(rig.disk.used() + 1_000));
    rig.node.look_at_disk();
    let full = rig.disk.used();
    reclaim(&mut rig);
    assert!(rig.disk.used() <= full);
    assert!(names(&rig.disk, ".cmp").is_empty() && names(&rig.disk, ".tmp").is_empty());
    rig.disk.set_capacity(Some(full + 2 * FILE));
    rig.node.look_at_disk();
    rig.node.advance(std::time::Duration::from_secs(60));
    reclaim(&mut rig);
    assert!(rig.disk.used() <= floor(&rig), "{}", rig.disk.used());
    rig.check();
}

#[test]
fn file_that_is_needed_is_never_removed_whoever_asks() {
    let mut rig = Rig::new(small());
    fill(&mut rig);
    let files = rig.node.core().sealed_files();
    rig.node.event(Event::RemoveFiles(files.clone()));
    rig.node.event(Event::FilesReplaced(files));
    reclaim(&mut rig);
    rig.check();
}

#[test]
fn collected_ledgers_are_buried_like_deleted_ones() {
    let mut rig = Rig::new(small());
    fill(&mut rig);
    let dead = vec![LedgerId(1), LedgerId(2), LedgerId(3), LedgerId(77)];
    rig.node.event(Event::Collected(dead));
    rig.settle();
    rig.confirmed.retain(|(ledger, _)| *ledger == 4);
    assert!(rig.is_dead(1) && !rig.is_dead(77), "77 was never here");
    reclaim(&mut rig);
    assert!(rig.disk.used() <= floor(&rig), "{}", rig.disk.used());
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(rig.is_dead(3));
    rig.check();
}

/// One run of the crash matrix: fills, deletes and reclaims until the disk stops.
struct Matrix {
    node: StepNode,
    disk: MemoryDisk,
    confirmed: BTreeSet<(u64, u64)>,
    deleted: BTreeSet<u64>,
    /// Deletions that were asked for and not answered.
    dying: BTreeSet<u64>,
    point: u8,
}

impl Matrix {
    fn settle(&mut self, wait: Option<(u64, u64)>) -> Result<(), u8> {
        let output = self.node.settle();
        if self.disk.stopped() || self.node.core().failed().is_some() {
            return Err(self.point);
        }
        for (_, answer) in output.answers {
            match (answer, wait) {
                (StepAnswer::Add(Ok(())), Some(key)) => drop(self.confirmed.insert(key)),
                (StepAnswer::Delete(Ok(())), Some((ledger, _))) => {
                    self.deleted.insert(ledger);
                }
                (answer, _) => panic!("{answer:?}"),
            }
        }
        Ok(())
    }

    fn add(&mut self, ledger: u64, number: u64) -> Result<(), u8> {
        let to = self.node.address(LedgerId(ledger));
        let (_, output) = self.node.add(add(to, entry(ledger, number, 4_000)));
        for ledger in output.verify {
            self.node.verified(ledger, crate::core::Verdict::Open);
        }
        self.settle(Some((ledger, number)))
    }

    fn delete(&mut self, ledger: u64) -> Result<(), u8> {
        self.point = 11;
        self.dying.insert(ledger);
        let to = self.node.address(LedgerId(ledger));
        self.node.delete(to);
        self.settle(Some((ledger, 0)))
    }

    fn reclaim(&mut self) -> Result<(), u8> {
        self.point = 10;
        loop {
            let output = self.node.reclaim();
            self.settle(None)?;
            if !output.busy {
                return Ok(());
            }
        }
    }

    fn run(&mut self) -> Result<(), u8> {
        for number in 0..16 {
            for ledger in 1..=4 {
                self.add(ledger, number)?;
            }
        }
        for ledger in [2, 3] {
            self.delete(ledger)?;
            self.reclaim()?;
        }
        for number in 16..32 {
            self.add(1, number)?;
            self.add(4, number)?;
        }
        self.delete(4)?;
        self.reclaim()?;
        // A second generation: what was compacted is compacted again.
        for number in 0..40 {
            self.add(5, number)?;
        }
        self.delete(5)?;
        self.reclaim()
    }
}

/// The run until the kill; where it struck, if it did.
fn run(disk: &MemoryDisk, stop: u64) -> (Option<u8>, Matrix) {
    let node = StepNode::open(small(), Arc::new(disk.clone()), 1, &[]).unwrap();
    disk.stop_after(stop);
    let mut matrix = Matrix {
        node,
        disk: disk.clone(),
        confirmed: BTreeSet::new(),
        deleted: BTreeSet::new(),
        dying: BTreeSet::new(),
        point: 1,
    };
    let killed = matrix.run().err();
    (killed, matrix)
}

/// Whatever the crash left: everything that lives is there and right, everything deleted is dead, and what is left to free is freed.
fn judge(disk: &MemoryDisk, matrix: &Matrix, case: &str) {
    let mut rig = Rig::on(disk.clone(), small(), &[]);
    assert!(
        rig.node.damage().is_empty(),
        "{case}: {:?}",
        rig.node.damage()
    );
    let look = |rig: &mut Rig, when: &str| {
        for &(ledger, number) in &matrix.confirmed {
            let found = rig.node.read(&read(rig.to(ledger), number, number + 1));
            match found {
                Ok(found) => {
                    let right = entry(ledger, number, 4_000);
                    assert_eq!(found[0].entry.header(), right.header(), "{case} {when}");
                    assert_eq!(found[0].entry.body(), right.body(), "{case} {when}");
                }
                Err(BookieError::Deleted { .. }) if matrix.dying.contains(&ledger) => {}
                Err(error) => {
                    panic!("{case} {when}: entry {number} of ledger {ledger}: {error}")
                }
            }
        }
        for &ledger in &matrix.deleted {
            assert!(rig.is_dead(ledger), "{case} {when}: {ledger} is undeleted");
        }
    };
    look(&mut rig, "after the start");
    for ledger in &matrix.dying {
        assert!(matches!(rig.delete(*ledger), StepAnswer::Delete(Ok(()))));
    }
    // Enough to make what was written before old.
    rig.store(8, 0..60, 4_000);
    reclaim(&mut rig);
    look(&mut rig, "after reclaim");
    let lives = matrix
        .confirmed
        .iter()
        .filter(|(ledger, _)| !matrix.dying.contains(ledger));
    let most = (lives.count() as u64 + 60) * 4_300 + 5 * FILE;
    let used = rig.disk.used();
    assert!(used <= most, "{case}: {used} of {most}: {:?}", disk.list());
    assert!(names(disk, ".tmp").is_empty(), "{case}: a copy was left");
}

#[test]
fn crash_anywhere_in_reclaim_loses_nothing_and_the_space_comes_back() {
    let mut hits: BTreeMap<u8, u32> = BTreeMap::new();
    let mut steps: BTreeSet<String> = BTreeSet::new();
    for stop in 0.. {
        let disk = MemoryDisk::default();
        let (killed, matrix) = run(&disk, stop);
        let Some(point) = killed else {
            assert!(matrix.deleted.len() == 4 && matrix.confirmed.len() > 100);
            judge(&disk.fork(), &matrix, "the whole run");
            break;
        };
        *hits.entry(point).or_default() += 1;
        // What comes before is tested elsewhere.
        if point == 1 {
            continue;
        }
        // Nothing was refused when the kill struck just behind the last call.
        if let Some((operation, name)) = disk.struck() {
            let kind = name.trim_start_matches(|c: char| c.is_ascii_digit());
            steps.insert(format!("{operation} {kind}"));
        }
        for (name, seed) in [("nothing", 0), ("everything", 1), ("a", 2), ("b", 3)] {
            let survivor = disk.fork();
            let mut rng = ChaCha12Rng::seed_from_u64(stop * 10 + seed);
            survivor.crash(match seed {
                0 => Survival::Nothing,
                1 => Survival::Everything,
                _ => Survival::Random(&mut rng),
            });
            judge(&survivor, &matrix, &format!("kill {stop}, {name} survives"));
        }
    }
    for point in [10, 11] {
        let count = hits.get(&point).copied().unwrap_or(0);
        report(&format!("crash point {point}: {count} hits"));
        assert!(count > 3, "crash point {point} was never hit");
    }
    // Crash point 10, step by step: the copy, its footer, its name, the record of what it replaces, and between what goes then. (A
    // log file's handle keeps the name that it was made by.)
    for step in [
        "create compacted.tmp",
        "write compacted.tmp",
        "truncate compacted.tmp",
        "sync compacted.tmp",
        "rename compacted.tmp",
        "sync directory ",
        "write log.tmp",
        "sync log.tmp",
        "remove .idx",
    ] {
        assert!(steps.contains(step), "no kill at {step:?}: {steps:?}");
    }
}

#[test]
fn state_of_reclaim_is_the_same_after_a_start() {
    let mut rig = Rig::new(small());
    fill(&mut rig);
    delete(&mut rig, 2);
    let facts = |core: &NodeCore| {
        let stock = core.stock();
        let files = stock.files.iter().map(|f| (f.file, f.live));
        files.collect::<BTreeMap<_, _>>()
    };
    let before = facts(rig.node.core());
    let rig = rig.reopen(small(), Survival::Nothing, &[]);
    let after = facts(rig.node.core());
    for (file, live) in before {
        assert_eq!(after.get(&file), Some(&live), "file {file}");
    }
}
