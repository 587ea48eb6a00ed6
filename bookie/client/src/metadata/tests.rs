//! Tests of proposals.

use std::cell::Cell;

thread_local! {
    /// Switches on "a read of the old version ends a proposal".
    pub(super) static MUTANT: Cell<bool> = const { Cell::new(false) };
}
