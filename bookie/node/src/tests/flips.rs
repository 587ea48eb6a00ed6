//! One flipped bit in every structure of a disk, field by field, on the golden disk of version 1: a file's header, group and record
//! headers, entries, snapshots, marks, footers with their pages, a compacted file, identity, boot. What is read is right or said to be
//! damaged; nothing that is missing is "not here"; a state that may be forgotten is limbo. What a start says is documented per place.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::bookie::{BookieError, RecoveryReadAnswer};
use hulse_proto::id::LedgerId;

use super::golden::{config_of_version_1, disk_of_version_1};
use super::support::*;
use crate::StartError;
use crate::disk::Disk;
use crate::log::LimboKind;
use crate::log::format::{FileKind, file_name, name_of};
use crate::step::{StepAnswer, StepNode};

/// What stands where: file, from, to, name.
fn structures() -> Vec<(String, u64, u64, &'static str)> {
    let (sealed, compacted, open) = (file_name(1), name_of(FileKind::Compacted, 2), file_name(3));
    let text = |name: &str, bytes| (name.to_owned(), 0, bytes);
    let mut all = Vec::new();
    let mut add = |file: &str, from, to, what| all.push((file.to_owned(), from, to, what));
    let (identity, _, bytes) = text("identity", 267);
    add(&identity, 0, bytes, "identity");
    add("boot", 0, 120, "boot");
    for file in [&sealed, &open] {
        add(file, 0, 112, "log file header");
        add(file, 4092, 4096, "log file header");
    }
    add(&compacted, 0, 120, "compacted file header");
    add(&compacted, 4092, 4096, "compacted file header");
    add(&sealed, 4096, 4096 + 200, "state snapshot");
    add(&sealed, 8192, 8192 + 280, "group of entries");
    add(&sealed, 12_288, 12_288 + 16, "footer page");
    add(&sealed, 12_288 + 4080, 16_384, "footer page");
    add(&sealed, 16_384, 16_384 + 112, "footer directory");
    add(&sealed, 20_480 - 4, 20_480 + 260, "footer directory");
    add(&sealed, 24_576 - 64, 24_576, "footer trailer");
    add(&compacted, 4096, 4096 + 500, "group of entries");
    add(&compacted, 8192, 8192 + 110, "seal of a compacted file");
    add(&compacted, 12_288, 12_288 + 32, "footer page");
    add(&compacted, 20_480 - 4, 20_480 + 160, "footer directory");
    add(&compacted, 24_576 - 64, 24_576, "footer trailer");
    add(&open, 4096, 4096 + 330, "state snapshot");
    add(&open, 8192, 8192 + 110, "group of records");
    add(&open, 12_288, 12_288 + 240, "group of entries");
    add(&open, 16_384, 16_384 + 64, "mark");
    all
}

const ENTRIES: [(u64, u64, &str); 4] = [
    (9, 0, "first"),
    (9, 1, "second"),
    (9, 2, "third"),
    (12, 7, "copied"),
];

/// What came of a flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// All is there.
    Whole,
    /// All is there, and the start says that something is damaged.
    Told,
    /// An entry is damaged.
    Damaged,
    /// One is not here, and ledgers are in limbo.
    Limbo,
    /// It does not start.
    Refused,
}

