//! Unary calls: deadline, back-off, next broker.

use std::future::Future;
use std::sync::PoisonError;
use std::time::Duration;

use hulse_proto::error::ErrorKind;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::Core;
use crate::backoff::Backoff;
use crate::connect::{Broker, Purpose};
use crate::error::Error;

/// How long one attempt of a quick call may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Brokers that are kept besides those that were given.
const LEARNED_MAX: usize = 64;

/// What may be done after an attempt whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The call changes nothing, or nothing twice: ask again.
    Always,
    /// Only an attempt that was certainly not applied is repeated.
    WhenNotApplied,
}

impl Core {
    /// Calls any of the client's brokers until one answers, at most for the request time-out.
    ///
    /// # Errors
    /// The first error that is not worth a retry, or the last one. Cancel-safe as far as the call itself is.
    pub(crate) async fn call<T, F, A>(&self, repeat: Repeat, attempt: F) -> Result<T, Error>
    where
        F: Fn(Channel) -> A + Send,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let answered = self.call_any(repeat, attempt).await?;
        Ok(answered.0)
    }

    /// The same, and who answered.
    pub(super) async fn call_any<T, F, A>(
        &self,
        repeat: Repeat,
        attempt: F,
    ) -> Result<(T, Broker), Error>
    where
        F: Fn(Channel) -> A + Send,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let deadline = Instant::now() + self.request_timeout;
        let mut rng = self.child_rng();
        let mut backoff = Backoff::new();
        let mut before: Option<Error> = None;
        loop {
            let broker = self.preferred();
            let error = match self.call_once(&broker, repeat, deadline, &attempt).await {
                Ok(answer) => return Ok((answer, broker)),
                Err(error) => error,
            };
            if Instant::now() >= deadline
                && let Some(before) = before
            {
                // The time was over within this try; the one before says more of why.
                let possibly_written = error.possibly_written();
                return Err(before.with_possibly_written(possibly_written));
            }
            let certain = !error.possibly_written();
            if !error.is_retryable() || (repeat == Repeat::WhenNotApplied && !certain) {
                return Err(error);
            }
            self.prefer_another(&broker);
            let wait = backoff.next(&mut rng, error.retry_after());
            if Instant::now() + wait >= deadline {
                return Err(error);
            }
            before = Some(error);
            tokio::time::sleep(wait).await;
        }
    }

    async fn call_once<T, F, A>(
        &self,
        broker: &Broker,
        repeat: Repeat,
        deadline: Instant,
        attempt: &F,
    ) -> Result<T, Error>
    where
        F: Fn(Channel) -> A,
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let channel = self.pool.channel(broker, Purpose::Control)?;
        // A call that may not be repeated has the whole time: giving up early would only make its outcome unknown.
        let until = match repeat {
            Repeat::Always => deadline.min(Instant::now() + CALL_TIMEOUT),
            Repeat::WhenNotApplied => deadline,
        };
        match timeout_at(until, attempt(channel)).await {
            Ok(answer) => answer
                .map(Response::into_inner)
                .map_err(|status| Error::from_status(&status)),
            Err(_) => Err(late(broker)),
        }
    }

    /// The broker that answered last.
    pub(crate) fn preferred(&self) -> Broker {
        let preferred = self.preferred.lock();
        preferred.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on calls begin with the broker after `failed`. Where another caller moved on already its choice stays: two that move on
    /// for the same reason at the same time would come back to where both began.
    pub(crate) fn prefer_another(&self, failed: &Broker) {
        let known = self.known_brokers();
        let at = known.iter().position(|broker| broker == failed);
        let next = at.map_or(0, |at| (at + 1) % known.len());
        let mut preferred = self
            .preferred
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *preferred == *failed {
            preferred.clone_from(&known[next]);
        }
    }

    /// Those that were given, then those that were learned.
    fn known_brokers(&self) -> Vec<Broker> {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        self.brokers.iter().chain(&*learned).cloned().collect()
    }

    /// Keeps the brokers that a look-up names, before those that were named earlier: one that is away now may be the only one that is
    /// there later.
    pub(super) fn learn_brokers(&self, endpoints: &[String]) {
        let named = endpoints.iter().filter_map(|text| Broker::parse(text).ok());
        let mut others: Vec<_> = named
            .filter(|broker| !self.brokers.contains(broker))
            .collect();
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = learned.drain(..).filter(|broker| !others.contains(broker));
        let earlier: Vec<_> = earlier.collect();
        others.extend(earlier);
        others.truncate(LEARNED_MAX);
        *learned = others;
    }

    /// One attempt at one broker, for calls that belong to the owner of a partition. The caller retries.
    pub(crate) async fn call_at<T, F, A>(&self, broker: &Broker, attempt: F) -> Result<T, Error>
    where
        F: FnOnce(Channel) -> A + Send,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let channel = self.pool.channel(broker, Purpose::Control)?;
        match timeout(CALL_TIMEOUT, attempt(channel)).await {
            Ok(answer) => answer
                .map(Response::into_inner)
                .map_err(|status| Error::from_status(&status)),
            Err(_) => Err(late(broker)),
        }
    }
}

fn late(broker: &Broker) -> Error {
    Error::local(
        ErrorKind::OutcomeUnknown,
        format!("broker {broker} did not answer in time; is it overloaded or unreachable?"),
    )
}
