//! The one error of the SDK.
//!
//! A program asks four things of it: what to do ([`Error::kind`]), whether the same call may succeed later
//! ([`Error::is_retryable`]), whether the records may be stored all the same ([`Error::possibly_written`]) and whether this
//! handle is finished ([`Error::is_fenced`]). The words say what, why and what to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::batch::BatchError;
use hulse_proto::error::{ErrorKind, Fate, Fault, Reason};
use hulse_proto::id::NameError;
use tonic::{Code, Status};

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Why a call of the SDK did not do what it was asked. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    what: What,
    possibly_written: bool,
    lost_tickets: u64,
    source: Option<Source>,
}

#[derive(Clone)]
enum What {
    /// A server's word.
    Fault(Fault),
    /// The SDK's own.
    Local {
        kind: ErrorKind,
        retryable: bool,
        message: String,
    },
    Gap(Gap),
}

/// A reader found offsets that nothing explains: neither records nor a skipped range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// Index of the partition.
    pub partition: u32,
    /// Offset that had to come next.
    pub expected: u64,
    /// Offset that came.
    pub got: u64,
}

impl Error {
    /// What the caller does about it.
    pub fn kind(&self) -> ErrorKind {
        match &self.0.what {
            What::Fault(fault) => fault.kind(),
            What::Local { kind, .. } => *kind,
            What::Gap(_) => ErrorKind::Corrupt,
        }
    }

    /// True when the same call may succeed later without a change. For records that were sent see also
    /// [`Error::possibly_written`]: sending them again as new ones may store them twice.
    pub fn is_retryable(&self) -> bool {
        match &self.0.what {
            What::Fault(fault) => fault.reason.is_retryable(),
            What::Local { retryable, .. } => *retryable,
            What::Gap(_) => false,
        }
    }

    /// True when what was sent may be stored, or may have been applied, in spite of this error.
    pub fn possibly_written(&self) -> bool {
        self.0.possibly_written
    }

    /// True when a newer incarnation of this producer took over: this handle is finished.
    pub fn is_fenced(&self) -> bool {
        self.kind() == ErrorKind::Fenced
    }

    /// The server's reason; `None` when the SDK itself found the fault or the link broke.
    pub fn reason(&self) -> Option<Reason> {
        self.fault().map(|fault| fault.reason)
    }

    /// The server's whole word, with facts such as `log_start` in its details.
    pub fn fault(&self) -> Option<&Fault> {
        match &self.0.what {
            What::Fault(fault) => Some(fault),
            _ => None,
        }
    }

    /// The gap that a reader found.
    pub fn gap(&self) -> Option<Gap> {
        match &self.0.what {
            What::Gap(gap) => Some(*gap),
            _ => None,
        }
    }

    /// How long the server asks to wait before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        self.fault().and_then(|fault| fault.retry_after)
    }

    /// From `flush` and `close`: how many records failed whose tickets had been dropped; 0 otherwise.
    pub fn lost_tickets(&self) -> u64 {
        self.0.lost_tickets
    }
}

impl Error {
    fn new(what: What, possibly_written: bool) -> Self {
        Self(Arc::new(Inner {
            what,
            possibly_written,
            lost_tickets: 0,
            source: None,
        }))
    }

    pub(crate) fn local(kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = matches!(
            kind,
            ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::OutcomeUnknown
        );
        let message = message.into();
        let what = What::Local {
            kind,
            retryable,
            message,
        };
        Self::new(what, kind == ErrorKind::OutcomeUnknown)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::local(ErrorKind::Invalid, message)
    }

    /// Something answered that knows no gRPC: no call will ever be answered there.
    fn foreign(http: u16) -> Self {
        let message = format!(
            "it speaks HTTP and not Hulse's gRPC (it answers HTTP status {http}): perhaps this is the address of metrics (listen.http)"
        );
        let what = What::Local {
            kind: ErrorKind::Unavailable,
            retryable: false,
            message,
        };
        Self::new(what, false)
    }

    /// The server's answer does not mean anything.
    pub(crate) fn wrong_answer(what: &str) -> Self {
        Self::local(
            ErrorKind::Internal,
            format!("the broker answered {what}; report it"),
        )
    }

    pub(crate) fn from_gap(gap: Gap) -> Self {
        Self::new(What::Gap(gap), false)
    }

    /// Reads a fault that came in a stream or an answer.
    pub(crate) fn from_wire(fault: hulse_proto::wire::v1::Fault) -> Self {
        Fault::from_wire(fault).into()
    }

