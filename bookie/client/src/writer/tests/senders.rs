//! Who said it: refusals of current, replaced and proposed members, and of other lives of their disks (storage.md W3, W6; amended B2).

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::error::Fate;
use hulse_proto::id::{CellId, Incarnation};
use uuid::Uuid;

use super::scene::{Scene, unknown};
use super::{LEDGER, fenced};
use crate::tests::member;
use crate::writer::{AddTag, WriterEffect, WriterEvent};
use crate::{AppendError, WriterEnd};

fn deleted() -> BookieError {
    BookieError::Deleted { ledger: LEDGER }
}

fn wrong_cell() -> BookieError {
    let found = CellId(Uuid::from_u128(9));
    let asked = CellId::default();
    BookieError::WrongCell { found, asked }
}

fn stranger() -> BookieError {
    BookieError::NotInEnsemble { ledger: LEDGER }
}

/// What ends a handle, and what makes it look at metadata.
fn words() -> [BookieError; 4] {
    [fenced(), deleted(), wrong_cell(), stranger()]
}

fn looks(scene: &mut Scene) -> bool {
    scene
        .take(|effect| matches!(effect, WriterEffect::CheckMetadata).then_some(()))
        .is_some()
}

fn say(scene: &mut Scene, tag: AddTag, error: BookieError) {
    let result = Err(error);
    scene.bench.event(WriterEvent::Answer { tag, result });
}

/// The writer is alive: the next entry is confirmed.
fn goes_on(scene: &mut Scene) {
    assert!(scene.bench.ended.is_none(), "{:?}", scene.bench.ended);
    assert!(!looks(scene));
    scene.bench.append(1);
    let entry = scene.bench.core.appended_end().0 - 1;
    for earlier in 0..=entry {
        scene.bench.ack(earlier, 0);
        scene.bench.ack(earlier, 1);
    }
    assert_eq!(scene.bench.confirmed.last(), Some(&entry));
}

#[test]
fn current_member_is_believed() {
    for error in words() {
        let mut scene = Scene::new(2, None);
        scene.bench.append(1);
        let tag = scene.bench.tag(0, 1);
        say(&mut scene, tag, error.clone());
        let asks = matches!(error, BookieError::NotInEnsemble { .. });
        assert_eq!(looks(&mut scene), asks, "{error}");
        assert_eq!(scene.bench.ended.is_some(), !asks, "{error}");
        if asks {
            // Metadata name it all the same: it is asked again.
            scene.bench.pass(Duration::from_millis(6));
            scene.bench.ack(0, 1);
            goes_on(&mut scene);
        }
    }
}

#[test]
fn replaced_member_is_not_believed() {
    for error in words() {
        let (mut scene, txn) = Scene::proposed(2, None);
        let tag = scene.bench.tag(1, 2);
        scene.commit(txn);
        say(&mut scene, tag, error);
        goes_on(&mut scene);
    }
}

#[test]
fn proposed_member_is_not_believed_before_the_commit() {
    for error in words() {
        let (mut scene, txn) = Scene::proposed(2, None);
        // Nothing was sent to it, so such an answer is somebody's mistake.
        let mut tag = scene.bench.tag(1, 2);
        tag.from = member(3);
        tag.address.incarnation = member(3).incarnation;
        say(&mut scene, tag, error);
        assert!(scene.bench.ended.is_none());
        assert!(!looks(&mut scene));
        scene.commit(txn);
        goes_on(&mut scene);
    }
}

#[test]
fn other_life_of_a_members_disk_is_not_believed() {
    for error in words() {
        let mut scene = Scene::new(2, None);
        scene.bench.append(1);
        let mut by_member = scene.bench.tag(0, 1);
        by_member.from.incarnation = Incarnation(Uuid::from_u128(77));
        let mut by_address = scene.bench.tag(0, 1);
        by_address.address.incarnation = Incarnation(Uuid::from_u128(77));
        for tag in [by_member, by_address] {
            say(&mut scene, tag, error.clone());
        }
        goes_on(&mut scene);
    }
}

/// W6 with an unresolved proposal: the member that is to be replaced is still a current one, so its word ends the handle; acks of
/// what was sent count only where they count whatever became of the proposal.
#[test]
fn word_of_the_replaced_member_ends_the_handle_while_its_replacement_is_unresolved() {
    let (mut scene, _) = Scene::proposed(2, None);
    scene.answer(Err(unknown()));
    scene.bench.append(1);
    let tag = scene.bench.tag(1, 2);
    say(&mut scene, tag, fenced());
    assert!(matches!(scene.bench.ended, Some(WriterEnd::Fenced { .. })));
    let sent = scene.bench.sent.len();
    scene.bench.ack(1, 0);
    scene.bench.ack(1, 1);
    assert_eq!(scene.bench.confirmed, vec![0, 1]);
    scene.bench.ack(2, 0);
    scene.bench.pass(Duration::from_secs(11));
    assert_eq!(
        scene.bench.confirmed,
        vec![0, 1],
        "one counted ack of three"
    );
    assert!(matches!(&scene.bench.failed[..],
        [(2, error @ AppendError::Fenced { .. })] if error.fate() == Fate::Unknown));
    assert_eq!(scene.bench.sent.len(), sent, "nothing is sent any more");
    assert!(scene.bench.core.is_finished());
}

/// Amended B2 with an unresolved proposal: metadata may show the proposal's own nonce, which is ours.
#[test]
fn not_in_ensemble_while_a_proposal_is_unresolved_finds_our_own_change() {
    let (mut scene, txn) = Scene::proposed(2, None);
    scene.answer(Err(unknown()));
    scene.table.txn(txn);
    scene.bench.append(1);
    let tag = scene.bench.tag(1, 2);
    say(&mut scene, tag, stranger());
    assert!(looks(&mut scene));
    assert!(scene.bench.core.is_mine(&scene.metadata()));
    scene.bench.pass(Duration::from_millis(10));
    assert!(scene.reads());
    scene.read();
    assert_eq!(scene.sent_to(3), vec![1, 2]);
    goes_on(&mut scene);
}
