//! Sealed files: what is held, compared, damaged and forgotten when only footers and a snapshot are read (storage.md 4.4, B7, B11).

use hulse_proto::bookie::{BookieError, RecoveryReadAnswer};
use hulse_proto::id::{EntryId, FenceToken, Incarnation, LedgerId};

use super::support::*;
use crate::NodeConfig;
use crate::core::NodeState;
use crate::disk::Disk;
use crate::disk::memory::Survival;
use crate::log::footer::{Footer, FooterLedger, FooterRun};
use crate::log::format::{FileHeader, side_name};
use crate::log::{BLOCK_BYTES, FileKind, LimboKind, SealedFile};
use crate::step::StepAnswer;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 128 << 10,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

/// Simulated footers, as a start finds them: 10^8 entries of 1,000 partitions in files of 65,000.
#[test]
fn index_of_a_hundred_million_entries_takes_40_bytes_a_run() {
    const LEDGERS: u64 = 1000;
    const ENTRIES: u32 = 65;
    const FILES: u64 = 100_000_000 / (LEDGERS * ENTRIES as u64) + 1;
    let mut state = NodeState::default();
    for ledger in 0..LEDGERS {
        state.ledgers.entry(LedgerId(ledger)).or_default();
    }
    for file in 0..FILES {
        let ledgers = (0..LEDGERS).map(|ledger| FooterLedger {
            ledger: LedgerId(ledger),
            bytes: u64::from(ENTRIES) * 4300,
            confirmed_end: EntryId(0),
            normal: true,
            runs: vec![FooterRun {
                first: EntryId(file * u64::from(ENTRIES)),
                entries: ENTRIES,
            }],
        });
        let footer = footer_of(file, ledgers.collect());
        state.file_sealed(SealedFile::of(&footer, 256 << 20));
    }
    let held = state
        .ledgers
        .values()
        .map(|s| s.entries.len())
        .sum::<usize>();
    assert!(held >= 100_000_000);
    let (bytes, runs) = (state.index_bytes(), FILES * LEDGERS);
    println!("index: {held} entries, {runs} runs, {bytes} bytes");
    assert!(bytes as u64 <= 44 * runs, "{bytes} bytes for {runs} runs");
}

fn footer_of(file: u64, ledgers: Vec<FooterLedger>) -> Footer {
    Footer {
        header: FileHeader {
            kind: FileKind::Log,
            identity: crate::log::DiskIdentity {
                cell: CELL,
                incarnation: Incarnation::default(),
                disk: uuid::Uuid::nil(),
            },
            file,
            salt: 0,
            created_at: 0,
            file_bytes: 256 << 20,
            replaces: Vec::new(),
            counts_as: None,
        },
        first_sequence: 0,
        next_sequence: 1,
        end: 0,
        snapshot_end: 0,
        ledgers,
        damage: Vec::new(),
        state: Vec::new(),
    }
}

/// Two ledgers, interleaved over several files, and every full file sealed.
fn sealed(entries: u64) -> Rig {
    let mut rig = Rig::new(small());
    for number in 0..entries {
        rig.store(1, number..number + 1, 3000);
        rig.store(2, number..number + 1, 100);
        rig.node.idle();
    }
    assert!(!rig.node.wants_seal());
    rig
}

fn holds_all(rig: &mut Rig, entries: u64) {
    for number in 0..entries {
        assert!(rig.has(1, number) && rig.has(2, number), "entry {number}");
    }
    let state = rig.node.core().state();
    for ledger in [1, 2] {
        let held = state.ledgers[&LedgerId(ledger)].entries.ranges();
        assert_eq!(held.first(), Some(&(0..entries)));
    }
}

fn resident(rig: &Rig) -> usize {
    let ledgers = rig.node.core().state().ledgers.values();
    let hot = |state: &crate::ledger::LedgerState| {
        let entries = (0..state.entries.end().0).map(EntryId);
        entries.filter(|e| state.entries.hot(*e).is_some()).count()
    };
    ledgers.map(hot).sum()
}

