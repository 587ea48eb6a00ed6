//! Proposals: every unknown outcome is resolved exactly, also when the transaction lands after a read that did not show it.

use bookie_metadata::{Compare, MetadataError, Revision, Txn, TxnOutcome, Versioned};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use proptest::prelude::*;

use super::{NonceField, Proposal, ProposalOutcome, ProposalStep};
use crate::tests::{Table, open_metadata};
use hulse_proto::mutant::{Mutant, Mutation};

const KEY: &str = "ledger/1";

fn unknown() -> MetadataError {
    MetadataError::OutcomeUnknown {
        why: "test".to_owned(),
    }
}

fn closing(open: &LedgerMetadata, nonce: u8) -> LedgerMetadata {
    LedgerMetadata {
        state: LedgerState::InRecovery,
        writer_nonce: [nonce; 16],
        ..open.clone()
    }
}

/// A store with the open ledger in it, and a proposal of this writer to change it.
fn start(part: Txn) -> (Table, Proposal) {
    let mut table = Table::default();
    let open = open_metadata(1, 1, 1);
    table.put(KEY, open.encode());
    let version = table.get(KEY).map(|row| row.version);
    let proposal = Proposal::new(
        KEY.to_owned(),
        version,
        &closing(&open, 9),
        NonceField::Writer,
        part,
    );
    (table, proposal)
}

fn send(step: ProposalStep) -> Txn {
    match step {
        ProposalStep::Send(txn) => txn,
        other => panic!("{other:?}"),
    }
}

#[test]
fn proposal_after_an_unknown_outcome_sends_the_same_bytes() {
    let (table, mut proposal) = start(Txn::default());
    let first = send(proposal.start());
    let read = proposal.on_answer(Err(unknown()));
    assert_eq!(read, ProposalStep::Read(KEY.to_owned()));
    let second = send(proposal.on_read(Ok(table.get(KEY))));
    assert_eq!(first, second);
}

#[test]
fn proposal_that_lands_after_the_read_is_committed() {
    let (mut table, mut proposal) = start(Txn::default());
    let first = send(proposal.start());
    proposal.on_answer(Err(unknown()));
    let second = send(proposal.on_read(Ok(table.get(KEY))));
    table.txn(first);
    let step = proposal.on_answer(Ok(table.txn(second)));
    let version = table.get(KEY).unwrap().version;
    assert!(
        matches!(step, ProposalStep::Done(ProposalOutcome::Committed { version: found, .. }) if found == version)
    );
}

#[test]
fn proposal_that_ends_at_a_read_of_the_old_version_is_wrong_about_itself() {
    let (mut table, proposal) = start(Txn::default());
    let mut proposal = proposal.mutated(Mutation::of(Some(Mutant::OldVersionEndsProposal)));
    let first = send(proposal.start());
    proposal.on_answer(Err(unknown()));
    let step = proposal.on_read(Ok(table.get(KEY)));
    assert!(matches!(
        step,
        ProposalStep::Done(ProposalOutcome::Failed { .. })
    ));
    assert!(matches!(table.txn(first), TxnOutcome::Committed { .. }));
}

#[test]
fn proposal_beaten_by_another_fails_with_what_is_there() {
    let (mut table, mut proposal) = start(Txn::default());
    let first = send(proposal.start());
    proposal.on_answer(Err(unknown()));
    let other = closing(&open_metadata(1, 1, 1), 1);
    table.put(KEY, other.encode());
    let step = proposal.on_read(Ok(table.get(KEY)));
    let ProposalStep::Done(ProposalOutcome::Failed { found, .. }) = step else {
        panic!("{step:?}");
    };
    assert_eq!(found.unwrap().value, other.encode());
    assert!(matches!(table.txn(first), TxnOutcome::Conflict { .. }));
}

