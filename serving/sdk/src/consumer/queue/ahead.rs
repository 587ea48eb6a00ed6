//! Delivery mode `at_most_once`: records are acknowledged before they are handed over.

use std::collections::VecDeque;

use tokio::sync::Mutex;

use super::book::QueueReceipt;
use super::handle::QueueConsumer;
use super::message::QueueMessage;
use crate::error::Error;

/// A record whose acknowledgement is under way.
struct Waiting {
    message: QueueMessage,
    /// `None`: it is durable.
    receipt: Option<QueueReceipt>,
}

/// What was acknowledged and is not handed over yet. A dropped call leaves it for the next one.
#[derive(Default)]
pub(super) struct Ahead(Mutex<VecDeque<Waiting>>);

impl Ahead {
    /// The next records, at most `max`, each with a durable acknowledgement. Of what has none by its end another consumer takes care.
    pub(super) async fn next(
        &self,
        consumer: &QueueConsumer,
        max: usize,
    ) -> Result<Vec<QueueMessage>, Error> {
        let mut waiting = self.0.lock().await;
        loop {
            if waiting.is_empty() {
                let taken = consumer.delivered(max).await?.into_iter();
                waiting.extend(taken.map(|message| Waiting {
                    receipt: Some(consumer.ack_ahead(&message)),
                    message,
                }));
            }
            let mut at = 0;
            while let Some(next) = waiting.get_mut(at) {
                let outcome = match &mut next.receipt {
                    Some(receipt) => receipt.await,
                    None => Ok(()),
                };
                match outcome {
                    Ok(()) => {
                        next.receipt = None;
                        at += 1;
                    }
                    // It is not this consumer's any more.
                    Err(_) => drop(waiting.remove(at)),
                }
            }
            if !waiting.is_empty() {
                let count = max.min(waiting.len());
                let handed = waiting.drain(..count).map(|it| it.message);
                return Ok(handed.collect());
            }
        }
    }
}
