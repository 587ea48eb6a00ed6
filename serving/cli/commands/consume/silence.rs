//! Tells whoever sees nothing that nothing is there yet: a command that waits looks like one that hangs.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::arguments::Consume;
use crate::output::{Output, grouped};

/// Silence of this length is told, once.
const TELL_AFTER: Duration = Duration::from_millis(1500);

/// A command that waits for records.
pub(super) struct Silence {
    /// `None`: there is nothing to be told any more.
    due: Option<Instant>,
    printed: bool,
}

impl Silence {
    /// Of a command that begins to read. One that stops at the end waits for nothing.
    pub(super) fn new(consume: &Consume) -> Self {
        let due = (!consume.exit).then(|| Instant::now() + TELL_AFTER);
        let printed = false;
        Self { due, printed }
    }

    /// A record came.
    pub(super) fn ends(&mut self) {
        self.printed = true;
        self.due = self.due.map(|_| Instant::now() + TELL_AFTER);
    }

    /// Returns when it is to be told; never where it is not. Cancel-safe.
    pub(super) async fn lasts(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => pending().await,
        }
    }

    /// Tells it, and is not told again. `left`: the records that are still wanted.
    pub(super) fn tell(&mut self, output: Output, consume: &Consume, left: u64) {
        self.due = None;
        let topics = consume.topics.join(", ");
        let of = match &consume.subscription {
            Some(subscription) => format!("{subscription} of {topics}"),
            None => topics,
        };
        let at_the_end =
            consume.subscription.is_none() && consume.offset.is_none() && consume.count.is_none();
        match (self.printed, consume.count) {
            (false, _) if at_the_end => output.say(&format!(
                "nothing new of {of} yet; it reads what comes from now on, -o start reads what is stored (^C ends it)"
            )),
            (false, _) => output.say(&format!("no record of {of} yet; it waits (^C ends it)")),
            (true, Some(_)) => output.say(&format!(
                "no more of {of} yet; it waits for {} more (^C ends it; -e would stop at the end)",
                grouped(left)
            )),
            // Whoever follows has seen that it works.
            (true, None) => {}
        }
    }
}
