//! Ensemble change, rule by rule (storage.md W7–W12 as amended, §12 tests 2 and 9, trace T3).

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::error::Fate;
use hulse_proto::id::{EntryId, FenceToken};
use hulse_proto::ledger::LedgerState;

use super::scene::{Scene, limbo, silent, unknown};
use super::{LEDGER, busy, fenced};
use crate::WriterEnd;
use crate::tests::member;
use crate::writer::{WriterEffect, WriterEvent};
use hulse_proto::mutant::Mutant;

#[test]
fn change_gives_a_new_member_all_from_its_fragment_on() {
    let (mut scene, txn) = Scene::proposed(2, None);
    assert!(scene.sent_to(3).is_empty(), "not before the commit");
    scene.commit(txn);
    let metadata = scene.metadata();
    let firsts: Vec<u64> = metadata.fragments.iter().map(|f| f.first.0).collect();
    assert_eq!(firsts, vec![0, 1]);
    let members: Vec<_> = [0, 1, 3].map(member).to_vec();
    assert_eq!(metadata.last_fragment().ensemble, members);
    assert_eq!(metadata.degraded[0].bookies, vec![member(2).bookie]);
    assert_eq!(metadata.degraded[0].end, EntryId(1));
    assert_eq!(scene.sent_to(3), vec![1]);
    scene.bench.append(1);
    assert_eq!(scene.sent_to(3), vec![1, 2]);
    scene.bench.ack(1, 2);
    scene.bench.ack(1, 0);
    assert_eq!(scene.bench.confirmed, vec![0, 1]);
    assert_eq!(scene.bench.core.take_committed().unwrap().0, metadata);
}

#[test]
fn change_before_anything_is_confirmed_replaces_the_fragment() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.answer(0, 2, Err(limbo()));
    scene.survey(&[4]);
    let txn = scene.sent().unwrap();
    scene.commit(txn);
    assert_eq!(scene.metadata().fragments.len(), 1);
    assert_eq!(scene.metadata().last_fragment().ensemble[2], member(4));
}

#[test]
fn acks_of_the_replaced_do_not_count_while_a_proposal_is_unresolved() {
    let (mut scene, _) = Scene::proposed(2, None);
    scene.bench.ack(1, 2);
    scene.bench.ack(1, 0);
    assert_eq!(scene.bench.confirmed, vec![0]);
    scene.answer(Err(unknown()));
    scene.bench.pass(Duration::from_millis(10));
    assert!(scene.reads());
    // The old version proves nothing.
    scene.read();
    assert_eq!(scene.bench.confirmed, vec![0]);
    scene.bench.ack(1, 1);
    assert_eq!(scene.bench.confirmed, vec![0, 1]);
}

#[test]
fn unresolved_proposal_is_sent_again_with_the_same_bytes_and_no_other() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.answer(Err(unknown()));
    for _ in 0..5 {
        scene.bench.pass(Duration::from_secs(1));
        assert!(scene.reads());
        scene.read();
        scene.bench.pass(Duration::from_secs(1));
        assert_eq!(scene.sent().as_ref(), Some(&txn));
        scene.answer(Err(unknown()));
        assert!(!scene.surveys(), "one proposal at a time");
        let next = scene.bench.core.appended_end().0;
        scene.bench.append(1);
        for entry in next - 1..=next {
            scene.bench.ack(entry, 0);
            scene.bench.ack(entry, 1);
        }
    }
    assert_eq!(
        scene.bench.confirmed.len(),
        7,
        "one dead member stops nothing"
    );
    // It lands at last, and all that was confirmed meanwhile goes to the new member or is noted.
    scene.table.txn(txn);
    scene.bench.pass(Duration::from_secs(1));
    assert!(scene.reads());
    scene.read();
    let sent = scene.sent_to(3);
    scene.bench.event(WriterEvent::Stop);
    scene.bench.pass(Duration::from_secs(5));
    let degraded = scene.seal().degraded;
    let lacking = degraded
        .iter()
        .find(|range| range.bookies == vec![member(3).bookie])
        .unwrap();
    assert!(lacking.first <= EntryId(1) && !sent.contains(&1));
    assert!(sent.contains(&6));
}

#[test]
fn copy_that_only_the_replaced_hold_is_kept_for_the_new_member() {
    let (mut scene, txn) = Scene::proposed(2, None);
    for position in 0..3 {
        scene.bench.ack(1, position);
    }
    assert_eq!(scene.bench.confirmed, vec![0, 1]);
    scene.commit(txn);
    assert_eq!(scene.sent_to(3), vec![1]);
}

