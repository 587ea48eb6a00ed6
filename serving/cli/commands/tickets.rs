//! Tickets of records under way, in the order of the input: the first failure is held, with its own words.

use std::collections::VecDeque;

use futures::FutureExt as _;
use hulse_sdk::{Error, Ticket};

/// Records under way at most; `send` bounds their bytes long before, unless they are tiny or one partition lags far behind.
const TICKETS_MAX: usize = 1 << 18;

/// What was sent and has no known fate yet.
#[derive(Default)]
pub(crate) struct Tickets {
    waiting: VecDeque<Ticket>,
}

impl Tickets {
    /// No further record may be sent before one of these has its fate.
    pub(crate) fn are_many(&self) -> bool {
        self.waiting.len() >= TICKETS_MAX
    }

    /// Holds one more.
    pub(crate) fn push(&mut self, ticket: Ticket) {
        self.waiting.push_back(ticket);
    }

    /// Waits for the oldest; for ever when there is none. Cancel-safe: a ticket leaves with its fate only.
    ///
    /// # Errors
    /// Why its record was not stored.
    pub(crate) async fn next(&mut self) -> Result<(), Error> {
        let Some(oldest) = self.waiting.front_mut() else {
            return std::future::pending().await;
        };
        let fate = oldest.await;
        self.waiting.pop_front();
        fate.map(drop)
    }

    /// Lets go of all, after the producer was closed: every fate is known.
    ///
    /// # Errors
    /// Why the first record that was not stored was not.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let mut first = Ok(());
        for ticket in self.waiting {
            // Each is asked, also behind the first failure: one that was not asked counts as a loss that nobody looked at.
            if let Some(Err(error)) = ticket.now_or_never() {
                first = first.and(Err(error));
            }
        }
        first
    }
}
