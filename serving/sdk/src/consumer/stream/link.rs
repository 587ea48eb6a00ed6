//! A stream to the coordinator: found by asking any broker, and following the way that it names.

use std::time::Duration;

use hulse_proto::error::{ErrorKind, Reason};
use hulse_proto::id::{PartitionId, TopicId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::group_down::Item as DownItem;
use hulse_proto::wire::v1::group_up::Item as UpItem;
use hulse_proto::wire::v1::stream_groups_client::StreamGroupsClient;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;

use super::shared::Shared;
use crate::connect::{Broker, MESSAGE_BYTES_MAX, Purpose};
use crate::error::Error;

/// How long joining may take, dial and the group's first look at its topics included.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A member's stream.
pub(super) struct Link {
    pub(super) up: mpsc::UnboundedSender<v1::GroupUp>,
    pub(super) down: Streaming<v1::GroupDown>,
}

impl Link {
    /// Says something; whether the stream still is there is seen where it is read.
    pub(super) fn say(&self, item: UpItem) {
        let _ = self.up.send(v1::GroupUp { item: Some(item) });
    }
}

/// How a stream begins.
pub(super) enum Opened {
    Joined(Box<Link>, v1::GroupJoined),
    /// Who comes back is no member any more.
    Fenced(Error),
}

/// Joins, or comes back.
///
/// # Errors
/// Why there is no stream; `elsewhere` of it names the coordinator.
pub(super) async fn open(shared: &Shared, broker: &Broker) -> Result<Opened, Error> {
    let channel = shared.client.pool.channel(broker, Purpose::Control)?;
    // Bounded by what a member has under way: one commit, and one heartbeat per word of the coordinator.
    let (up, queue) = mpsc::unbounded_channel();
    let _ = up.send(v1::GroupUp {
        item: Some(UpItem::Join(join(shared))),
    });
    let greeting = async {
        let mut client = StreamGroupsClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut queue = queue;
        let outbound = futures::stream::poll_fn(move |cx| queue.poll_recv(cx));
        let mut down = client.join(outbound).await?.into_inner();
        let first = down.message().await?;
        Ok::<_, tonic::Status>((down, first))
    };
    let (down, first) = match timeout(JOIN_TIMEOUT, greeting).await {
        // Whoever joins twice is one member: nothing is in doubt.
        Ok(greeted) => {
            greeted.map_err(|status| Error::from_status(&status).with_possibly_written(false))?
        }
        Err(_) => return Err(unavailable("the coordinator did not answer in time")),
    };
    match first.and_then(|first| first.item) {
        Some(DownItem::Joined(joined)) => Ok(Opened::Joined(Box::new(Link { up, down }), joined)),
        Some(DownItem::Fenced(fenced)) => Ok(Opened::Fenced(fenced_by(fenced))),
        _ => Err(unavailable("the coordinator answered with no word")),
    }
}

/// The coordinator that a refusal names.
pub(super) fn elsewhere(error: &Error) -> Option<Broker> {
    let fault = error.fault()?;
    let moved = fault.reason == Reason::PartitionMoved;
    let endpoint = fault.details.get("endpoint").filter(|_| moved)?;
    Broker::parse(endpoint).ok()
}

pub(super) fn fenced_by(fenced: v1::GroupFenced) -> Error {
    Error::from_wire(fenced.fault.unwrap_or_default())
}

pub(super) fn unavailable(words: &str) -> Error {
    Error::local(
        ErrorKind::Unavailable,
        format!("{words}; it is tried again"),
    )
}

fn join(shared: &Shared) -> v1::JoinGroup {
    let settings = &shared.settings;
    let book = shared.book();
    // The coordinator waits a little longer than the application is given.
    let rebalance = settings.hand_over + settings.hand_over / 2 + Duration::from_secs(5);
    v1::JoinGroup {
        protocol_version: hulse_proto::limits::PROTOCOL_VERSION,
        client_id: shared.client.client_id.clone(),
        group: settings.group.clone(),
        member_id: shared.member.clone(),
        epoch: book.epoch,
        instance_id: settings.instance.clone(),
        rebalance_ms: u32::try_from(rebalance.as_millis()).unwrap_or(u32::MAX),
        topics: settings.topics.clone(),
        pattern: settings.pattern.clone(),
        assignor: String::new(),
        owned: by_topic(book.owned()),
        start: settings.start,
    }
}

/// Partitions as the wire has them.
pub(super) fn by_topic(partitions: impl Iterator<Item = PartitionId>) -> Vec<v1::TopicPartitions> {
    let mut all: Vec<v1::TopicPartitions> = Vec::new();
    let mut last: Option<TopicId> = None;
    // They come in order of their topics.
    for PartitionId { topic, index } in partitions {
        if last != Some(topic) {
            last = Some(topic);
            all.push(v1::TopicPartitions {
                topic_uuid: topic.to_bytes(),
                indexes: Vec::new(),
            });
        }
        if let Some(of_topic) = all.last_mut() {
            of_topic.indexes.push(index);
        }
    }
    all
}
