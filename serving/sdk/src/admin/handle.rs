//! The admin's handle.
//!
//! A change is repeated only after an attempt that was certainly not applied; otherwise its error says that it may have been.

use std::future::Future;
use std::sync::Arc;

use hulse_proto::error::Reason;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::types::{Ledger, Topic};
use crate::client::{Core, Repeat};
use crate::connect::MESSAGE_BYTES_MAX;
use crate::error::Error;

/// Most pages of one list that are followed.
pub(super) const PAGES_MAX: usize = 10_000;
/// Topics per page: the most that a server gives.
const PAGE_SIZE: u32 = 1000;

/// Administers topics and ledgers. Cheap to clone. No method is cancel-safe in the sense that a dropped change may have been made.
#[derive(Clone)]
pub struct Admin {
    core: Arc<Core>,
}

impl Admin {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Makes a topic. `partitions` 0: the cluster's default.
    ///
    /// # Errors
    /// TOPIC_EXISTS, INVALID_NAME, …; or the outcome is unknown.
    pub async fn create_topic(&self, name: &str, partitions: u32) -> Result<Topic, Error> {
        let request = v1::CreateTopicRequest {
            name: name.to_owned(),
            partitions,
            ..Default::default()
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.create_topic(request).await
        });
        Topic::from_wire(answer.await?.topic)
    }

    /// Every topic of a namespace (`tenant/namespace`), or of all when it is empty, without their partitions.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub async fn list_topics(&self, namespace: &str) -> Result<Vec<Topic>, Error> {
        let mut topics = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let request = v1::ListTopicsRequest {
                namespace: namespace.to_owned(),
                page_token,
                page_size: PAGE_SIZE,
            };
            let answer = self.ask(request, |mut admin, request| async move {
                admin.list_topics(request).await
            });
            let page = answer.await?;
            for topic in page.topics {
                topics.push(Topic::from_wire(Some(topic))?);
            }
            if page.next_page_token.is_empty() {
                return Ok(topics);
            }
            page_token = page.next_page_token;
        }
        Err(Error::wrong_answer("pages without an end"))
    }

    /// A topic with its partitions.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, or why it could not be asked.
    pub async fn describe_topic(&self, name: &str) -> Result<Topic, Error> {
        let name = name.to_owned();
        let request = v1::DescribeTopicRequest { name };
        let answer = self.ask(request, |mut admin, request| async move {
            admin.describe_topic(request).await
        });
        Topic::from_wire(answer.await?.topic)
    }

    /// Deletes a topic and its data. Answers when the name is free, which takes its time where there are thousands of partitions.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, …; or the outcome is unknown: the deletion may go on by itself.
    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        self.delete_topic_watched(name, |_| {}).await
    }

    /// As [`Admin::delete_topic`]; `left` hears now and then of how many partitions data are left.
    ///
    /// # Errors
    /// As [`Admin::delete_topic`].
    pub async fn delete_topic_watched(
        &self,
        name: &str,
        mut left: impl FnMut(u32),
    ) -> Result<(), Error> {
        // By its identity: the name may be another topic's before we ask again.
        let topic_uuid = self.describe_topic(name).await?.id.to_bytes();
        let mut begun = false;
        loop {
            let request = v1::DeleteTopicRequest {
                name: name.to_owned(),
                topic_uuid: topic_uuid.clone(),
            };
            let answer = self.change(request, |mut admin, request| async move {
                admin.delete_topic(request).await
            });
            match answer.await {
                Ok(answer) if answer.partitions_left > 0 => left(answer.partitions_left),
                Ok(_) => return Ok(()),
                Err(error) if begun && error.reason() == Some(Reason::TopicNotFound) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            begun = true;
        }
    }

    /// Raises the number of partitions to `partitions` in total. Keys may then go to another partition than before.
    ///
    /// # Errors
    /// PARTITIONS_DECREASE, TOPIC_NOT_FOUND, …; or the outcome is unknown.
    pub async fn add_partitions(&self, name: &str, partitions: u32) -> Result<Topic, Error> {
        let request = v1::AddPartitionsRequest {
            name: name.to_owned(),
            partitions,
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.add_partitions(request).await
        });
        Topic::from_wire(answer.await?.topic)
    }

    /// The ledgers of a topic, or of all topics when it is empty.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, or why it could not be asked.
    pub async fn list_ledgers(&self, topic: &str) -> Result<Vec<Ledger>, Error> {
        let topic = topic.to_owned();
        let request = v1::ListLedgersRequest { topic };
        let answer = self.ask(request, |mut admin, request| async move {
            admin.list_ledgers(request).await
        });
        let ledgers = answer.await?.ledgers.into_iter();
        Ok(ledgers.map(Ledger::from_wire).collect())
    }

    /// Gives up what cannot be read of a ledger, or with `up_to` everything from there on, so that its partition opens again
    /// (storage.md R14). These records are lost; what can be read behind damage is kept.
    ///
    /// # Errors
    /// LEDGER_NOT_FOUND, PRECONDITION_FAILED, …; or the outcome is unknown.
    pub async fn accept_loss(
        &self,
        ledger: LedgerId,
        up_to: Option<EntryId>,
    ) -> Result<Ledger, Error> {
        let request = v1::AcceptLossRequest {
            ledger: ledger.0,
            up_to_entry: up_to.map(|entry| entry.0),
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.accept_loss(request).await
        });
        let ledger = answer.await?.ledger;
        ledger
            .map(Ledger::from_wire)
            .ok_or_else(|| Error::wrong_answer("no ledger"))
    }

    pub(super) async fn ask<R, T, F, A>(&self, request: R, call: F) -> Result<T, Error>
    where
        R: Clone + Send + Sync,
        F: Fn(AdminClient<Channel>, R) -> A + Send + Sync,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let attempt = |channel| call(stub(channel), request.clone());
        let answer = self.core.call(Repeat::Always, attempt).await;
        // A question applies nothing, whatever became of it.
        answer.map_err(|error| error.with_possibly_written(false))
    }

    pub(super) async fn change<R, T, F, A>(&self, request: R, call: F) -> Result<T, Error>
    where
        R: Clone + Send + Sync,
        F: Fn(AdminClient<Channel>, R) -> A + Send + Sync,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let attempt = |channel| call(stub(channel), request.clone());
        self.core.call(Repeat::WhenNotApplied, attempt).await
    }

    /// As [`Admin::change`] for a change that may be made twice.
    pub(super) async fn change_again<R, T, F, A>(&self, request: R, call: F) -> Result<T, Error>
    where
        R: Clone + Send + Sync,
        F: Fn(AdminClient<Channel>, R) -> A + Send + Sync,
        A: Future<Output = Result<Response<T>, Status>> + Send,
    {
        let attempt = |channel| call(stub(channel), request.clone());
        self.core.call(Repeat::Always, attempt).await
    }
}

fn stub(channel: Channel) -> AdminClient<Channel> {
    AdminClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}