#[test]
fn proposal_whose_guard_broke_for_ever_failed_but_one_that_may_heal_is_unknown() {
    let versioned = Compare::Version("part/1".to_owned(), Revision(77));
    let absent = Compare::Absent("topic/x".to_owned());
    for (compare, certain) in [(versioned, true), (absent, false)] {
        let part = Txn {
            compares: vec![compare],
            ops: Vec::new(),
        };
        let (mut table, mut proposal) = start(part);
        table.put("topic/x", "there".into());
        let txn = send(proposal.start());
        proposal.on_answer(Err(unknown()));
        let again = send(proposal.on_read(Ok(table.get(KEY))));
        assert_eq!(txn, again);
        let step = proposal.on_answer(Ok(table.txn(again)));
        let failed = matches!(step, ProposalStep::Done(ProposalOutcome::Failed { .. }));
        assert_eq!(failed, certain, "{step:?}");
    }
}

#[test]
fn proposal_refused_as_invalid_is_over() {
    let (_, mut proposal) = start(Txn::default());
    let invalid = MetadataError::Invalid {
        why: "test".to_owned(),
    };
    let step = proposal.on_answer(Err(invalid.clone()));
    assert_eq!(step, ProposalStep::Done(ProposalOutcome::Refused(invalid)));
}

/// What happens to one request.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Answered,
    LostBefore,
    LostAfter,
    /// Lands after this many further turns.
    Late(u8),
    Unavailable,
    /// Somebody else changes the ledger first.
    Rival,
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        3 => Just(Turn::Answered),
        2 => Just(Turn::LostBefore),
        2 => Just(Turn::LostAfter),
        3 => (0..4u8).prop_map(Turn::Late),
        1 => Just(Turn::Unavailable),
        1 => Just(Turn::Rival),
    ]
}

/// Runs a proposal against a table whose answers go wrong; then lands everything that is still late.
fn run(turns: &[Turn]) -> (Option<ProposalOutcome>, Option<Versioned>) {
    let (mut table, mut proposal) = start(Txn::default());
    let mut late: Vec<(u8, Txn)> = Vec::new();
    let mut step = proposal.start();
    for turn in turns {
        for (left, txn) in &mut late {
            *left = left.saturating_sub(1);
            if *left == 0 {
                table.txn(std::mem::take(txn));
            }
        }
        late.retain(|(left, _)| *left > 0);
        if matches!(turn, Turn::Rival) {
            let rival = closing(&open_metadata(1, 1, 1), 1);
            if table.get(KEY).unwrap().value == open_metadata(1, 1, 1).encode() {
                table.put(KEY, rival.encode());
            }
        }
        step = match step {
            ProposalStep::Done(_) => break,
            ProposalStep::Read(_) => proposal.on_read(Ok(table.get(KEY))),
            ProposalStep::Send(txn) => proposal.on_answer(match turn {
                Turn::Answered | Turn::Rival => Ok(table.txn(txn)),
                Turn::LostBefore => Err(unknown()),
                Turn::LostAfter => {
                    table.txn(txn);
                    Err(unknown())
                }
                Turn::Late(after) => {
                    late.push((after + 1, txn));
                    Err(unknown())
                }
                Turn::Unavailable => Err(MetadataError::Unavailable {
                    why: "test".to_owned(),
                }),
            }),
        };
    }
    for (_, txn) in late {
        table.txn(txn);
    }
    let outcome = match step {
        ProposalStep::Done(outcome) => Some(outcome),
        _ => None,
    };
    (outcome, table.get(KEY))
}

proptest! {
    #[test]
    fn outcome_of_a_proposal_is_what_the_store_shows_in_the_end(turns in prop::collection::vec(turn(), 1..24)) {
        let (outcome, row) = run(&turns);
        let row = LedgerMetadata::decode(&row.unwrap().value).unwrap();
        let mine = row.writer_nonce == [9; 16];
        match outcome {
            Some(ProposalOutcome::Committed { .. }) => prop_assert!(mine),
            Some(ProposalOutcome::Failed { .. }) => prop_assert!(!mine),
            Some(other) => prop_assert!(false, "{other:?}"),
            None => {}
        }
    }
}
