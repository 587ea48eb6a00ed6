//! How the records of a QUEUE or KEYED subscription are shared out.

use std::time::Duration;

use hulse_proto::wire::v1;

/// What can be chosen when the subscription is made. What is `None` is as the server has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sharing {
    /// A record without an answer comes back after this: 15 s to 15 min; zero: never. Default 30 s.
    pub lock: Option<Duration>,
    /// Failed attempts until a record is dead: 2 to 100; 0: no limit. Default 5.
    pub attempts_max: Option<u32>,
    /// What becomes of it then.
    pub dead_letters: DeadLetters,
    /// A record that failed waits this long after the first time, and twice as long each time. Default: it does not wait.
    pub backoff: Option<Duration>,
    /// KEYED.
    pub key_order: KeyOrder,
    /// KEYED: consumers name their slots ([`crate::QueueConsumerBuilder::slots`]) instead of being given them. A record whose slot
    /// nobody names waits.
    pub named_slots: bool,
}

/// What becomes of records that failed too often.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DeadLetters {
    /// They stay where they are, and are not delivered.
    #[default]
    Park,
    /// They count as processed.
    Drop,
    /// They are copied to the topic of this name, with where they come from and why in headers `hulse.dead-letter.*`. It is made at the
    /// first one, with one partition.
    Topic(String),
}

/// What KEYED promises beside that the records of a key are at one consumer at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyOrder {
    /// First deliveries of a key come in order.
    #[default]
    Sticky,
    /// And a record that was returned, or whose lock ended, stops its keys until it is acknowledged or dead.
    BlockOnNack,
    /// And the next record of a key comes only when the one before is acknowledged.
    OneInFlight,
}

impl Sharing {
    pub(crate) fn to_wire(&self) -> v1::SharingPolicies {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let (dead, topic) = match &self.dead_letters {
            DeadLetters::Park => (v1::DeadLetters::Park, ""),
            DeadLetters::Drop => (v1::DeadLetters::Drop, ""),
            DeadLetters::Topic(topic) => (v1::DeadLetters::Topic, topic.as_str()),
        };
        let order = match self.key_order {
            KeyOrder::Sticky => v1::KeyOrder::Sticky,
            KeyOrder::BlockOnNack => v1::KeyOrder::BlockOnNack,
            KeyOrder::OneInFlight => v1::KeyOrder::OneInFlight,
        };
        v1::SharingPolicies {
            lock_ms: self.lock.map(ms),
            attempts_max: self.attempts_max,
            dead_letters: dead as i32,
            dead_letter_topic: topic.to_owned(),
            backoff_ms: self.backoff.map(ms),
            key_order: order as i32,
            named_slots: self.named_slots,
        }
    }

    pub(super) fn from_wire(wire: &v1::SharingPolicies) -> Self {
        let time = |ms: Option<u32>| ms.map(|ms| Duration::from_millis(ms.into()));
        Self {
            lock: time(wire.lock_ms),
            attempts_max: wire.attempts_max,
            dead_letters: match wire.dead_letters() {
                v1::DeadLetters::Unspecified | v1::DeadLetters::Park => DeadLetters::Park,
                v1::DeadLetters::Drop => DeadLetters::Drop,
                v1::DeadLetters::Topic => DeadLetters::Topic(wire.dead_letter_topic.clone()),
            },
            backoff: time(wire.backoff_ms),
            key_order: match wire.key_order() {
                v1::KeyOrder::Unspecified | v1::KeyOrder::Sticky => KeyOrder::Sticky,
                v1::KeyOrder::BlockOnNack => KeyOrder::BlockOnNack,
                v1::KeyOrder::OneInFlight => KeyOrder::OneInFlight,
            },
            named_slots: wire.named_slots,
        }
    }
}
