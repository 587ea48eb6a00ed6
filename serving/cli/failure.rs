//! How a command ends when it does not succeed: four parts, a stable code, an exit code (operations.md B).

use std::fmt;
use std::io;

use hulse_proto::error::{ErrorKind, Fate, Fault, Reason};

use crate::config::ConfigFaults;
use crate::format::FormatError;

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Something failed.
    Error = 1,
    /// The command line, configuration or input cannot be meant.
    Usage = 2,
    /// The object does not exist.
    NotFound = 3,
    /// Not allowed.
    Denied = 4,
    /// The state forbids it.
    Conflict = 5,
    /// Not reached, or not in time.
    Unavailable = 6,
    /// Stored data are not what they must be.
    Verification = 7,
}

/// Failures of the command line itself. Those of the server have their numbers in the table of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// An argument cannot be meant.
    Usage,
    /// What is there stands against it.
    Conflict,
    /// The configuration has faults.
    Config,
    /// A file or stream cannot be read or written.
    File,
    /// Input is not what the format says.
    Input,
    /// A destructive command was not confirmed.
    Unconfirmed,
    /// No profile of this name.
    ProfileMissing,
    /// A profile of this name exists.
    ProfileExists,
    /// The listening address is taken or not ours.
    Address,
    /// The data directory is held by another process.
    DataDirLocked,
    /// The data directory cannot be written.
    DataDirReadOnly,
    /// The data directory holds something else, or data of another cell or version.
    DataDirForeign,
    /// The directory is no node's.
    NotADirectory,
    /// The cell's record disagrees with the configuration.
    CellDisagrees,
    /// The metadata store cannot be opened.
    Metadata,
    /// The bookie's log or metadata failed while running.
    StorageFailed,
    /// No server at this address.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// What was read is not what must be there.
    Damaged,
    /// Something that must be there is not.
    Incomplete,
    /// Something does not work as it should.
    Unwell,
}

impl Code {
    /// The number of HULSE-9xxx, stable for ever, and the exit code.
    fn parts(self) -> (u16, Exit) {
        match self {
            Self::Usage => (9001, Exit::Usage),
            Self::Conflict => (9008, Exit::Conflict),
            Self::Config => (9002, Exit::Usage),
            Self::File => (9003, Exit::Error),
            Self::Input => (9004, Exit::Usage),
            Self::Unconfirmed => (9005, Exit::Usage),
            Self::ProfileMissing => (9006, Exit::NotFound),
            Self::ProfileExists => (9007, Exit::Conflict),
            Self::Address => (9101, Exit::Conflict),
            Self::DataDirLocked => (9102, Exit::Conflict),
            Self::DataDirReadOnly => (9103, Exit::Denied),
            Self::DataDirForeign => (9104, Exit::Conflict),
            Self::NotADirectory => (9108, Exit::NotFound),
            Self::CellDisagrees => (9105, Exit::Conflict),
            Self::Metadata => (9106, Exit::Error),
            Self::StorageFailed => (9107, Exit::Error),
            Self::Unreachable => (9201, Exit::Unavailable),
            Self::Timeout => (9202, Exit::Unavailable),
            Self::Damaged => (9203, Exit::Verification),
            Self::Incomplete => (9204, Exit::Verification),
            Self::Unwell => (9205, Exit::Error),
        }
    }
}

/// What went wrong, why, with which object, and what to run next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    number: u16,
    exit: Exit,
    what: String,
    why: String,
    object: String,
    next: String,
}

