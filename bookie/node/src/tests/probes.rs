//! Fences with token zero: they ask whether a ledger is fenced, and change nothing.

use hulse_proto::bookie::{BookieError, FenceAnswer};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::fences::refused;
use super::support::*;
use crate::disk::memory::Survival;
use crate::step::StepAnswer;

const ONE: LedgerId = LedgerId(1);

#[test]
fn fence_with_token_zero_tells_of_fences_and_changes_nothing() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..2, 10);
    let free = |answer: StepAnswer, ends: (u64, u64)| {
        let expected = FenceAnswer {
            token: FenceToken(0),
            confirmed_end: EntryId(ends.0),
            held_end: EntryId(ends.1),
        };
        assert!(matches!(answer, StepAnswer::Fence(Ok(found)) if found == expected));
    };
    let before = rig.node.core().state().clone();
    free(rig.fence(1, 0), (1, 2));
    free(rig.fence(9, 0), (0, 0));
    assert!(*rig.node.core().state() == before && !rig.node.busy());
    rig.store(1, 2..3, 10);
    // A fence that is not durable yet is one: who asks stops a moment early.
    let (to, token) = (rig.to(1), FenceToken(3));
    rig.node
        .fence(hulse_proto::bookie::FenceRequest { to, token });
    let stale = BookieError::StaleToken {
        ledger: ONE,
        token: FenceToken(3),
        asked: FenceToken(0),
    };
    let token = FenceToken(0);
    let (_, output) = rig
        .node
        .fence(hulse_proto::bookie::FenceRequest { to, token });
    assert!(matches!(&output.answers[..], [(_, StepAnswer::Fence(Err(error)))] if *error == stale));
    rig.settle();
    let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
    assert_eq!(refused(rig.fence(1, 0)), stale);
    assert!(matches!(rig.delete(1), StepAnswer::Delete(Ok(()))));
    let deleted = BookieError::Deleted { ledger: ONE };
    assert_eq!(refused(rig.fence(1, 0)), deleted);
}

#[test]
fn fence_with_token_zero_proves_nothing_where_a_fence_may_have_been_lost_or_forgotten() {
    let mut rig = Rig::new(config());
    rig.store(7, 0..2, 10);
    let mut state = rig.node.core().state().clone();
    state.dead_below = LedgerId(5);
    let limbo = state.ledgers.get_mut(&LedgerId(7)).unwrap();
    limbo.enter_limbo(crate::log::LimboKind::Unsynced, 1);
    rig.node.set_state(state);
    assert!(matches!(
        refused(rig.fence(4, 0)),
        BookieError::NotHere { .. }
    ));
    assert!(matches!(
        refused(rig.fence(7, 0)),
        BookieError::Limbo { .. }
    ));
    assert!(matches!(rig.fence(5, 0), StepAnswer::Fence(Ok(_))));
}
