//! The trait over etcd.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use hulse_proto::wire::etcd::{self, kv_client::KvClient, lease_client::LeaseClient};
use tokio::time::Instant;
use tonic::Code;
use tonic::transport::Channel;

use super::changes;
use super::fence::{self, Fence, Sent};
use super::keyspace::{Keyspace, unsigned};
use super::links::{ANSWER_BYTES_MAX, Failure, Links, refused, unavailable, unknown};
use super::options::EtcdOptions;
use super::request;
use crate::basis::apply::holds;
use crate::basis::check;
use crate::basis::page::PAGE_ROWS_MAX;
use crate::store::{
    BoxFuture, LeaseId, ListRequest, MetadataError, MetadataStore, Page, Revision, Txn, TxnOutcome,
    Versioned, WatchStream,
};

/// A metadata store in etcd. Clones share connections.
#[derive(Clone)]
pub struct EtcdStore(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) links: Links,
    pub(super) keys: Keyspace,
    pub(super) fence: Fence,
}

impl EtcdStore {
    /// Prepares connections; nothing is dialled before the first request. Needs a tokio runtime.
    ///
    /// # Errors
    /// `Invalid` for no endpoint, an endpoint that is no `http://host:port`, or a prefix that is not ASCII; `Unavailable` when the system
    /// has no random numbers.
    pub fn new(options: EtcdOptions) -> Result<Self, MetadataError> {
        if !options.prefix.is_ascii() {
            return Err(MetadataError::Invalid {
                why: format!("the prefix {:?} is not ASCII", options.prefix),
            });
        }
        let links = Links::new(&options)?;
        let keys = Keyspace::new(options.prefix);
        let fence = Fence::new(&keys)?;
        Ok(Self(Arc::new(Inner { links, keys, fence })))
    }

    async fn range(&self, request: etcd::RangeRequest) -> Result<etcd::RangeResponse, Failure> {
        let call = |channel| {
            let request = request.clone();
            async move { kv(channel).range(request).await }
        };
        self.0.links.read(call).await
    }

