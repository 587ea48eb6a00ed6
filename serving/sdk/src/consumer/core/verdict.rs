//! What a lane does about a broker's refusal.

use hulse_proto::error::{Fault, Reason};

use super::lane::Lane;
use crate::error::Error;

pub(super) enum Verdict {
    /// Wait, ask where the partition is, attach again.
    Again,
    /// The same, and take the place of the consumer that is attached: it is this one's own ghost.
    TakeOver,
    /// The partition is finished.
    LaneEnds,
    /// The consumer is finished.
    ConsumerEnds(Error),
}

/// Judges `error`, which a broker gave for `lane` of the consumer `name`.
pub(super) fn verdict(error: &Error, lane: &Lane, name: &str) -> Verdict {
    use Reason::{
        ConsumerExists, ConsumerFenced, PartitionNotFound, SubscriptionDeleting,
        SubscriptionExists, SubscriptionNotFound, TopicDeleting, TopicNotFound, TopicRecreated,
        UnsupportedType,
    };
    match error.reason() {
        Some(ConsumerExists) if lane.begun => back(error, name),
        Some(
            ConsumerExists | ConsumerFenced | SubscriptionDeleting | SubscriptionExists
            | SubscriptionNotFound | UnsupportedType,
        ) => Verdict::ConsumerEnds(error.clone()),
        Some(TopicNotFound | PartitionNotFound | TopicDeleting | TopicRecreated) => Verdict::Again,
        _ if error.is_retryable() => Verdict::Again,
        _ => Verdict::LaneEnds,
    }
}

/// This consumer comes back and its place is taken: by its own broken session, which the broker has not missed yet, or by another
/// consumer that took over meanwhile. The name tells; the default one is drawn by chance.
fn back(error: &Error, name: &str) -> Verdict {
    let holder = error
        .fault()
        .and_then(|fault| fault.details.get("consumer"));
    match holder {
        Some(holder) if holder != name => {
            let words =
                format!("consumer {holder} took the subscription over while this one was away");
            Verdict::ConsumerEnds(Fault::new(Reason::ConsumerFenced, words).into())
        }
        _ => Verdict::TakeOver,
    }
}
