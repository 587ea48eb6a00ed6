//! What happened in a run, line by line: its fingerprint must be the same for the same seed.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::seed::{extend, fingerprint};

/// Lines kept for a person who looks at a failure.
const KEPT_LINES_MAX: usize = 400;

/// The record of one run. Clones share it.
#[derive(Debug, Clone)]
pub struct Trace(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    started: Instant,
    fingerprint: u64,
    lines: u64,
    whole: bool,
    kept: VecDeque<String>,
}

impl Trace {
    /// Begins now, in virtual time. `whole` keeps every line, else only the last ones are kept.
    pub fn start(whole: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            started: Instant::now(),
            fingerprint: fingerprint(b""),
            lines: 0,
            whole,
            kept: VecDeque::new(),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, with the virtual time before it.
    pub fn line(&self, words: fmt::Arguments<'_>) {
        let mut inner = self.inner();
        let mut line = String::with_capacity(96);
        let at = inner.started.elapsed().as_millis();
        // Writing into a string cannot fail.
        let _ = write!(line, "{at:>7} {words}");
        inner.fingerprint = extend(extend(inner.fingerprint, line.as_bytes()), b"\n");
        inner.lines += 1;
        if !inner.whole && inner.kept.len() == KEPT_LINES_MAX {
            inner.kept.pop_front();
        }
        inner.kept.push_back(line);
    }

    /// Fingerprint and number of all lines so far.
    pub fn fingerprint(&self) -> (u64, u64) {
        let inner = self.inner();
        (inner.fingerprint, inner.lines)
    }

    /// The kept lines, oldest first.
    pub fn text(&self) -> String {
        let inner = self.inner();
        inner.kept.iter().fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        })
    }
}

/// `trace!(trace, "words {}", value)`: adds a line.
#[macro_export]
macro_rules! trace {
    ($trace:expr, $($words:tt)*) => { $trace.line(format_args!($($words)*)) };
}
