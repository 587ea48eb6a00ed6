//! How a command ends when it does not succeed: four parts, a stable code, an exit code (operations.md B).

use std::fmt;
use std::io;

use hulse_proto::error::{ErrorKind, Fate, Fault, Reason};

use crate::catalogue::Cause;
pub(crate) use crate::catalogue::{Code, Exit};
use crate::config::ConfigFaults;
use crate::format::FormatError;

/// What went wrong, why, with which object, and what to run next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    cause: Cause,
    what: String,
    why: String,
    object: String,
    next: String,
}

impl Failure {
    /// A failure of the command line itself.
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self::of(Cause::Ours(code), what)
    }

    fn of(cause: Cause, what: impl Into<String>) -> Self {
        Self {
            cause,
            what: what.into(),
            why: String::new(),
            object: String::new(),
            next: String::new(),
        }
    }

    /// Whether the server gave this reason.
    pub(crate) fn is(&self, reason: Reason) -> bool {
        self.cause == Cause::Servers(reason)
    }

    /// A refusal of the server.
    pub(crate) fn from_fault(what: impl Into<String>, fault: &Fault) -> Self {
        let failure = Self::of(Cause::Servers(fault.reason), what).why(&fault.message);
        match fault.fate {
            Fate::Unknown => {
                let why = format!("{} (it may have taken effect)", failure.reason());
                failure.why(why)
            }
            Fate::NotApplied => failure,
        }
    }

    /// What the SDK answers for `object`.
    pub(crate) fn from_sdk(
        what: impl Into<String>,
        object: impl fmt::Display,
        error: &hulse_sdk::Error,
    ) -> Self {
        if let Some(fault) = error.fault() {
            return Self::from_fault(what, fault).object(object);
        }
        if let Some(fault) = cause(error) {
            // The time was over while a broker kept giving this answer: its code says more than ours.
            return Self::from_fault(what, fault).why(error).object(object);
        }
        let code = match error.kind() {
            ErrorKind::Invalid => Code::Usage,
            ErrorKind::OutcomeUnknown => Code::Timeout,
            ErrorKind::Corrupt => Code::Damaged,
            _ => Code::Unreachable,
        };
        Self::new(code, what).why(error).object(object)
    }

    /// Why it went wrong.
    #[must_use]
    pub(crate) fn why(mut self, why: impl fmt::Display) -> Self {
        self.why = why.to_string();
        self
    }

    /// One more line of why.
    #[must_use]
    pub(crate) fn also(mut self, why: impl fmt::Display) -> Self {
        self.why = format!("{}\n{why}", self.reason());
        self
    }

    /// Which object is meant.
    #[must_use]
    pub(crate) fn object(mut self, object: impl fmt::Display) -> Self {
        self.object = object.to_string();
        self
    }

    /// What to run or change next.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// The process's exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.cause.exit()
    }

    /// Why, alone; what the code means where nobody said more.
    pub(crate) fn reason(&self) -> &str {
        said(&self.why, self.cause.meaning())
    }

    /// What to do; what is done about the code in general where nobody said more.
    fn advice(&self) -> &str {
        said(&self.next, self.cause.next())
    }

    /// What went wrong, alone.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// True for this code of the command line.
    pub(crate) fn is_code(&self, code: Code) -> bool {
        self.cause == Cause::Ours(code)
    }

    /// True when no server said so.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.cause, Cause::Ours(_))
    }

    /// As JSON, for `--output json`.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "error": {
                "code": self.cause.to_string(),
                "what": self.what,
                "why": self.reason(),
                "object": self.object,
                "next": self.advice(),
            }
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.what, self.cause)?;
        let parts = [
            ("why", self.reason()),
            ("object", &self.object),
            ("next", self.advice()),
        ];
        for (name, words) in parts.into_iter().filter(|(_, words)| !words.is_empty()) {
            let words = words.replace('\n', "\n          ");
            write!(f, "\n  {:<8}{words}", format!("{name}:"))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

fn said<'a>(words: &'a str, otherwise: &'a str) -> &'a str {
    match words.is_empty() {
        true => otherwise,
        false => words,
    }
}

/// The server's word behind an error of the SDK's own.
fn cause(error: &hulse_sdk::Error) -> Option<&Fault> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(fault) = error.downcast_ref::<Fault>() {
            return Some(fault);
        }
        cause = error.source();
    }
    None
}

/// Why a command stops before its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Whoever reads our output has seen enough: no failure.
    PipeClosed,
    /// It failed.
    Failed(Box<Failure>),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

/// Of writing to standard output.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::PipeClosed;
        }
        Failure::new(Code::File, "cannot write the output")
            .why(error)
            .object("standard output")
            .next("look for free space where the output goes")
            .into()
    }
}

impl From<ConfigFaults> for Failure {
    fn from(faults: ConfigFaults) -> Self {
        let what = match faults.0.len() {
            1 => "the configuration has a fault".to_owned(),
            count => format!("the configuration has {count} faults"),
        };
        Self::new(Code::Config, what)
            .why(&faults)
            .object("configuration")
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        Self::new(Code::Usage, "the format cannot be understood")
            .why(error)
            .object("-f")
            .next("hulse consume --help lists the letters")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_its_four_parts_and_its_code() {
        let failure = Failure::new(Code::DataDirLocked, "the data directory is in use")
            .why("a process holds it\nsince today")
            .object("./hulse-data")
            .next("stop it");
        let lines: Vec<String> = failure.to_string().lines().map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                "the data directory is in use [HULSE-9102]",
                "  why:    a process holds it",
                "          since today",
                "  object: ./hulse-data",
                "  next:   stop it",
            ]
        );
        assert_eq!(failure.exit() as i32, 5);
    }

    #[test]
    fn reasons_of_the_server_have_the_exit_codes_of_the_command_tree() {
        for (reason, exit) in [
            (Reason::InvalidName, 2),
            (Reason::BatchTooLarge, 1),
            (Reason::TopicNotFound, 3),
            (Reason::PermissionDenied, 4),
            (Reason::TopicExists, 5),
            (Reason::PartitionLoading, 6),
            (Reason::StorageTimeout, 6),
            (Reason::DataDamaged, 7),
            (Reason::Internal, 1),
        ] {
            let failure = Failure::from_fault("x", &Fault::new(reason, "y"));
            assert_eq!(failure.exit() as i32, exit, "{reason:?}");
        }
    }
}
