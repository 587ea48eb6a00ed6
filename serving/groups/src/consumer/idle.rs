//! Livelock guard: a member that beats while its application takes nothing (amendment "Livelock guard").

use crate::request::{Now, Progress};

/// A member that is watched.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// When it is warned, or fenced; `None`: it moves, or nothing waits.
    at: Option<u64>,
    warned: bool,
}

impl Idle {
    pub(crate) fn due(&self) -> Option<u64> {
        self.at
    }

    pub(super) fn is_due(&self, now: Now) -> bool {
        self.at.is_some_and(|at| at <= now.passed_ms)
    }

    pub(super) fn heard(&mut self, now: Now, progress: &Progress, idle_max_ms: u64) {
        if progress.took || !progress.waiting {
            (self.at, self.warned) = (None, false);
        }
        if progress.waiting && self.at.is_none() {
            self.at = Some(now.passed_ms + idle_max_ms);
        }
    }

    /// It is warned; `true`: it was before, and is out.
    pub(super) fn warn(&mut self, now: Now, grace_ms: u64) -> bool {
        self.at = Some(now.passed_ms + grace_ms);
        std::mem::replace(&mut self.warned, true)
    }
}
