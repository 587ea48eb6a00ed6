//! Ports for tests that come later than others: two clusters at a time share them.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The first of forty, each.
const FIRST: [u16; 2] = [19_200, 19_240];

static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

/// Forty ports, until it is dropped.
pub(super) struct Ports {
    /// The first of them.
    pub(super) first: u16,
    _turn: MutexGuard<'static, ()>,
}

impl Ports {
    /// Waits until some are free.
    pub(super) fn take() -> Self {
        for (turn, first) in TURNS.iter().zip(FIRST) {
            match turn.try_lock() {
                Ok(turn) => return Self::of(turn, first),
                Err(TryLockError::Poisoned(turn)) => return Self::of(turn.into_inner(), first),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let turn = TURNS[0].lock();
        Self::of(turn.unwrap_or_else(PoisonError::into_inner), FIRST[0])
    }

    fn of(turn: MutexGuard<'static, ()>, first: u16) -> Self {
        Self { first, _turn: turn }
    }
}