    /// Reads how a call ended. A status that no server of ours made means that the link broke: the outcome is unknown, unless
    /// no connection was ever made.
    pub(crate) fn from_status(status: &Status) -> Self {
        if let Some(fault) = Fault::from_status(status) {
            return fault.into();
        }
        let source: Source = Arc::new(status.clone());
        let words = status.message();
        let error = if never_connected(status) {
            Self::local(
                ErrorKind::Unavailable,
                format!("cannot connect to the broker: {words}; is it running at this address?"),
            )
        } else if let Some(http) = refused_by_http(words) {
            Self::foreign(http)
        } else {
            match status.code() {
                Code::Unimplemented => Self::local(
                    ErrorKind::Invalid,
                    format!("the server does not know this call: {words}; is it a Hulse broker?"),
                ),
                Code::OutOfRange | Code::ResourceExhausted | Code::InvalidArgument => {
                    Self::local(ErrorKind::Invalid, format!("the call was refused: {words}"))
                }
                code => Self::local(
                    ErrorKind::OutcomeUnknown,
                    format!("the link to the broker broke ({code:?}): {words}; retry"),
                ),
            }
        };
        error.with_source(source)
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        let mut inner = self.into_inner();
        inner.source = Some(source);
        Self(Arc::new(inner))
    }

    pub(crate) fn with_possibly_written(self, possibly_written: bool) -> Self {
        if self.0.possibly_written == possibly_written {
            return self;
        }
        let mut inner = self.into_inner();
        inner.possibly_written = possibly_written;
        Self(Arc::new(inner))
    }

    pub(crate) fn with_lost_tickets(self, lost_tickets: u64) -> Self {
        let mut inner = self.into_inner();
        inner.lost_tickets = lost_tickets;
        Self(Arc::new(inner))
    }

    fn into_inner(self) -> Inner {
        Arc::unwrap_or_clone(self.0)
    }
}

/// The status of an answer that is none of gRPC's, in the words of the transport, where it refuses for good: a proxy in front of a
/// server of ours answers 429 and 5xx while that is away.
fn refused_by_http(words: &str) -> Option<u16> {
    let rest = words.strip_prefix("grpc-status header missing, mapped from HTTP status code ")?;
    let status = rest.trim().parse().ok()?;
    ((400..500).contains(&status) && status != 429).then_some(status)
}

/// A refused dial leaves a [`tonic::ConnectError`] in the chain: nothing was sent.
fn never_connected(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let possibly_written = fault.fate == Fate::Unknown;
        Self::new(What::Fault(fault), possibly_written)
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        Fault::new(Reason::InvalidName, error.to_string()).into()
    }
}

impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        let fault = Fault::new(error.reason(), error.to_string());
        Self::from(fault).with_source(Arc::new(error))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.lost_tickets > 0 {
            let lost = self.0.lost_tickets;
            write!(
                f,
                "{lost} records failed whose tickets were dropped; the first: "
            )?;
        }
        match &self.0.what {
            What::Fault(fault) => fault.fmt(f)?,
            What::Local { message, .. } => f.write_str(message)?,
            What::Gap(gap) => write!(
                f,
                "partition {} goes on at offset {} where {} had to come, and nothing explains the gap; report it",
                gap.partition, gap.got, gap.expected
            )?,
        }
        if self.0.possibly_written {
            f.write_str(" [may have been applied]")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {self})", self.kind())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_of_unknown_fate_says_that_it_may_be_written() {
        let error = Error::from(Fault::new(Reason::StorageUnknown, "ledger was lost"));
        assert!(error.is_retryable() && error.possibly_written());
        assert!(error.to_string().contains("may have been applied"));
        let error = Error::from(Fault::new(Reason::FencedEpoch, "epoch 3 exists"));
        assert!(error.is_fenced() && !error.is_retryable() && !error.possibly_written());
    }

    #[test]
    fn answer_of_another_http_server_is_told_as_such_and_not_waited_for() {
        let words =
            |code| format!("grpc-status header missing, mapped from HTTP status code {code}");
        let error = Error::from_status(&Status::unimplemented(words(404)));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.is_retryable() && !error.possibly_written());
        assert!(error.to_string().contains("listen.http"), "{error}");
        for away in [429, 503] {
            assert!(Error::from_status(&Status::unavailable(words(away))).is_retryable());
        }
    }

    #[test]
    fn refused_dial_is_certain_and_broken_link_is_not() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let dial = Status::from_error(Box::new(tonic::ConnectError(Box::new(refused))));
        let error = Error::from_status(&dial);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(!error.possibly_written());
        let error = Error::from_status(&Status::unknown("reset"));
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
        assert!(error.possibly_written() && error.is_retryable());
    }
}
