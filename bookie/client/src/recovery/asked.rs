//! One question to one member, asked until it is answered.

use std::time::Duration;

use hulse_proto::bookie::BookieError;

/// Waits between askings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) initial: Duration,
    pub(super) max: Duration,
    /// Unanswered for this long is not answered.
    pub(super) patience: Duration,
}

/// A question and what came of it.
#[derive(Debug, Clone)]
pub(super) struct Asked<T> {
    out_since: Option<Duration>,
    again_at: Duration,
    wait: Duration,
    pub(super) answer: Option<T>,
    pub(super) error: Option<BookieError>,
}

impl<T> Asked<T> {
    pub(super) fn new(now: Duration, pace: Pace) -> Self {
        Self {
            out_since: None,
            again_at: now,
            wait: pace.initial,
            answer: None,
            error: None,
        }
    }

    pub(super) fn answered(answer: T) -> Self {
        Self {
            out_since: None,
            again_at: Duration::ZERO,
            wait: Duration::ZERO,
            answer: Some(answer),
            error: None,
        }
    }

    /// True when it must be asked now; then it counts as asked.
    pub(super) fn ask(&mut self, now: Duration, pace: Pace) -> bool {
        if self.answer.is_some() {
            return false;
        }
        if self
            .out_since
            .is_some_and(|since| since + pace.patience <= now)
        {
            let why = "no answer in time".to_owned();
            self.fail(now, pace, BookieError::NoAnswer { why });
        }
        let due = self.out_since.is_none() && self.again_at <= now;
        if due {
            self.out_since = Some(now);
        }
        due
    }

    pub(super) fn fail(&mut self, now: Duration, pace: Pace, error: BookieError) {
        self.error = Some(error);
        if self.out_since.take().is_some() {
            self.again_at = now + self.wait;
            self.wait = (self.wait * 2).min(pace.max);
        }
    }

    pub(super) fn succeed(&mut self, answer: T) {
        self.out_since = None;
        self.answer.get_or_insert(answer);
    }

    /// When [`Asked::ask`] must be looked at again.
    pub(super) fn wakeup(&self, pace: Pace) -> Option<Duration> {
        if self.answer.is_some() {
            return None;
        }
        Some(match self.out_since {
            Some(since) => since + pace.patience,
            None => self.again_at,
        })
    }

    /// It was answered one way or the other at least once.
    pub(super) fn heard(&self) -> bool {
        self.answer.is_some() || self.error.is_some()
    }

    /// Asking again cannot help.
    pub(super) fn hopeless(&self) -> bool {
        self.error.as_ref().is_some_and(is_lost)
    }
}

/// Errors that say that this member has lost what is asked for, or never had it and cannot promise so. Not that another cell's bookie
/// answered: it stands at the member's address, and knows nothing of the member's disk.
fn is_lost(error: &BookieError) -> bool {
    matches!(
        error,
        BookieError::WrongIncarnation { .. }
            | BookieError::Deleted { .. }
            | BookieError::Damaged { .. }
            | BookieError::NotHere { .. }
            | BookieError::Limbo { .. }
            | BookieError::Invalid { .. }
            | BookieError::Conflict { .. }
    )
}
