//! Tells a person that a server is gone while a command works on through it, and when the work goes on.
//!
//! The SDK dials again by itself and says nothing of it, so what is seen here is its dials: one that was not answered within
//! [`TELL_AFTER`] is told once, and the next one that is answered ends it. A server that is alive and answers nothing is dialled anew by
//! the SDK's pings only, and told that much later.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::time::WallClock as _;
use hulse_sdk::{Connect, Connecting, TcpConnect};
use tokio::time::Instant;
use tracing::warn;

use crate::format::date;
use crate::output::grouped;
use crate::roles::SystemClock;

/// A server that is gone for this long is told.
const TELL_AFTER: Duration = Duration::from_millis(1200);

/// How many records wait, where that is known.
type Waiting = Box<dyn Fn() -> u64 + Send>;

/// Makes a client's connections and watches them. Clones watch together.
#[derive(Clone, Default)]
pub(crate) struct Link {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Addresses whose last dial was not answered.
    gone: BTreeMap<String, Gone>,
    waiting: Option<Waiting>,
}

struct Gone {
    since: Instant,
    at_ms: i64,
    /// What the last dial ended with.
    why: String,
    told: bool,
}

impl Link {
    /// From now on it is said how many records wait; nothing is told while none does.
    pub(crate) fn counts(&self, waiting: impl Fn() -> u64 + Send + 'static) {
        self.lock().waiting = Some(Box::new(waiting));
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dials(&self, authority: &str) {
        let mut seen = self.lock();
        if seen.gone.contains_key(authority) {
            return;
        }
        let gone = Gone {
            since: Instant::now(),
            at_ms: SystemClock.now_ms(),
            why: "it takes no connection".to_owned(),
            told: false,
        };
        seen.gone.insert(authority.to_owned(), gone);
        drop(seen);
        let (link, authority) = (self.clone(), authority.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(TELL_AFTER).await;
            if let Some(words) = link.due(&authority) {
                warn!("{words}");
            }
        });
    }

    /// What is to be told of an address that is still gone.
    fn due(&self, authority: &str) -> Option<String> {
        let mut seen = self.lock();
        let waiting = seen.waiting.as_ref().map(|waiting| waiting());
        let gone = seen.gone.get_mut(authority)?;
        // One that was answered and is dialled again meanwhile has a look of its own.
        if gone.told || gone.since.elapsed() < TELL_AFTER {
            return None;
        }
        if waiting == Some(0) {
            // The next dial is looked at anew.
            seen.gone.remove(authority);
            return None;
        }
        let rest = match waiting {
            Some(1) => "1 record waits and is sent when a server answers".to_owned(),
            Some(many) => format!(
                "{} records wait and are sent when a server answers",
                grouped(many)
            ),
            None => "reading goes on when a server answers".to_owned(),
        };
        gone.told = true;
        Some(format!(
            "no server answers at {authority} since {}: {}; {rest}",
            date(gone.at_ms),
            gone.why
        ))
    }

    fn fails(&self, authority: &str, error: &io::Error) {
        if let Some(gone) = self.lock().gone.get_mut(authority) {
            gone.why = error.to_string();
        }
    }

    /// An answered dial ends what was told of any server: the work goes on by way of this one.
    fn answers(&self, authority: &str) -> Option<String> {
        let gone = std::mem::take(&mut self.lock().gone);
        let told = gone.into_values().filter(|gone| gone.told);
        let first = told.map(|gone| gone.since).min()?;
        Some(format!(
            "{authority} answers after {} s; it goes on",
            first.elapsed().as_secs()
        ))
    }
}

impl Connect for Link {
    fn connect(&self, authority: &str) -> Connecting {
        self.dials(authority);
        let dial = TcpConnect.connect(authority);
        let (link, authority) = (self.clone(), authority.to_owned());
        Box::pin(async move {
            let dialled = dial.await;
            match &dialled {
                Ok(_) => {
                    if let Some(words) = link.answers(&authority) {
                        warn!("{words}");
                    }
                }
                Err(error) => link.fails(&authority, error),
            }
            dialled
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn server_that_is_gone_is_told_once_and_once_that_it_is_back() {
        let link = Link::default();
        link.counts(|| 1_234);
        link.dials("a:1");
        link.fails("a:1", &io::Error::other("nobody is there"));
        assert_eq!(link.due("a:1"), None);
        tokio::time::advance(TELL_AFTER).await;
        let told = link.due("a:1").unwrap();
        for words in [
            "no server answers at a:1 since",
            "nobody is there",
            "1,234 records wait",
        ] {
            assert!(told.contains(words), "{told}");
        }
        assert_eq!(link.due("a:1"), None);
        tokio::time::advance(Duration::from_secs(13)).await;
        link.dials("a:1");
        assert_eq!(
            link.answers("a:1").unwrap(),
            "a:1 answers after 14 s; it goes on"
        );
        assert_eq!(link.answers("a:1"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_nothing_waits_for_is_not_told() {
        let link = Link::default();
        link.counts(|| 0);
        link.dials("a:1");
        tokio::time::advance(TELL_AFTER).await;
        assert_eq!(link.due("a:1"), None);
        assert_eq!(link.answers("b:1"), None);
    }
}
