//! Dead letters on their way: to the topic that a subscription names, which is made at the first one.

use std::sync::{Arc, Weak};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicName};
use hulse_proto::wire::v1::partition_work::Work;
use tokio::sync::mpsc;

use super::front::Front;
use super::peers::work_on;
use crate::Topic;
use crate::partition::Posted;

/// Letters under way; more wait.
const AT_ONCE: usize = 64;

/// Until the broker is gone.
pub(super) async fn carry(front: Weak<Front>, mut posted: mpsc::UnboundedReceiver<Posted>) {
    let mut carrying = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = carrying.next(), if !carrying.is_empty() => {}
            letter = posted.recv(), if carrying.len() < AT_ONCE => {
                let (Some(letter), Some(front)) = (letter, front.upgrade()) else {
                    return;
                };
                carrying.push(carry_one(front, letter));
            }
        }
    }
}

async fn carry_one(front: Arc<Front>, letter: Posted) {
    let Posted { topic, batch, done } = letter;
    let carried = async {
        let topic = front.letter_topic(&topic).await?;
        let first = PartitionId {
            topic: topic.id,
            index: 0,
        };
        front.anywhere(work_on(first, Work::Letter(batch))).await
    };
    // Who asked may have gone; the letter is stored once, however often it is sent.
    let _ = done.send(carried.await.map(drop));
}

impl Front {
    /// The topic of dead letters.
    async fn letter_topic(&self, name: &TopicName) -> Result<Topic, Fault> {
        match self.topics.get(name).await {
            Err(fault) if fault.reason == Reason::TopicNotFound => {}
            found => return found?.serving(),
        }
        match self.topics.create(name, 1).await {
            Err(fault) if fault.reason == Reason::TopicExists => self.topics.get(name).await,
            made => made,
        }
    }
}