#[test]
fn entries_of_sealed_files_are_held_by_runs_and_found_through_pages() {
    let mut rig = sealed(200);
    let files = rig.node.core().state().files.len();
    assert!(files > 5, "{files} sealed files");
    assert!(
        resident(&rig) < 60,
        "only the newest file's places are resident"
    );
    holds_all(&mut rig, 200);
    let request = read(rig.to(2), 20, 180);
    assert_eq!(rig.node.read(&request).unwrap().len(), 160);
    let request = hulse_proto::bookie::ReadRequest {
        max_bytes: 10_000,
        ..read(rig.to(1), 20, 180)
    };
    assert_eq!(rig.node.read(&request).unwrap().len(), 3, "cut by bytes");
}

#[test]
fn start_reads_footers_and_what_has_none() {
    let rig = sealed(300);
    let before = rig.node.core().state().clone();
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    holds_all(&mut rig, 300);
    rig.check();
    let scanned = rig.node.scanned_bytes();
    assert!(
        scanned <= 2 * (128 << 10),
        "{scanned} bytes of bodies read, of {} files",
        before.files.len()
    );
    let after = rig.node.core().state();
    assert_eq!(after.files, before.files);
    rig.node.idle();
    assert!(resident(&rig) == 0, "the recovered tail is sealed, too");
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    holds_all(&mut rig, 300);
    rig.store(1, 300..310, 3000);
    rig.check();
}

/// B7 without the digest in memory.
#[test]
fn duplicate_of_a_sealed_entry_is_compared_on_the_disk() {
    let mut rig = sealed(100).reopen(small(), Survival::Nothing, &[]);
    let (_, output) = rig.node.add(add(rig.to(1), entry(1, 3, 3000)));
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    let other = entry(1, 3, 2999);
    let (_, output) = rig.node.add(add(rig.to(1), other));
    assert!(matches!(
        rig.answer(output),
        StepAnswer::Add(Err(BookieError::Conflict { .. }))
    ));
    let count = rig.node.core().state().ledgers[&LedgerId(1)].entries.len();
    assert_eq!(count, 100, "nothing was appended");
    assert!(matches!(rig.fence(1, 2), StepAnswer::Fence(Ok(_))));
    let late = recovery_add(rig.to(1), entry(1, 3, 3000), 2);
    let (_, output) = rig.node.add(late);
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    assert!(matches!(
        rig.recovery_read(1, 2, 3),
        StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Positive(_)))
    ));
    assert!(matches!(
        rig.recovery_read(1, 2, 100),
        StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative { .. }))
    ));
}

/// E2: bad body under a good footer.
#[test]
fn damaged_body_of_a_sealed_file_is_unknown_and_a_copy_heals_it_for_good() {
    let rig = sealed(100);
    let place = rig.node.slot(LedgerId(1), EntryId(5)).unwrap().location;
    let name = log_files(&rig.disk)[place.file as usize].clone();
    rig.disk.flip(&name, u64::from(place.offset) + 500, 2);
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(rig.node.new_limbo().is_empty(), "its body was not read");
    assert!(!rig.has(1, 5) && rig.has(1, 4) && rig.has(1, 6));
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    assert!(matches!(
        rig.recovery_read(1, 1, 5),
        StepAnswer::RecoveryRead(Err(BookieError::Damaged { .. }))
    ));
    let (_, output) = rig.node.add(recovery_add(rig.to(1), entry(1, 5, 3000), 1));
    assert!(matches!(rig.answer(output), StepAnswer::Add(Ok(()))));
    assert!(rig.has(1, 5));
    // The copy counts, hot, sealed and after a start.
    for number in 100..150 {
        rig.store(2, number..number + 1, 3000);
        rig.node.idle();
    }
    assert!(rig.has(1, 5));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(rig.has(1, 5));
}

