//! Connections to etcd's members, deadlines, and what an error means.
//!
//! # Invariants
//! 1. A request that may change something is sent to a second member only after [`Failure::NeverSent`].
//! 2. Every request ends within the options' `request_timeout`, with all that a transaction waits for before and after it.

use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Response, Status};

use super::options::EtcdOptions;
use crate::store::MetadataError;

/// How long one dial may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// etcd ends connections that ping more often than every five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Unread bytes of a stream: what a watch that nobody reads may hold here.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Largest answer: a page of the longest values, with room.
pub(super) const ANSWER_BYTES_MAX: usize = 128 << 20;
/// How often each member is tried: a second time, because an idle connection may have died unseen.
const ROUNDS_MAX: usize = 2;
/// A lease of three seconds that is renewed each second lives on when one member is silent for so long, and the next one answers.
const SOON: Duration = Duration::from_secs(1);
/// Between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(50);

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No member got it.
    NeverSent(String),
    /// A member got it, and says that nothing was done.
    NotDone(String),
    /// A member has ended it: it was done or not, and will not be done later.
    Ended(String),
    /// It may have been done.
    Unclear(String),
    /// A member refused it, whichever is asked.
    Refused(Status),
}

/// The members; requests go to the current one.
pub(super) struct Links {
    addresses: Vec<String>,
    channels: Vec<Channel>,
    current: AtomicUsize,
    timeout: Duration,
}

impl Links {
    /// Dials nobody yet.
    ///
    /// # Errors
    /// `Invalid` for no endpoint, or one that is no `http` address.
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, MetadataError> {
        let channels = options
            .endpoints
            .iter()
            .map(|address| dial(address))
            .collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(MetadataError::Invalid {
                why: "no endpoint of etcd is named".to_owned(),
            });
        }
        Ok(Self {
            addresses: options.endpoints.clone(),
            channels,
            current: AtomicUsize::new(0),
            timeout: options.request_timeout,
        })
    }

    /// The member in use, and its place for [`Links::leave`].
    pub(super) fn member(&self) -> (usize, Channel) {
        let place = self.place();
        (place, self.channels[place].clone())
    }

    /// Every member: its address, and the way to it.
    pub(super) fn each(&self) -> impl Iterator<Item = (&str, Channel)> {
        let addresses = self.addresses.iter().map(String::as_str);
        addresses.zip(self.channels.iter().cloned())
    }

    /// How long one request may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn place(&self) -> usize {
        self.current.load(Ordering::Relaxed) % self.channels.len()
    }

    /// From now on the member after `failed` is in use, unless another call has changed that already.
    pub(super) fn leave(&self, failed: usize) {
        let next = (failed + 1) % self.channels.len();
        let _ = self
            .current
            .compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Asks something that changes nothing: at each member in turn until one answers.
    ///
    /// # Errors
    /// `Unavailable`, or the status of a refusal.
    pub(super) async fn read<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + self.timeout;
        self.ask(call, (until, self.share()), |_| true).await
    }

    /// As [`Links::read`] for what may not wait for a silent member: with several, each has [`SOON`] for its answer.
    ///
    /// # Errors
    /// As [`Links::read`].
    pub(super) async fn read_soon<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let share = match self.channels.len() {
            1 => self.timeout,
            _ => self.share().min(SOON),
        };
        let until = Instant::now() + self.timeout;
        self.ask(call, (until, share), |_| true).await
    }

    /// With several members, none may use up the whole time with its silence.
    fn share(&self) -> Duration {
        self.timeout / u32::try_from(self.channels.len()).unwrap_or(1)
    }

    /// Asks something that changes the store and may be done any number of times, also late: at each member in turn until one answers.
    ///
    /// # Errors
    /// As [`Failure`] says, of the last one that was asked.
    pub(super) async fn repeat<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.read(call).await
    }

    /// Asks something that changes the store: again only if nobody got it.
    ///
    /// # Errors
    /// As [`Failure`] says.
    pub(super) async fn write<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now() + self.timeout;
        self.write_until(call, until).await
    }

    /// As [`Links::write`], with an end of its own.
    ///
    /// # Errors
    /// As [`Failure`] says.
    pub(super) async fn write_until<T, F>(
        &self,
        call: impl Fn(Channel) -> F,
        until: Instant,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let unsent = |failure: &Failure| matches!(failure, Failure::NeverSent(_));
        self.ask(call, (until, self.share()), unsent).await
    }

    async fn ask<T, F>(
        &self,
        call: impl Fn(Channel) -> F,
        (deadline, share): (Instant, Duration),
        again: impl Fn(&Failure) -> bool,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut tries = 0;
        loop {
            let (place, channel) = self.member();
            let until = deadline.min(Instant::now() + share);
            let failure = match timeout_at(until, call(channel)).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => classify(status),
                Err(_) => Failure::Unclear(format!("no answer within {share:?}")),
            };
            if matches!(failure, Failure::Refused(_)) {
                return Err(failure);
            }
            self.leave(place);
            tries += 1;
            let spent = tries == ROUNDS_MAX * self.channels.len() || Instant::now() >= deadline;
            if spent || !again(&failure) {
                return Err(failure);
            }
            if tries % self.channels.len() == 0 {
                tokio::time::sleep_until(deadline.min(Instant::now() + ROUND_PAUSE)).await;
            }
        }
    }
}

