//! Full disks: when the owner is told, and when not (storage.md, amended D1).

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::entry::EntryClass;
use hulse_proto::error::Fate;

use super::scene::{Scene, limbo, silent};
use super::{Bench, LEDGER, busy};
use crate::tests::{data, member};
use crate::writer::{WriterEffect, WriterEvent};
use crate::{AppendError, NotWritten, WriterEnd};

const PATIENCE: Duration = Duration::from_millis(501);

fn read_only() -> BookieError {
    let why = "the disk is full".to_owned();
    BookieError::ReadOnly { why }
}

fn lost() -> BookieError {
    let why = String::new();
    BookieError::NoAnswer { why }
}

fn times_full(bench: &Bench) -> usize {
    let full = |effect: &&WriterEffect| matches!(effect, WriterEffect::Full { why } if why.contains("the disk is full"));
    bench.other.iter().filter(full).count()
}

/// Every member that is asked now refuses because it is read-only.
fn refuse_probes(bench: &mut Bench, time: Duration) {
    let until = bench.now + time;
    while bench.now < until {
        let asked = bench.sent.len();
        bench.pass(Duration::from_millis(5));
        for at in asked..bench.sent.len() {
            let tag = bench.sent[at].tag();
            let result = Err(read_only());
            bench.event(WriterEvent::Answer { tag, result });
        }
    }
}

#[test]
fn only_member_that_stays_read_only_makes_the_ledger_full_once() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(1);
    bench.ack(0, 0);
    bench.append(2);
    bench.answer(1, 0, Err(read_only()));
    assert_eq!(times_full(&bench), 0, "not at the first word");
    refuse_probes(&mut bench, PATIENCE);
    refuse_probes(&mut bench, PATIENCE);
    assert_eq!(times_full(&bench), 1);
    assert!(bench.ended.is_none());
    bench.event(WriterEvent::Stop);
    let drained = |effect: &WriterEffect| matches!(effect, WriterEffect::Drained);
    assert!(bench.other.iter().any(drained), "nothing is waited for");
    bench.event(WriterEvent::Freeze);
    bench.event(WriterEvent::CloseCommitted);
    assert!(matches!(bench.ended, Some(WriterEnd::Closed { .. })));
    let failed: Vec<u64> = bench.failed.iter().map(|(entry, _)| *entry).collect();
    assert_eq!(failed, vec![1, 2]);
    for (_, error) in &bench.failed {
        let AppendError::NotWritten { why } = error else {
            panic!("{error:?}")
        };
        assert!(matches!(why, NotWritten::Closed { end, .. } if end.0 == 1));
        assert_eq!(error.fate(), Fate::NotApplied);
    }
}

#[test]
fn room_that_comes_back_in_time_goes_unnoticed() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(1);
    bench.answer(0, 0, Err(read_only()));
    refuse_probes(&mut bench, Duration::from_millis(300));
    while bench.confirmed.is_empty() {
        let asked = bench.sent.len();
        bench.pass(Duration::from_millis(5));
        if bench.sent.len() > asked {
            bench.ack(0, 0);
        }
    }
    bench.append(1);
    bench.ack(1, 0);
    bench.pass(PATIENCE);
    assert_eq!(bench.confirmed, vec![0, 1]);
    assert_eq!(times_full(&bench), 0);
}

#[test]
fn busy_and_silent_members_are_no_full_disk() {
    for error in [busy(), lost()] {
        let mut bench = Bench::new(1, 1, 1);
        bench.append(1);
        bench.answer(0, 0, Err(error));
        bench.pass(Duration::from_secs(8));
        assert_eq!(times_full(&bench), 0);
    }
}

/// A ledger on three members, of which these refused the first entry.
fn refused_by(positions: &[usize]) -> Scene {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    for position in positions {
        scene.bench.answer(0, *position, Err(read_only()));
    }
    scene
}

