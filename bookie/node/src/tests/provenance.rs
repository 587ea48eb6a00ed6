//! Which of several copies of an entry counts (storage.md E2, G8): the one that came to the log last, whatever number the file has into
//! which compaction put another. So what healed a damaged entry stays, through seals, starts and reclaim.

use hulse_proto::id::{EntryId, LedgerId};

use super::reclaim::reclaim;
use super::support::*;
use crate::NodeConfig;
use crate::disk::Disk;
use crate::disk::memory::Survival;
use crate::log::format::{BLOCK_BYTES, FileHeader, FileKind, name_of};
use crate::step::StepAnswer;

const FILE: u64 = 128 << 10;
const BODY: usize = 4_000;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: FILE,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn delete(rig: &mut Rig, ledger: u64) {
    assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    rig.confirmed.retain(|(of, _)| *of != ledger);
}

/// Ledgers 1 to 4 side by side, and the first two of them compacted.
fn compacted() -> Rig {
    let mut rig = Rig::new(small());
    for number in 0..30 {
        for ledger in 1..=4 {
            rig.store(ledger, number..number + 1, BODY);
        }
    }
    delete(&mut rig, 3);
    delete(&mut rig, 4);
    reclaim(&mut rig);
    rig
}

/// The compacted file in which an entry lies.
fn header(rig: &Rig, ledger: u64, number: u64) -> FileHeader {
    let slot = rig.node.slot(LedgerId(ledger), EntryId(number)).unwrap();
    let name = name_of(FileKind::Compacted, u64::from(slot.location.file));
    let file = rig.disk.open(&name).expect("it was compacted");
    FileHeader::decode(&file.read_at(0, BLOCK_BYTES).unwrap()).unwrap()
}

/// Damages the copy that counts, heals it, and says in which file it was.
fn heal(rig: &mut Rig, ledger: u64, number: u64) -> FileHeader {
    let header = header(rig, ledger, number);
    let slot = rig.node.slot(LedgerId(ledger), EntryId(number)).unwrap();
    let last = u64::from(slot.location.offset + slot.location.bytes) - 1;
    rig.disk
        .flip(&name_of(FileKind::Compacted, header.file), last, 3);
    assert!(!rig.has(ledger, number), "damage is seen");
    let copy = recovery_add(rig.to(ledger), entry(ledger, number, BODY), 1);
    let (_, output) = rig.node.add(copy);
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    assert!(rig.has(ledger, number), "it is healed");
    header
}

/// Seals the log file of the repair, starts again, and reclaims what is dead, the damaged copy among it.
fn outlives(mut rig: Rig, ledger: u64, number: u64, damaged: &FileHeader) {
    let repaired = rig.node.log_file();
    rig.store(50, 0..100, BODY);
    assert!(rig.node.log_file() > repaired);
    let slot = rig.node.slot(LedgerId(ledger), EntryId(number)).unwrap();
    assert_eq!(u64::from(slot.location.file), repaired);
    assert!(repaired < damaged.file, "or the case is none");
    rig.check();
    for survival in [Survival::Nothing, Survival::Everything] {
        rig = rig.reopen(small(), survival, &[]);
        rig.check();
    }
    delete(&mut rig, 50);
    reclaim(&mut rig);
    rig.store(51, 0..60, BODY);
    reclaim(&mut rig);
    rig.check();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
}

#[test]
fn repair_of_a_compacted_entry_outlives_the_seal_of_its_log_file() {
    let mut rig = compacted();
    let damaged = heal(&mut rig, 1, 1);
    assert_eq!(damaged.counts_as, None);
    outlives(rig, 1, 1, &damaged);
}

/// A compacted file's own number says nothing: those that it replaces may be compacted files, with numbers of their own.
#[test]
fn repair_of_an_entry_that_was_compacted_twice_outlives_the_seal_of_its_log_file() {
    let mut rig = compacted();
    let first = header(&rig, 1, 1);
    rig.store(5, 0..70, BODY);
    delete(&mut rig, 2);
    reclaim(&mut rig);
    let second = header(&rig, 1, 1);
    assert!(second.replaces.contains(&first.file));
    let newest = second
        .counts_as
        .expect("not the number of a compacted file");
    assert!(newest < first.file);
    assert_eq!(second.newest_log_file(), newest);
    let damaged = heal(&mut rig, 1, 1);
    assert_eq!(damaged.file, second.file);
    outlives(rig, 1, 1, &damaged);
}
