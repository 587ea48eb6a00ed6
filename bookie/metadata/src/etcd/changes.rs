//! Watches: etcd pushes, and what nobody reads stays within HTTP/2's window here and in etcd's history there.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::{StreamExt, stream as streams};
use hulse_proto::wire::etcd::event::EventType;
use hulse_proto::wire::etcd::watch_client::WatchClient;
use hulse_proto::wire::etcd::{self, watch_request::RequestUnion};
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};

use super::keyspace::unsigned;
use super::links::ANSWER_BYTES_MAX;
use super::store::Inner;
use crate::store::{MetadataError, Revision, WatchEvent, WatchStream};

struct Watch {
    etcd: Arc<Inner>,
    range: (Vec<u8>, Vec<u8>),
    after: Revision,
    answers: Option<Streaming<etcd::WatchResponse>>,
    ready: VecDeque<WatchEvent>,
    failed: bool,
}

/// Streams the changes under `prefix` above `after`.
pub(super) fn stream(etcd: Arc<Inner>, prefix: &str, after: Revision) -> WatchStream {
    let watch = Watch {
        range: etcd.keys.prefix(prefix),
        etcd,
        after,
        answers: None,
        ready: VecDeque::new(),
        failed: false,
    };
    Box::pin(streams::unfold(watch, |mut watch| async move {
        if watch.failed {
            return None;
        }
        let item = watch.next().await;
        watch.failed = item.is_err();
        Some((item, watch))
    }))
}

/// The oldest revision that is kept, when `gone` is not: a watch from there on is refused with it.
pub(super) async fn oldest(etcd: &Arc<Inner>, gone: Revision) -> Result<Revision, MetadataError> {
    let mut watch = Watch {
        range: etcd.keys.prefix(""),
        etcd: Arc::clone(etcd),
        after: Revision(gone.0.saturating_sub(1)),
        answers: None,
        ready: VecDeque::new(),
        failed: false,
    };
    match tokio::time::timeout(etcd.links.timeout(), watch.next()).await {
        Ok(Err(MetadataError::Compacted { oldest, .. })) => Ok(Revision(oldest)),
        Ok(Err(error)) => Err(error),
        Ok(Ok(_)) | Err(_) => Err(ended("it does not say which revisions it keeps")),
    }
}

impl Watch {
    async fn next(&mut self) -> Result<WatchEvent, MetadataError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            self.refill().await?;
        }
    }

    /// Takes one answer.
    async fn refill(&mut self) -> Result<(), MetadataError> {
        let answer = match self.answer().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(ended("etcd ended the watch")),
            Err(status) => return Err(ended(status.message())),
        };
        if answer.compact_revision != 0 {
            return Err(MetadataError::Compacted {
                asked: self.after.0,
                oldest: unsigned(answer.compact_revision)?,
            });
        }
        if answer.canceled {
            return Err(ended(&answer.cancel_reason));
        }
        for event in answer.events {
            let event = self.event(event)?;
            self.ready.push_back(event);
        }
        Ok(())
    }

    async fn answer(&mut self) -> Result<Option<etcd::WatchResponse>, Status> {
        if let Some(answers) = &mut self.answers {
            return answers.message().await;
        }
        let start = i64::try_from(self.after.0.saturating_add(1))
            .map_err(|_| Status::invalid_argument("the revision is beyond etcd's numbers"))?;
        let create = etcd::WatchCreateRequest {
            key: self.range.0.clone().into(),
            range_end: self.range.1.clone().into(),
            start_revision: start,
        };
        let question = etcd::WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let mut request = Request::new(streams::iter([question]).chain(streams::pending()));
        // A member that has lost its leader ends the watch instead of being silent.
        request
            .metadata_mut()
            .insert("hasleader", MetadataValue::from_static("true"));
        let (place, channel) = self.etcd.links.member();
        let opened = WatchClient::new(channel)
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .watch(request)
            .await
            .inspect_err(|_| self.etcd.links.leave(place))?;
        self.answers.insert(opened.into_inner()).message().await
    }

    fn event(&self, event: etcd::Event) -> Result<WatchEvent, MetadataError> {
        let kind = event.r#type();
        let row = event.kv.unwrap_or_default();
        Ok(match kind {
            EventType::Put => WatchEvent::Put(self.etcd.keys.row(row)?),
            EventType::Delete => WatchEvent::Deleted {
                key: self.etcd.keys.outside(&row.key)?,
                revision: Revision(unsigned(row.mod_revision)?),
            },
        })
    }
}

fn ended(why: &str) -> MetadataError {
    MetadataError::Unavailable {
        why: format!("etcd: {why}"),
    }
}
