//! Failures that nobody waits for: records whose tickets were dropped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::error::Error;

#[derive(Debug, Default)]
pub(crate) struct Losses {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since the last [`Losses::take`].
    records: u64,
    first: Option<Error>,
    /// Some record of the ones since then may be stored.
    possibly_written: bool,
    total: u64,
}

impl Losses {
    pub(crate) fn add(&self, records: u64, error: &Error) {
        if records == 0 {
            return;
        }
        let mut state = self.lock();
        state.records += records;
        state.total += records;
        state.possibly_written |= error.possibly_written();
        if state.first.is_none() {
            state.first = Some(error.clone());
            // Once until somebody asks, not once per record.
            warn!(records, %error, "records failed whose tickets were dropped");
        }
    }

    /// Returns what failed since the last call, and forgets it.
    pub(crate) fn take(&self) -> Result<(), Error> {
        let mut state = self.lock();
        let records = std::mem::take(&mut state.records);
        let possibly_written = std::mem::take(&mut state.possibly_written);
        match state.first.take() {
            None => Ok(()),
            Some(first) => Err(first
                .with_possibly_written(possibly_written)
                .with_lost_tickets(records)),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