#[test]
fn refused_proposal_counts_everybody_again() {
    let (mut scene, _) = Scene::proposed(2, None);
    scene.bench.ack(1, 2);
    scene.bench.ack(1, 0);
    assert_eq!(scene.bench.confirmed, vec![0]);
    scene.answer(Err(silent()));
    assert_eq!(scene.bench.confirmed, vec![0, 1]);
    scene.bench.pass(Duration::from_secs(2));
    assert!(scene.surveys());
}

#[test]
fn upkeep_that_was_faster_is_followed_by_another_proposal() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.touch(|metadata| metadata.created_at = 7);
    scene.commit(txn.clone());
    scene.bench.pass(Duration::from_millis(1));
    scene.survey(&[3]);
    let second = scene.sent().unwrap();
    assert_ne!(second, txn);
    scene.commit(second);
    assert_eq!(scene.metadata().created_at, 7);
    assert_eq!(scene.sent_to(3), vec![1]);
}

#[test]
fn recovery_that_was_faster_ends_the_writer_and_nothing_counts_any_more() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.touch(|metadata| {
        metadata.state = LedgerState::InRecovery;
        metadata.recovery_token = FenceToken(1);
    });
    scene.commit(txn);
    let end = scene.bench.ended.clone();
    assert!(matches!(end, Some(WriterEnd::MetadataChanged { .. })));
    scene.bench.ack(1, 0);
    scene.bench.ack(1, 1);
    assert_eq!(scene.bench.confirmed, vec![0]);
    assert_eq!(scene.bench.failed[0].1.fate(), Fate::Unknown);
    assert!(scene.bench.core.is_finished());
}

#[test]
fn recovery_over_a_landed_proposal_ends_the_writer() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.table.txn(txn);
    scene.touch(|metadata| metadata.state = LedgerState::InRecovery);
    scene.answer(Err(unknown()));
    scene.bench.pass(Duration::from_millis(10));
    assert!(scene.reads());
    scene.read();
    assert!(scene.bench.core.is_finished());
    assert!(scene.sent_to(3).is_empty());
}

#[test]
fn second_failure_waits_for_a_second_change() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.bench.answer(1, 1, Err(limbo()));
    assert!(!scene.surveys());
    scene.commit(txn);
    scene.survey(&[3, 4]);
    let second = scene.sent().unwrap();
    scene.commit(second);
    let members: Vec<_> = [0, 4, 3].map(member).to_vec();
    assert_eq!(scene.metadata().last_fragment().ensemble, members);
    scene.bench.ack(1, 1);
    scene.bench.ack(1, 2);
    assert_eq!(scene.bench.confirmed, vec![0, 1]);
}

#[test]
fn two_failures_at_once_are_one_change() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.answer(0, 1, Err(limbo()));
    scene.bench.answer(0, 2, Err(limbo()));
    scene.survey(&[3, 4, 5]);
    let txn = scene.sent().unwrap();
    scene.commit(txn);
    assert_eq!(scene.metadata().fragments.len(), 1);
    scene.bench.ack(0, 1);
    scene.bench.ack(0, 2);
    assert_eq!(scene.bench.confirmed, vec![0]);
}

#[test]
fn member_that_came_back_makes_the_change_one_of_nothing() {
    let mut scene = Scene::new(3, None);
    scene.bench.append(1);
    scene.bench.ack(0, 0);
    scene.bench.ack(0, 1);
    scene.bench.answer(0, 2, Err(busy()));
    for _ in 0..20 {
        scene.bench.pass(Duration::from_millis(200));
        scene.bench.answer(0, 2, Err(busy()));
    }
    assert!(
        scene
            .take(|e| matches!(e, WriterEffect::Survey).then_some(()))
            .is_some()
    );
    scene.bench.other.push(WriterEffect::Survey);
    scene.bench.ack(0, 2);
    assert_eq!(scene.bench.confirmed, vec![0]);
    scene.survey(&[3]);
    assert!(scene.sent().is_none());
    scene.bench.event(WriterEvent::Stop);
    assert!(scene.drained());
}

#[test]
fn silent_metadata_leave_the_ledger_on_its_committed_ensemble() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.answer(0, 2, Err(limbo()));
    for round in 0..8 {
        assert!(scene.surveys());
        scene.bench.event(WriterEvent::Surveyed(Err(silent())));
        scene.bench.ack(round, 0);
        scene.bench.ack(round, 1);
        scene.bench.append(1);
        scene.bench.pass(Duration::from_secs(2));
    }
    assert_eq!(scene.bench.confirmed.len(), 8);
    assert!(scene.bench.ended.is_none() && scene.sent().is_none());
}

#[test]
fn survey_that_is_answered_late_proves_nothing() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.answer(0, 2, Err(limbo()));
    scene.bench.pass(Duration::from_millis(1_100));
    scene.survey(&[3]);
    assert!(scene.sent().is_none());
}

