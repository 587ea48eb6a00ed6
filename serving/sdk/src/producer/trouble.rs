//! What keeps a producer from being answered, for a person: the last word of a broker or of the link, told while it lasts and in the
//! error of what was not delivered in time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::error::Error;

/// Trouble that lasts this long is told …
const TELL_AFTER: Duration = Duration::from_secs(2);
/// … and told again after this long.
const TELL_EVERY: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Trouble {
    /// Whether there is any; looked at for each ack, so without a lock.
    any: AtomicBool,
    now: Mutex<Option<Now>>,
}

struct Now {
    error: Error,
    tell_at: Instant,
}

impl Trouble {
    /// Something could not be done and is tried again.
    pub(crate) fn note(&self, topic: &str, partition: u32, error: &Error) {
        let now = Instant::now();
        let mut last = self
            .now
            .lock()
            .expect("no code panics while it holds this lock");
        let tell_at = last.as_ref().map_or(now + TELL_AFTER, |last| last.tell_at);
        let tell = tell_at <= now;
        if tell {
            warn!(topic, partition, %error, "records wait; they are sent again until their delivery time is over");
        }
        let tell_at = if tell { now + TELL_EVERY } else { tell_at };
        let error = error.clone();
        *last = Some(Now { error, tell_at });
        self.any.store(true, Ordering::Relaxed);
    }

    /// Something was answered.
    pub(crate) fn over(&self) {
        if self.any.swap(false, Ordering::Relaxed) {
            *self
                .now
                .lock()
                .expect("no code panics while it holds this lock") = None;
        }
    }

    /// The last word, while the trouble lasts.
    pub(crate) fn last(&self) -> Option<Error> {
        let last = self
            .now
            .lock()
            .expect("no code panics while it holds this lock");
        last.as_ref().map(|last| last.error.clone())
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::error::{Fault, Reason};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn trouble_is_remembered_until_something_is_answered() {
        let trouble = Trouble::default();
        let reason = |trouble: &Trouble| trouble.last().and_then(|error| error.reason());
        let word = |reason| Error::from(Fault::new(reason, "a word"));
        assert_eq!(reason(&trouble), None);
        trouble.note("t", 0, &word(Reason::NotEnoughBookies));
        trouble.note("t", 1, &word(Reason::StorageFull));
        assert_eq!(reason(&trouble), Some(Reason::StorageFull));
        trouble.over();
        assert!(trouble.last().is_none());
    }
}
