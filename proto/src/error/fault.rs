//! A reason with its words: the one error value that crosses a process boundary.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tonic_types::{ErrorDetails, StatusExt};

use super::{ErrorKind, Reason};
use crate::wire::v1;

/// Domain of `google.rpc.ErrorInfo`.
const DOMAIN: &str = "hulse";

/// Whether a failed request took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Nothing of it was or will be applied.
    NotApplied,
    /// It may have been.
    Unknown,
}

/// What went wrong: a reason, words for a person, facts for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which of the closed set.
    pub reason: Reason,
    /// What, why, and what to do. Lower case, no full stop.
    pub message: String,
    /// Usually the reason's; [`Fate::Unknown`] where this instance is less certain.
    pub fate: Fate,
    /// Wait at least this long before a retry.
    pub retry_after: Option<Duration>,
    /// Facts, e.g. `log_start`.
    pub details: BTreeMap<String, String>,
}

impl Fault {
    /// A fault with the reason's own fate.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            reason,
            message,
            fate: reason.fate(),
            retry_after: None,
            details: BTreeMap::new(),
        }
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }

    /// Advises a wait.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        self.reason.kind()
    }

    /// The form on a stream.
    pub fn to_wire(&self) -> v1::Fault {
        v1::Fault {
            reason: self.reason.as_str().to_owned(),
            message: self.message.clone(),
            fate: match self.fate {
                Fate::NotApplied => v1::Fate::NotApplied,
                Fate::Unknown => v1::Fate::Unknown,
            } as i32,
            retry_after_ms: self
                .retry_after
                .map_or(0, |wait| wait.as_millis().min(u128::from(u32::MAX)) as u32),
            details: self.details.clone().into_iter().collect(),
        }
    }

    /// Reads the form on a stream. A reason that this build does not know becomes [`Reason::Internal`] with the name in the words.
    pub fn from_wire(wire: v1::Fault) -> Self {
        let (reason, message) = match Reason::parse(&wire.reason) {
            Some(reason) => (reason, wire.message),
            None => (
                Reason::Internal,
                format!("{}: {}", wire.reason, wire.message),
            ),
        };
        let fate = if wire.fate == v1::Fate::NotApplied as i32 {
            Fate::NotApplied
        } else {
            Fate::Unknown
        };
        let wait = u64::from(wire.retry_after_ms);
        let retry_after = (wait > 0).then(|| Duration::from_millis(wait));
        Self {
            reason,
            message,
            fate,
            retry_after,
            details: wire.details.into_iter().collect(),
        }
    }

    /// The form of a unary answer or of a stream's end.
    pub fn to_status(&self) -> tonic::Status {
        let mut details = ErrorDetails::new();
        let mut facts: std::collections::HashMap<String, String> =
            self.details.clone().into_iter().collect();
        let fate = if self.fate == Fate::NotApplied {
            "NOT_APPLIED"
        } else {
            "UNKNOWN"
        };
        facts.insert("fate".to_owned(), fate.to_owned());
        details.set_error_info(self.reason.as_str(), DOMAIN, facts);
        if let Some(wait) = self.retry_after {
            details.set_retry_info(Some(wait));
        }
        tonic::Status::with_error_details(self.reason.code(), self.message.clone(), details)
    }

    /// Reads a status; `None` when it is not one of ours (a broken connection, a proxy).
    pub fn from_status(status: &tonic::Status) -> Option<Self> {
        let details = status.get_error_details();
        let info = details.error_info()?;
        if info.domain != DOMAIN {
            return None;
        }
        let reason = Reason::parse(&info.reason)?;
        let mut facts: BTreeMap<String, String> = info.metadata.clone().into_iter().collect();
        let fate = match facts.remove("fate").as_deref() {
            Some("NOT_APPLIED") => Fate::NotApplied,
            _ => Fate::Unknown,
        };
        let retry_after = details.retry_info().and_then(|info| info.retry_delay);
        Some(Self {
            reason,
            message: status.message().to_owned(),
            fate,
            retry_after,
            details: facts,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (HULSE-{}, {})",
            self.message,
            self.reason.number(),
            self.reason.as_str()
        )
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for tonic::Status {
    fn from(fault: Fault) -> Self {
        fault.to_status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_stream_form_carry_everything() {
        for reason in Reason::ALL {
            let fault = Fault::new(*reason, "what happened")
                .with("offset", 7)
                .retry_after(Duration::from_millis(20));
            assert_eq!(Fault::from_status(&fault.to_status()), Some(fault.clone()));
            assert_eq!(Fault::from_wire(fault.to_wire()), fault);
        }
    }
}