    async fn page(&self, request: ListRequest) -> Result<Page, MetadataError> {
        let (key, range_end) = self.0.keys.range(&request);
        let limit = i64::try_from(request.limit.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX);
        let revision = match request.at {
            // etcd's first revision is 1, and 0 means "now" to it.
            Some(at) => i64::try_from(at.0.max(1)).map_err(|_| future(at))?,
            None => 0,
        };
        let range = etcd::RangeRequest {
            key: key.into(),
            range_end: range_end.into(),
            limit,
            revision,
        };
        let answer = match self.range(range).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.why_no_page(failure, request.at).await),
        };
        let now = Revision(unsigned(answer.header.unwrap_or_default().revision)?);
        let rows = answer.kvs.into_iter();
        Ok(Page {
            items: rows
                .map(|row| self.0.keys.row(row))
                .collect::<Result<_, _>>()?,
            revision: request.at.unwrap_or(now),
            more: answer.more,
        })
    }

    async fn why_no_page(&self, failure: Failure, at: Option<Revision>) -> MetadataError {
        let Failure::Refused(status) = &failure else {
            return unavailable(failure);
        };
        match (status.code(), at) {
            (Code::OutOfRange, Some(at)) if status.message().contains("compacted") => {
                match changes::oldest(&self.0, at).await {
                    Ok(oldest) => MetadataError::Compacted {
                        asked: at.0,
                        oldest: oldest.0,
                    },
                    Err(error) => error,
                }
            }
            (Code::OutOfRange, Some(at)) => future(at),
            _ => refused(status),
        }
    }

    /// Which of a transaction's leases has ended.
    async fn ended(&self, txn: &Txn) -> Result<LeaseId, MetadataError> {
        let leases = request::leases(txn);
        for lease in &leases {
            let id = request::lease_number(*lease);
            let call = |channel| async move {
                let request = etcd::LeaseTimeToLiveRequest { id };
                LeaseClient::new(channel).lease_time_to_live(request).await
            };
            if self.0.links.read(call).await.map_err(unavailable)?.ttl <= 0 {
                return Ok(*lease);
            }
        }
        Err(MetadataError::Unavailable {
            why: format!("etcd does not know one of the leases {leases:?}, and then knows all"),
        })
    }

    async fn apply(&self, txn: Txn) -> Result<TxnOutcome, MetadataError> {
        let until = Instant::now() + self.0.links.timeout();
        let request = request::transaction(&self.0.keys, &txn);
        if !fence::is_needed(&txn) {
            return match self.send(&request, until).await {
                Ok(answer) => request::outcome(&self.0.keys, answer),
                Err(failure) => Err(self.why_no_outcome(failure, &txn).await),
            };
        }
        for _ in 0..fence::TRIES_MAX {
            if let Some(outcome) = self.apply_fenced(&txn, request.clone(), until).await? {
                return Ok(outcome);
            }
        }
        Err(MetadataError::Unavailable {
            why: "etcd: too many other transactions have no answer".to_owned(),
        })
    }

    /// `None`: nothing was changed, because of the fence alone.
    async fn apply_fenced(
        &self,
        txn: &Txn,
        request: etcd::TxnRequest,
        until: Instant,
    ) -> Result<Option<TxnOutcome>, MetadataError> {
        let sent = Sent::begin(&self.0, until).await?;
        let at = sent.at;
        let request = request::fenced(request, self.0.fence.key(), at);
        let mut answer = match self.send(&request, until).await {
            Ok(answer) => answer,
            Err(failure @ Failure::Unclear(_)) => {
                drop(sent);
                // Once it is settled, a read decides: it was done by now, or never will be. Else the next transaction waits for that.
                let _ = fence::settled(&self.0, until).await;
                return Err(unknown(failure));
            }
            Err(failure) => {
                sent.answered();
                return Err(self.why_no_outcome(failure, txn).await);
            }
        };
        sent.answered();
        let found = request::fence(&mut answer)?;
        let outcome = request::outcome(&self.0.keys, answer)?;
        self.0.fence.conflicted(at, found.unwrap_or(at));
        let TxnOutcome::Conflict { current } = &outcome else {
            return Ok(Some(outcome));
        };
        let mut compares = txn.compares.iter().zip(current);
        let stood = compares.all(|(compare, row)| holds(compare, row.as_ref()));
        Ok(Some(outcome).filter(|_| !stood || found == Some(at)))
    }

    async fn send(
        &self,
        request: &etcd::TxnRequest,
        until: Instant,
    ) -> Result<etcd::TxnResponse, Failure> {
        let call = |channel| {
            let request = request.clone();
            async move { kv(channel).txn(request).await }
        };
        self.0.links.write_until(call, until).await
    }

    async fn why_no_outcome(&self, failure: Failure, txn: &Txn) -> MetadataError {
        if matches!(failure, Failure::Ended(_)) && self.is_undone(txn).await {
            return unavailable(failure);
        }
        match failure {
            Failure::Refused(status) if status.code() == Code::NotFound => {
                match self.ended(txn).await {
                    Ok(lease) => MetadataError::LeaseEnded(lease.0),
                    Err(error) => error,
                }
            }
            failure => unknown(failure),
        }
    }

    /// True when a transaction that is over did nothing: a key that it writes still has the version that it compares.
    async fn is_undone(&self, txn: &Txn) -> bool {
        let Some((key, version)) = fence::bound(txn) else {
            return false;
        };
        let found = self.get(key).await;
        found.is_ok_and(|row| row.is_some_and(|row| row.version == version))
    }

    async fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        if ttl.is_zero() {
            return Err(MetadataError::Invalid {
                why: "a lease of no time".to_owned(),
            });
        }
        // Whole seconds, and never less than was asked for.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).map_err(|_| MetadataError::Invalid {
            why: format!("a lease of {seconds} s"),
        })?;
        let call = |channel| async move {
            let request = etcd::LeaseGrantRequest {
                ttl: seconds,
                id: 0,
            };
            LeaseClient::new(channel).lease_grant(request).await
        };
        let answer = self.0.links.write(call).await.map_err(unknown)?;
        request::lease(answer.id).ok_or_else(|| MetadataError::Unavailable {
            why: format!("etcd grants no lease: {}", answer.error),
        })
    }

    async fn renew(&self, lease: LeaseId) -> Result<(), MetadataError> {
        let id = request::lease_number(lease);
        let call = |channel| async move { keep_alive(channel, id).await };
        let answer = self.0.links.read_soon(call).await;
        let answer = answer.map_err(unavailable)?;
        if answer.ttl <= 0 {
            return Err(MetadataError::LeaseEnded(lease.0));
        }
        Ok(())
    }

    async fn end(&self, lease: LeaseId) -> Result<(), MetadataError> {
        let id = request::lease_number(lease);
        let call = |channel| async move {
            let request = etcd::LeaseRevokeRequest { id };
            LeaseClient::new(channel).lease_revoke(request).await
        };
        match self.0.links.write(call).await {
            Ok(_) => Ok(()),
            Err(Failure::Refused(status)) if status.code() == Code::NotFound => Ok(()),
            Err(failure) => Err(unknown(failure)),
        }
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// One renewal: a stream of one question and one answer.
async fn keep_alive(
    channel: Channel,
    id: i64,
) -> Result<tonic::Response<etcd::LeaseKeepAliveResponse>, tonic::Status> {
    // The stream of questions stays open: etcd gives up an answer whose question's stream has ended.
    let question = stream::iter([etcd::LeaseKeepAliveRequest { id }]).chain(stream::pending());
    let mut answers = LeaseClient::new(channel)
        .lease_keep_alive(question)
        .await?
        .into_inner();
    match answers.message().await? {
        Some(answer) => Ok(tonic::Response::new(answer)),
        None => Err(tonic::Status::unavailable("the renewal has no answer")),
    }
}

fn future(at: Revision) -> MetadataError {
    MetadataError::Invalid {
        why: format!("revision {} is not reached yet", at.0),
    }
}

// Each method does its work when polled, not when called: a future that is dropped unpolled did nothing.
impl MetadataStore for EtcdStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        let key = key.to_owned();
        Box::pin(async move {
            check::key(&key)?;
            let request = etcd::RangeRequest {
                key: self.0.keys.inside(&key).into(),
                ..etcd::RangeRequest::default()
            };
            let answer = self.range(request).await.map_err(unavailable)?;
            let row = answer.kvs.into_iter().next();
            row.map(|row| self.0.keys.row(row)).transpose()
        })
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            check::txn(&txn)?;
            self.apply(txn).await
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        Box::pin(async move {
            check::list(&request)?;
            self.page(request).await
        })
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        changes::stream(Arc::clone(&self.0), prefix, after)
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        Box::pin(self.grant(ttl))
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(self.renew(lease))
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        Box::pin(self.end(lease))
    }
}