impl Failure {
    /// A failure of the command line itself.
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        let (number, exit) = code.parts();
        Self {
            number,
            exit,
            what: what.into(),
            why: String::new(),
            object: String::new(),
            next: String::new(),
        }
    }

    /// Whether the server gave this reason.
    pub(crate) fn is(&self, reason: Reason) -> bool {
        self.number == reason.number()
    }

    /// A refusal of the server.
    pub(crate) fn from_fault(what: impl Into<String>, fault: &Fault) -> Self {
        let reason = fault.reason;
        let mut why = fault.message.clone();
        if fault.fate == Fate::Unknown {
            why.push_str(" (it may have taken effect)");
        }
        Self {
            number: reason.number(),
            exit: exit_of(reason),
            what: what.into(),
            why,
            object: String::new(),
            next: next_of(reason).to_owned(),
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
        let (code, next) = match error.kind() {
            ErrorKind::Invalid => (Code::Usage, "hulse help shows what can be written"),
            ErrorKind::OutcomeUnknown => (
                Code::Timeout,
                "run the command again; --timeout gives it more time",
            ),
            ErrorKind::Corrupt => (
                Code::Damaged,
                "hulse ledgers list; look at the server's log",
            ),
            _ => (
                Code::Unreachable,
                "is a server running there? hulse standalone starts one",
            ),
        };
        Self::new(code, what).why(error).object(object).next(next)
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
        if !self.why.is_empty() {
            self.why.push('\n');
        }
        self.why.push_str(&why.to_string());
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
        self.exit
    }

    /// Why, alone.
    pub(crate) fn reason(&self) -> &str {
        &self.why
    }

    /// True when no server said so.
    pub(crate) fn is_ours(&self) -> bool {
        self.number >= 9000
    }

    /// As JSON, for `--output json`.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "error": {
                "code": format!("HULSE-{}", self.number),
                "what": self.what,
                "why": self.why,
                "object": self.object,
                "next": self.next,
            }
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [HULSE-{}]", self.what, self.number)?;
        let parts = [
            ("why", &self.why),
            ("object", &self.object),
            ("next", &self.next),
        ];
        for (name, words) in parts.into_iter().filter(|(_, words)| !words.is_empty()) {
            let words = words.replace('\n', "\n          ");
            write!(f, "\n  {:<8}{words}", format!("{name}:"))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

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

fn exit_of(reason: Reason) -> Exit {
    match (reason, reason.kind()) {
        (Reason::InvalidRequest | Reason::InvalidName, _) => Exit::Usage,
        (_, ErrorKind::Invalid | ErrorKind::Internal) => Exit::Error,
        (_, ErrorKind::Denied) => Exit::Denied,
        (_, ErrorKind::NotFound) => Exit::NotFound,
        (_, ErrorKind::Exists | ErrorKind::Conflict | ErrorKind::Fenced) => Exit::Conflict,
        (_, ErrorKind::Corrupt) => Exit::Verification,
        (
            _,
            ErrorKind::NotOwner
            | ErrorKind::Overloaded
            | ErrorKind::Unavailable
            | ErrorKind::OutcomeUnknown,
        ) => Exit::Unavailable,
    }
}

fn next_of(reason: Reason) -> &'static str {
    match reason {
        Reason::TopicNotFound => "hulse topics list; hulse topics create TOPIC",
        Reason::TopicExists => "hulse topics describe TOPIC",
        Reason::PartitionNotFound => "hulse topics describe TOPIC",
        Reason::LedgerNotFound => "hulse ledgers list",
        Reason::OffsetOutOfRange => "hulse topics describe TOPIC shows the offsets that exist",
        Reason::DataDamaged => {
            "hulse ledgers list; hulse ledgers accept-loss LEDGER gives up what is damaged"
        }
        Reason::InvalidName => "write `topic` or `tenant/namespace/topic`, each of [A-Za-z0-9._-]",
        Reason::BatchTooLarge => {
            "send smaller records; the limits are 1 MiB per record and broker.max_batch_size per batch"
        }
        Reason::PartitionsDecrease => {
            "create a new topic with fewer partitions and copy the records"
        }
        Reason::TopicDeleting => "wait until it is gone; hulse topics list",
        Reason::StorageFull => {
            "enlarge the disk (df -h DIR); or delete topics, or shorten their retention: hulse topics update. Records are taken again by themselves"
        }
        Reason::NotEnoughBookies | Reason::StorageUnavailable => {
            "look at the server's log and /readyz"
        }
        Reason::Internal => "this is a bug in hulse; please report it with the server's log",
        _ if reason.is_retryable() => "run the command again",
        _ => "",
    }
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
            .next("correct them; `hulse config default` prints every key with its meaning")
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