/// Every bit of a footer counts: whatever is flipped, all entries are there, after one start and after the next.
#[test]
fn damaged_footer_is_made_again_from_the_body() {
    let rig = sealed(60);
    let (disk, name) = (rig.disk.clone(), log_files(&rig.disk)[1].clone());
    let end = rig.node.core().state().files[&1].end;
    let bytes = disk.open(&name).unwrap().bytes().unwrap();
    drop(rig);
    let copy = disk.fork();
    let places = [0, 8, 12, 20, 24, 36, 40, 60];
    let trailer = places.iter().map(|at| bytes - 64 + at);
    let directory = (0..5000)
        .step_by(97)
        .map(|at| end + BLOCK_BYTES as u64 + at);
    for offset in trailer.chain(directory) {
        let disk = copy.fork();
        disk.flip(&name, offset, 5);
        let rig = Rig::on(disk, small(), &[]);
        let mut rig = adopt(rig, 60);
        holds_all(&mut rig, 60);
        assert!(rig.node.damage().is_empty(), "byte {offset}");
        rig.node.idle();
        holds_all(&mut rig, 60);
        let side = rig.disk.open(&side_name(1)).is_ok();
        let read = rig.node.scanned_bytes();
        let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
        holds_all(&mut rig, 60);
        assert!(
            !side || rig.node.scanned_bytes() < read,
            "byte {offset}: the footer's own file is used"
        );
    }
}

/// The oracle of the disk's earlier life.
fn adopt(mut rig: Rig, entries: u64) -> Rig {
    for number in 0..entries {
        rig.expect(1, number, 3000);
        rig.expect(2, number, 100);
    }
    rig
}

#[test]
fn damaged_page_is_made_again_from_the_body_and_stays_so() {
    let rig = sealed(60);
    let end = rig.node.core().state().files[&1].end;
    let name = log_files(&rig.disk)[1].clone();
    rig.disk.flip(&name, end + 33, 1);
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(rig.disk.open(&side_name(1)).is_err());
    holds_all(&mut rig, 60);
    assert!(rig.disk.open(&side_name(1)).is_ok());
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    holds_all(&mut rig, 60);
    assert!(rig.node.damage().is_empty());
}

/// The page is not lost: it waits for room, and nothing is called damaged.
#[test]
fn damaged_page_on_a_full_disk_is_busy_until_there_is_room() {
    let mut rig = sealed(60);
    let end = rig.node.core().state().files[&1].end;
    let name = log_files(&rig.disk)[1].clone();
    rig.disk.flip(&name, end + 33, 1);
    rig.disk.set_capacity(Some(rig.disk.used()));
    let ask = |rig: &mut Rig, number| {
        let request = read(rig.to(1), number, number + 1);
        rig.node.read(&request).map(drop)
    };
    for _ in 0..2 {
        let answers: Vec<_> = (0..60).map(|number| ask(&mut rig, number)).collect();
        let busy =
            |answer: &&Result<(), BookieError>| matches!(answer, Err(BookieError::Busy { .. }));
        let busy = answers.iter().filter(busy).count();
        assert!(busy > 0, "{answers:?}");
        assert_eq!(
            answers.iter().filter(|answer| answer.is_ok()).count(),
            60 - busy
        );
    }
    rig.disk.set_capacity(None);
    holds_all(&mut rig, 60);
}

#[test]
fn damaged_page_over_a_damaged_body_is_unknown_and_nothing_else_is_lost() {
    let mut rig = sealed(60);
    let end = rig.node.core().state().files[&1].end;
    let name = log_files(&rig.disk)[1].clone();
    rig.disk.flip(&name, end + 33, 1);
    rig.disk.ruin(&name, end - 2 * BLOCK_BYTES as u64 + 70);
    let lost: Vec<u64> = (0..60).filter(|number| !rig.has(1, *number)).collect();
    assert!(!lost.is_empty() && lost.len() < 40, "{lost:?}");
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    assert!(matches!(
        rig.recovery_read(1, 1, lost[0]),
        StepAnswer::RecoveryRead(Err(BookieError::Damaged { .. }))
    ));
}

/// One bit of the body flipped, too: it tells all the same where everything stands.
#[test]
fn damaged_page_over_a_body_with_a_flipped_bit_is_made_again() {
    for back in [1, 2, 3] {
        let mut rig = sealed(60);
        let end = rig.node.core().state().files[&1].end;
        let name = log_files(&rig.disk)[1].clone();
        rig.disk.flip(&name, end + 33, 1);
        rig.disk
            .flip(&name, end - back * BLOCK_BYTES as u64 + 70, 1);
        let lost = (0..60).filter(|number| !rig.has(1, *number)).count();
        assert!(lost <= 1, "{lost} with a flip {back} blocks before the end");
        assert!(rig.disk.open(&side_name(1)).is_ok());
    }
}