fn see(file: &str, offset: u64, bit: u8) -> Seen {
    let case = format!("{file}, byte {offset}, bit {bit}");
    let disk = disk_of_version_1();
    disk.flip(file, offset, bit);
    let scope = [9, 12, 13].map(LedgerId);
    let node = match StepNode::open(config_of_version_1(), Arc::new(disk.clone()), 1, &scope) {
        Ok(node) => node,
        Err(StartError::Identity(error)) => {
            assert!(error.to_string().contains("identity"), "{case}: {error}");
            return Seen::Refused;
        }
        Err(error) => panic!("{case}: {error}"),
    };
    let mut rig = Rig::with(disk, node);
    let told = !rig.node.damage().is_empty();
    assert_eq!(told, rig.node.new_limbo() == [LimboKind::Damage], "{case}");
    let mut lost = 0;
    for (ledger, number, body) in ENTRIES {
        let request = read(rig.to(ledger), number, number + 1);
        match rig.node.read(&request) {
            Ok(found) => assert_eq!(found[0].entry.body(), body.as_bytes(), "{case}"),
            Err(BookieError::Damaged { .. }) => lost += 1,
            Err(BookieError::NotHere { .. }) if told => lost += 1,
            Err(error) => panic!("{case}: entry {number} of {ledger}: {error}"),
        }
        let answer = rig.recovery_read(ledger, 90, number);
        match answer {
            StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Positive(found))) => {
                assert_eq!(found.entry.body(), body.as_bytes(), "{case}");
            }
            StepAnswer::RecoveryRead(Err(_)) => {}
            other => panic!("{case}: a loss is promised: {other:?}"),
        }
    }
    let state = rig.node.core().state();
    let fenced = |ledger| {
        state
            .ledgers
            .get(&LedgerId(ledger))
            .map_or(0, |known| known.fence.0)
    };
    assert!(told || fenced(13) == 6, "{case}: a fence is forgotten");
    for ledger in [10, 14] {
        assert!(told || rig.is_dead(ledger), "{case}: {ledger} is undeleted");
    }
    rig.store(50, 0..2, 100);
    rig.check();
    match (lost, told) {
        (0, false) => Seen::Whole,
        (0, true) => Seen::Told,
        (_, false) => Seen::Damaged,
        (_, true) => Seen::Limbo,
    }
}

#[test]
fn flipped_bit_anywhere_is_told_and_never_served() {
    let mut seen: BTreeMap<&str, BTreeMap<Seen, u32>> = BTreeMap::new();
    for (file, from, to, what) in structures() {
        for offset in from..to {
            let bit = (offset * 5 % 8) as u8;
            let came = see(&file, offset, bit);
            *seen.entry(what).or_default().entry(came).or_default() += 1;
        }
    }
    for (what, came) in &seen {
        let cases: u32 = came.values().sum();
        println!("{what}: {came:?}");
        report(&format!("flipped bits, {what}: {cases} cases"));
    }
    let only = |what: &str, allowed: &[Seen]| {
        let came: Vec<&Seen> = seen[what].keys().collect();
        assert!(
            came.iter().all(|seen| allowed.contains(seen)),
            "{what}: {came:?}"
        );
    };
    // Letters of a checksum in the other case, and white space, are the same text.
    only("identity", &[Seen::Refused, Seen::Whole]);
    only("boot", &[Seen::Whole]);
    only("log file header", &[Seen::Told, Seen::Limbo]);
    // Its footer has a copy, and its body is read through that.
    only("compacted file header", &[Seen::Whole]);
    only("group of entries", &[Seen::Damaged, Seen::Whole]);
    // What stood there is certain.
    only("state snapshot", &[Seen::Whole]);
    only("group of records", &[Seen::Whole]);
    for footer in [
        "footer page",
        "footer directory",
        "footer trailer",
        "seal of a compacted file",
    ] {
        only(footer, &[Seen::Whole]);
    }
    only("mark", &[Seen::Whole]);
    assert!(seen["identity"][&Seen::Refused] > 200);
}

/// Lost to the last byte, cut off, or empty: as a flip, only more of it.
#[test]
fn cut_and_emptied_files_are_told_and_never_served() {
    for name in [file_name(1), name_of(FileKind::Compacted, 2), file_name(3)] {
        for bytes in [0, 100, 4096, 4200, 8192, 12_288, 16_384, 20_480, 24_000] {
            let disk = disk_of_version_1();
            disk.cut(&name, bytes);
            let scope = [9, 12, 13].map(LedgerId);
            let opened = StepNode::open(config_of_version_1(), Arc::new(disk.clone()), 1, &scope);
            let node = opened.unwrap_or_else(|error| panic!("{name} cut to {bytes}: {error}"));
            let mut rig = Rig::with(disk.clone(), node);
            for (ledger, number, body) in ENTRIES {
                let request = read(rig.to(ledger), number, number + 1);
                match rig.node.read(&request) {
                    Ok(found) => assert_eq!(found[0].entry.body(), body.as_bytes()),
                    Err(BookieError::Damaged { .. } | BookieError::NotHere { .. }) => {
                        let last = name == file_name(3) && bytes >= 4096;
                        assert!(
                            last || !rig.node.damage().is_empty(),
                            "{name} cut to {bytes}"
                        );
                    }
                    Err(error) => panic!("{name} cut to {bytes}: {error}"),
                }
            }
            assert!(disk.list().unwrap().len() > 3);
        }
    }
}