#[test]
fn without_a_replacement_the_ledger_goes_on_degraded() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.answer(0, 2, Err(limbo()));
    scene.survey(&[]);
    assert!(scene.sent().is_none());
    scene.bench.ack(0, 0);
    scene.bench.ack(0, 1);
    assert_eq!(scene.bench.confirmed, vec![0]);
    // Nobody was there, so the next look comes after a wait.
    assert!(!scene.surveys());
    scene.bench.pass(Duration::from_millis(6));
    scene.survey(&[5]);
    assert!(scene.sent().is_some());
}

#[test]
fn read_only_member_is_replaced_at_once() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    let why = String::new();
    scene.bench.answer(0, 1, Err(BookieError::ReadOnly { why }));
    scene.survey(&[3]);
    let txn = scene.sent().unwrap();
    scene.commit(txn);
    assert_eq!(scene.metadata().last_fragment().ensemble[1], member(3));
}

#[test]
fn slow_member_is_replaced_after_its_entries_were_released() {
    let mut scene = Scene::new(2, None);
    scene.bench.append(1);
    scene.bench.ack(0, 0);
    scene.bench.ack(0, 1);
    scene.bench.pass(Duration::from_millis(2_100));
    scene.survey(&[3]);
    let txn = scene.sent().unwrap();
    scene.commit(txn);
    assert_eq!(scene.metadata().last_fragment().ensemble[2], member(3));
    assert_eq!(scene.metadata().degraded[0].bookies, vec![member(2).bookie]);
    scene.bench.append(1);
    assert_eq!(scene.sent_to(3), vec![1]);
}

#[test]
fn replaced_member_is_not_heard_any_more() {
    let (mut scene, txn) = Scene::proposed(2, None);
    let old = scene.bench.tag(1, 2);
    scene.commit(txn);
    for result in [
        Ok(()),
        Err(fenced()),
        Err(BookieError::NotInEnsemble { ledger: LEDGER }),
    ] {
        let tag = old.clone();
        scene.bench.event(WriterEvent::Answer { tag, result });
    }
    assert!(scene.bench.ended.is_none());
    assert_eq!(scene.bench.confirmed, vec![0]);
    let checks =
        |effect: &WriterEffect| matches!(effect, WriterEffect::CheckMetadata).then_some(());
    assert!(scene.take(checks).is_none());
}

#[test]
fn replaced_member_is_never_taken_again() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.commit(txn);
    scene.bench.answer(1, 2, Err(limbo()));
    // Of the candidates only the member that failed before is outside the ensemble.
    scene.survey(&[3]);
    assert!(scene.sent().is_none());
}

#[test]
fn drain_waits_for_an_unresolved_proposal() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.bench.ack(1, 0);
    scene.bench.ack(1, 1);
    scene.bench.event(WriterEvent::Stop);
    scene.bench.pass(Duration::from_secs(30));
    assert!(!scene.drained());
    scene.commit(txn);
    scene.bench.pass(Duration::from_secs(30));
    assert!(scene.drained());
    let sealing = scene.seal();
    assert_eq!(sealing.totals.end, EntryId(2));
}

#[test]
fn drain_without_hope_ends_once_the_proposal_is_resolved() {
    let (mut scene, txn) = Scene::proposed(3, None);
    scene.bench.event(WriterEvent::Stop);
    scene.bench.pass(Duration::from_secs(30));
    assert!(!scene.drained());
    let wakeup = scene.bench.core.next_wakeup();
    assert!(wakeup.is_none_or(|at| at > scene.bench.now), "{wakeup:?}");
    scene.commit(txn);
    assert!(scene.drained());
    assert!(scene.bench.ended.is_none());
}

/// T3: metadata are stalled, members are replaced one by one in the writer's mind only; true when an entry is confirmed by them.
fn trace_3(mutant: Option<Mutant>) -> bool {
    let mut scene = Scene::new(2, mutant);
    scene.bench.append(1);
    scene.bench.answer(0, 1, Err(limbo()));
    scene.bench.answer(0, 2, Err(limbo()));
    scene.survey(&[4, 5]);
    assert!(scene.sent().is_some());
    scene.answer(Err(unknown()));
    for call in std::mem::take(&mut scene.bench.sent) {
        if [member(4), member(5)].contains(&call.member) {
            let tag = call.tag();
            scene.bench.event(WriterEvent::Answer {
                tag,
                result: Ok(()),
            });
        }
    }
    !scene.bench.confirmed.is_empty()
}

#[test]
fn trace_3_members_that_metadata_do_not_name_confirm_nothing() {
    assert!(!trace_3(None));
}

#[test]
fn trace_3_with_proposed_members_that_count_confirms_what_recovery_cannot_find() {
    assert!(trace_3(Some(Mutant::ProposedMemberCounts)));
}