/// G10: what is no entry lives in the newest file's head, so older files are not needed for it.
#[test]
fn state_survives_without_the_files_it_was_written_in() {
    let mut rig = Rig::new(NodeConfig {
        tombstones_max: 4,
        ..small()
    });
    rig.store(1, 0..3, 100);
    assert!(matches!(rig.fence(1, 7), StepAnswer::Fence(Ok(_))));
    rig.store(2, 0..3, 100);
    for ledger in 10..18 {
        rig.store(ledger, 0..1, 100);
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    }
    for number in 0..60 {
        rig.store(3, number..number + 1, 3000);
        rig.node.idle();
    }
    let before = rig.node.core().state().clone();
    assert!(before.replay_from > 0 && before.dead_below > LedgerId(10));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    for _ in 0..2 {
        let state = rig.node.core().state();
        assert!(state.replay_from >= before.replay_from);
        assert_eq!(state.dead_below, before.dead_below);
        assert_eq!(state.tombstones, before.tombstones);
        let known = |state: &crate::core::NodeState| -> Vec<_> {
            let rows = state.ledgers.iter();
            rows.map(|(ledger, s)| (s.row(*ledger), s.entries.ranges()))
                .collect()
        };
        assert_eq!(
            known(state),
            known(&before),
            "also what is forgotten stays so"
        );
        rig = rig.reopen(small(), Survival::Nothing, &[]);
    }
    assert_eq!(
        rig.node.core().state().ledgers[&LedgerId(1)].fence,
        FenceToken(7)
    );
    assert!(rig.has(1, 2) && rig.has(2, 2));
    assert!(rig.is_dead(10) && rig.is_dead(17));
}

/// The newest snapshot cannot be read: the one before and all records since say the same.
#[test]
fn damaged_snapshot_falls_back_to_the_one_before() {
    let mut rig = sealed(60);
    assert!(matches!(rig.fence(1, 7), StepAnswer::Fence(Ok(_))));
    assert!(matches!(rig.delete(9), StepAnswer::Delete(Ok(()))));
    for number in 60..100 {
        rig.store(2, number..number + 1, 3000);
        rig.node.idle();
    }
    let names = log_files(&rig.disk);
    let newest = rig.node.core().state().replay_from as usize;
    // Behind header and seal.
    rig.disk.ruin(&names[newest], 2 * BLOCK_BYTES as u64 + 70);
    let mut rig = rig.reopen(small(), Survival::Nothing, &[LedgerId(2)]);
    assert_eq!(rig.node.new_limbo(), [LimboKind::Damage]);
    let state = rig.node.core().state();
    assert_eq!(state.ledgers[&LedgerId(1)].fence, FenceToken(7));
    assert!(state.ledgers[&LedgerId(9)].deleted);
    assert!((0..60).all(|number| rig.has(1, number) && rig.has(2, number)));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(rig.node.new_limbo().is_empty());
    assert!((0..60).all(|number| rig.has(1, number)));
}

#[test]
fn footer_waits_for_room_on_a_full_disk_and_nothing_fails() {
    let mut rig = Rig::new(small());
    let write = |rig: &mut Rig, number| {
        rig.add(1, number, 3000);
        let written = rig.node.write_group();
        rig.take(written);
        let synced = rig.node.sync_group();
        rig.take(synced);
    };
    (0..20).for_each(|number| write(&mut rig, number));
    rig.node.make_spare();
    let (used, first) = (rig.disk.used(), rig.node.log_file());
    rig.disk.set_capacity(Some(used));
    (20..40).for_each(|number| write(&mut rig, number));
    assert!(rig.node.log_file() > first, "it rolled");
    rig.node.idle();
    assert!(rig.node.wants_seal() && rig.node.core().failed().is_none());
    assert_eq!(rig.confirmed.len(), 40);
    rig.check();
    // A start needs one small file.
    rig.disk.set_capacity(Some(rig.disk.used() + (64 << 10)));
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
    rig.disk.set_capacity(None);
    rig.node.idle();
    assert!(!rig.node.wants_seal());
    let mut rig = rig.reopen(small(), Survival::Nothing, &[]);
    rig.check();
}