#[test]
fn two_read_only_members_of_three_make_it_full_when_nobody_can_replace_them() {
    let mut scene = refused_by(&[0, 1]);
    // This survey was asked for when one member still had room.
    scene.survey(&[]);
    refuse_probes(&mut scene.bench, Duration::from_millis(20));
    scene.survey(&[]);
    refuse_probes(&mut scene.bench, PATIENCE);
    assert_eq!(times_full(&scene.bench), 1);
    assert!(scene.bench.ended.is_none());
}

#[test]
fn replaced_read_only_members_make_nothing_full() {
    let mut scene = refused_by(&[0, 1]);
    scene.survey(&[3, 4]);
    let txn = scene.sent().unwrap();
    scene.commit(txn);
    assert_eq!(scene.sent_to(3), vec![0]);
    refuse_probes(&mut scene.bench, Duration::ZERO);
    scene.bench.pass(PATIENCE);
    assert_eq!(times_full(&scene.bench), 0);
    assert_eq!(scene.metadata().last_fragment().ensemble[0], member(3));
}

#[test]
fn one_read_only_member_of_three_leaves_an_ack_quorum() {
    let mut scene = refused_by(&[0]);
    scene.survey(&[]);
    scene.bench.pass(PATIENCE);
    assert_eq!(times_full(&scene.bench), 0);
    scene.bench.ack(0, 1);
    scene.bench.ack(0, 2);
    assert_eq!(scene.bench.confirmed, vec![0]);
}

#[test]
fn useless_members_count_as_gone_and_silent_ones_do_not() {
    for (second, full) in [(limbo(), 1), (lost(), 0)] {
        let mut scene = refused_by(&[0]);
        scene.bench.answer(0, 1, Err(second));
        scene.survey(&[]);
        scene.bench.pass(Duration::from_millis(20));
        while scene.bench.now < Duration::from_secs(3) {
            if scene.surveys() {
                scene.bench.other.push(WriterEffect::Survey);
                scene.survey(&[]);
            }
            scene.bench.pass(Duration::from_millis(50));
        }
        assert_eq!(times_full(&scene.bench), full);
    }
}

/// Without metadata nothing could be closed, and a spare may be there.
#[test]
fn silence_of_metadata_is_no_proof_that_nobody_is_there() {
    let mut scene = refused_by(&[0, 1]);
    while scene.bench.now < Duration::from_secs(3) {
        if scene.surveys() {
            scene.bench.event(WriterEvent::Surveyed(Err(silent())));
        }
        scene.bench.pass(Duration::from_millis(50));
    }
    assert_eq!(times_full(&scene.bench), 0);
}

#[test]
fn drain_of_a_full_ledger_does_not_wait_for_its_time() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(1);
    bench.event(WriterEvent::Stop);
    bench.answer(0, 0, Err(read_only()));
    refuse_probes(&mut bench, PATIENCE);
    assert!(matches!(bench.other[..], [WriterEffect::Drained]));
    assert_eq!(times_full(&bench), 0, "its owner is closing it already");
}

/// What passes read-only bookies is refused only when they are full to the last byte; waiting is all that helps then.
#[test]
fn meta_and_control_heads_make_nothing_full() {
    for class in [EntryClass::Meta, EntryClass::Control] {
        let mut bench = Bench::new(1, 1, 1);
        let mut entry = data(0, 0);
        entry.class = class;
        bench.event(WriterEvent::Append(entry));
        bench.answer(0, 0, Err(read_only()));
        refuse_probes(&mut bench, Duration::from_secs(2));
        assert_eq!(times_full(&bench), 0);
    }
}

#[test]
fn conflict_is_told_with_what_was_sent() {
    let mut bench = Bench::new(3, 3, 2);
    bench.append(1);
    let digest = bench.tag(0, 2).digest;
    let (ledger, entry) = (LEDGER, hulse_proto::id::EntryId(0));
    bench.answer(0, 2, Err(BookieError::Conflict { ledger, entry }));
    let told = bench.other.iter().any(|effect| {
        matches!(effect, WriterEffect::Conflicted { member: from, digest: sent, .. }
            if *from == member(2) && *sent == digest)
    });
    assert!(told, "{:?}", bench.other);
    assert!(bench.ended.is_none());
}