fn dial(address: &str) -> Result<Channel, MetadataError> {
    let endpoint =
        Endpoint::from_shared(address.to_owned()).map_err(|error| MetadataError::Invalid {
            why: format!("etcd endpoint {address:?}: {error}; it looks like http://10.0.0.1:2379"),
        })?;
    if endpoint.uri().scheme_str() != Some("http") || endpoint.uri().host().is_none() {
        return Err(MetadataError::Invalid {
            why: format!("etcd endpoint {address:?} does not look like http://10.0.0.1:2379"),
        });
    }
    Ok(endpoint
        .connect_timeout(DIAL_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .tcp_nodelay(true)
        .connect_lazy())
}

/// What an error of a call says about its effect.
pub(super) fn classify(status: Status) -> Failure {
    if never_sent(&status) {
        return Failure::NeverSent(status.message().to_owned());
    }
    let why = status.message().to_owned();
    match status.code() {
        // etcd looks at its quota before it proposes a request, and once more when it applies it: then it does it and says this all the
        // same. Both are over when they are answered.
        Code::ResourceExhausted if why.contains("database space exceeded") => {
            Failure::Ended(format!(
                "{why}: etcd is at its quota and refuses writes; raise --quota-backend-bytes, or compact, defragment and disarm its alarm"
            ))
        }
        // A full queue, and a request that is longer than a member reads: before anything is done.
        Code::ResourceExhausted
            if why.contains("too many requests") || why.contains("received message larger") =>
        {
            Failure::NotDone(why)
        }
        // An answer that is too long to be sent, a connection that is shut for asking too much: the request may have been done.
        Code::ResourceExhausted => Failure::Unclear(why),
        // An answer that is too long to be read here.
        Code::OutOfRange if why.contains("message length too large") => Failure::Unclear(why),
        Code::InvalidArgument
        | Code::NotFound
        | Code::OutOfRange
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => Failure::Refused(status),
        _ => Failure::Unclear(why),
    }
}

fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A read's failure as callers know it.
pub(super) fn unavailable(failure: Failure) -> MetadataError {
    match failure {
        Failure::NeverSent(why)
        | Failure::NotDone(why)
        | Failure::Ended(why)
        | Failure::Unclear(why) => MetadataError::Unavailable {
            why: format!("etcd: {why}"),
        },
        Failure::Refused(status) => refused(&status),
    }
}

/// A write's failure as callers know it.
pub(super) fn unknown(failure: Failure) -> MetadataError {
    match failure {
        Failure::Ended(why) | Failure::Unclear(why) => MetadataError::OutcomeUnknown {
            why: format!("etcd: {why}"),
        },
        other => unavailable(other),
    }
}

/// A refusal that no caller of ours expects.
pub(super) fn refused(status: &Status) -> MetadataError {
    let why = format!("etcd refuses: {}", status.message());
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => MetadataError::Unavailable { why },
        _ => MetadataError::Invalid { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_member_refuses_before_it_does_anything_is_not_done() {
        let of = |code, why: &str| classify(Status::new(code, why));
        let full = "etcdserver: mvcc: database space exceeded";
        assert!(
            matches!(of(Code::ResourceExhausted, full), Failure::Ended(why) if why.contains("quota"))
        );
        for queue in [
            "etcdserver: too many requests",
            "grpc: received message larger than max (3 vs. 2)",
        ] {
            let told = of(Code::ResourceExhausted, queue);
            assert!(matches!(told, Failure::NotDone(_)), "{told:?}");
        }
        let answers = [
            (
                Code::ResourceExhausted,
                "grpc: trying to send message larger than max (3 vs. 2)",
            ),
            (
                Code::ResourceExhausted,
                "h2 protocol error: enhance your calm",
            ),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 3 bytes, the limit is: 2 bytes",
            ),
            (Code::Unavailable, "etcdserver: request timed out"),
        ];
        for (code, why) in answers {
            let told = of(code, why);
            assert!(matches!(told, Failure::Unclear(_)), "{told:?}");
        }
        let compacted = of(
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted",
        );
        assert!(matches!(compacted, Failure::Refused(_)));
    }
}
