//! Finding the owner of a partition and opening a lane there: one attempt.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::id::TopicId;
use hulse_proto::wire::v1;
use tokio::time::timeout;

use crate::error::Error;
use crate::producer::{Acks, ProducerIdentity, Shared};
use crate::session::{Attachment, Down};

/// How long a broker may take to open a partition, take-over included, before it is asked again.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Redirects that one attempt follows; then it waits, and the look-up is asked.
const REDIRECTS_MAX: u32 = 2;

/// An open lane.
pub(crate) struct Link {
    pub(super) attachment: Attachment,
    /// The topic that the name meant.
    pub(super) topic: TopicId,
    /// `None`: not idempotent.
    pub(super) identity: Option<ProducerIdentity>,
    pub(super) opened: v1::Opened,
}

/// What an attempt is to do.
pub(super) struct Attempt {
    pub(super) partition: u32,
    /// Wait first.
    pub(super) delay: Duration,
    /// Ask anew where the partition is.
    pub(super) resolve: bool,
    /// The lane's own, when it has sent already.
    pub(super) identity: Option<ProducerIdentity>,
}

/// Opens the lane.
///
/// # Errors
/// Not applied, whatever it is: opening changes nothing. Cancel-safe.
pub(super) async fn open(shared: Arc<Shared>, attempt: Attempt) -> Result<Link, Error> {
    let partition = attempt.partition;
    tokio::time::sleep(attempt.delay).await;
    if attempt.resolve {
        shared.topic.refresh().await?;
    }
    let identity = match (shared.delivery.idempotent, attempt.identity) {
        (false, _) => None,
        (true, Some(identity)) => Some(identity),
        (true, None) => Some(shared.identity().await?),
    };
    for _ in 0..=REDIRECTS_MAX {
        let (topic, owner) = shared.topic.owner(partition)?;
        let session = shared.core.sessions.get(&shared.core, &owner).await?;
        let mut attachment = session.attach(open_lane(&shared, topic, partition, identity));
        let answer = timeout(OPEN_TIMEOUT, attachment.recv()).await;
        match answer.unwrap_or_else(|_| Down::Lost(slow())) {
            Down::Opened(opened) => {
                return Ok(Link {
                    attachment,
                    topic,
                    identity,
                    opened,
                });
            }
            Down::Closed(Some(fault)) | Down::Fenced(fault) => return Err(fault.into()),
            // Only a newer word than what is known is followed at once: two brokers that name each other are waited for.
            Down::Moved(Some(to)) if shared.topic.moved(partition, to.clone()) => {}
            Down::Moved(_) => break,
            Down::Lost(error) => return Err(error),
            _ => return Err(strange()),
        }
    }
    let words = "another broker serves the partition; its owner is looked up again";
    Err(Fault::new(Reason::PartitionMoved, words).into())
}

fn strange() -> Error {
    Error::local(
        ErrorKind::Unavailable,
        "the broker did not open the lane that was asked for; it is tried again",
    )
}

fn slow() -> Error {
    Error::local(
        ErrorKind::Unavailable,
        format!("the broker did not open the partition within {OPEN_TIMEOUT:?}; it is tried again"),
    )
}

fn open_lane(
    shared: &Shared,
    topic: TopicId,
    partition: u32,
    identity: Option<ProducerIdentity>,
) -> v1::OpenLane {
    let acks = match shared.delivery.acks {
        Acks::None => v1::Acks::None,
        Acks::Quorum => v1::Acks::Quorum,
    };
    v1::OpenLane {
        lane: 0,
        partition: Some(v1::Partition {
            topic_uuid: topic.to_bytes(),
            index: partition,
        }),
        acks: acks as i32,
        producer_id: identity.map_or(-1, |identity| identity.id.0),
        producer_epoch: identity.map_or(-1, |identity| i32::from(identity.epoch)),
    }
}
