//! What a QUEUE or KEYED subscription may choose: locks, attempts, dead letters, back-off, the order of keys.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::TopicName;
use hulse_proto::wire::v1;
use serving_dispatch::{Backoff, DeadLetters, KeyOrder, Kind, Policy};

use crate::BrokerConfig;

/// Longest back-off after the first failure, ms: a day.
const BACKOFF_MS_MAX: u32 = 24 * 3_600 * 1_000;

/// Its choices; what is not said is as [`Policy::new`] has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sharing {
    /// A record without an answer comes back after this, ms; 0: never.
    pub lock_ms: Option<u32>,
    /// Failed attempts until a record is dead; 0: no limit.
    pub attempts_max: Option<u16>,
    /// Then.
    pub dead: Dead,
    /// A record that failed waits this long after the first time, and twice as long each time, ms.
    pub backoff_ms: Option<u32>,
    /// KEYED.
    pub order: Order,
    /// KEYED: consumers name their slots.
    pub named_slots: bool,
}

/// What becomes of dead records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Dead {
    /// They stay, and are not delivered.
    #[default]
    Park,
    /// They count as processed.
    Drop,
    /// They are copied to this topic.
    Topic(TopicName),
}

/// What KEYED promises beside that a key is at one consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// First deliveries of a key come in order.
    #[default]
    Sticky,
    /// And what was returned stops its keys.
    BlockOnNack,
    /// And the next record of a key comes when the one before is acked.
    OneInFlight,
}

impl Sharing {
    /// Reads the wire; nothing: all as it is when nobody says anything.
    ///
    /// # Errors
    /// `INVALID_REQUEST`: a value out of its bounds. `INVALID_NAME`: a topic that is none.
    pub fn from_wire(wire: Option<&v1::SharingPolicies>) -> Result<Self, Fault> {
        let Some(wire) = wire else {
            return Ok(Self::default());
        };
        let invalid = |words: String| Fault::new(Reason::InvalidRequest, words);
        let attempts_max = match wire.attempts_max.map(u16::try_from) {
            None => None,
            Some(Ok(attempts)) => Some(attempts),
            Some(Err(_)) => return Err(invalid("attempts_max is too large".to_owned())),
        };
        let sharing = Self {
            lock_ms: wire.lock_ms,
            attempts_max,
            dead: match (wire.dead_letters(), wire.dead_letter_topic.as_str()) {
                (v1::DeadLetters::Unspecified | v1::DeadLetters::Park, "") => Dead::Park,
                (v1::DeadLetters::Drop, "") => Dead::Drop,
                (v1::DeadLetters::Topic, topic) => Dead::Topic(
                    topic
                        .parse()
                        .map_err(|error| Fault::new(Reason::InvalidName, format!("{error}")))?,
                ),
                (_, topic) => {
                    let words = format!(
                        "dead letters do not go to topic {topic:?} unless they go to a topic"
                    );
                    return Err(invalid(words));
                }
            },
            backoff_ms: wire.backoff_ms,
            order: match wire.key_order() {
                v1::KeyOrder::Unspecified | v1::KeyOrder::Sticky => Order::Sticky,
                v1::KeyOrder::BlockOnNack => Order::BlockOnNack,
                v1::KeyOrder::OneInFlight => Order::OneInFlight,
            },
            named_slots: wire.named_slots,
        };
        if sharing.backoff_ms.is_some_and(|ms| ms > BACKOFF_MS_MAX) {
            return Err(invalid(format!(
                "backoff_ms is above {BACKOFF_MS_MAX}, a day"
            )));
        }
        match sharing.policy_of(Kind::Queue).validate() {
            Ok(()) => Ok(sharing),
            Err(faults) => {
                let words: Vec<String> = faults.iter().map(ToString::to_string).collect();
                Err(invalid(words.join("; ")))
            }
        }
    }

    /// For the wire, and for metadata.
    pub fn to_wire(&self) -> v1::SharingPolicies {
        let (dead, topic) = match &self.dead {
            Dead::Park => (v1::DeadLetters::Park, ""),
            Dead::Drop => (v1::DeadLetters::Drop, ""),
            Dead::Topic(topic) => (v1::DeadLetters::Topic, topic.as_str()),
        };
        let order = match self.order {
            Order::Sticky => v1::KeyOrder::Sticky,
            Order::BlockOnNack => v1::KeyOrder::BlockOnNack,
            Order::OneInFlight => v1::KeyOrder::OneInFlight,
        };
        v1::SharingPolicies {
            lock_ms: self.lock_ms,
            attempts_max: self.attempts_max.map(u32::from),
            dead_letters: dead as i32,
            dead_letter_topic: topic.to_owned(),
            backoff_ms: self.backoff_ms,
            key_order: order as i32,
            named_slots: self.named_slots,
        }
    }

    /// Where dead letters go.
    pub(crate) fn dead_letters(&self) -> Option<TopicName> {
        match &self.dead {
            Dead::Topic(topic) => Some(topic.clone()),
            Dead::Park | Dead::Drop => None,
        }
    }

    /// Whether records of this topic may be shared so.
    ///
    /// # Errors
    /// `INVALID_REQUEST`: its dead letters would come back to it, and die there again without end.
    pub(crate) fn check_topic(&self, topic: &TopicName) -> Result<(), Fault> {
        if self.dead_letters().as_ref() != Some(topic) {
            return Ok(());
        }
        let words = format!(
            "dead letters of {topic} cannot go to {topic} itself, where they would die again without end; name another topic"
        );
        Err(Fault::new(Reason::InvalidRequest, words))
    }

    pub(crate) fn policy(&self, keyed: bool, config: &BrokerConfig) -> Policy {
        let kind = match (keyed, self.order) {
            (false, _) => Kind::Queue,
            (true, Order::Sticky) => Kind::Keyed(KeyOrder::Sticky),
            (true, Order::BlockOnNack) => Kind::Keyed(KeyOrder::BlockOnNack),
            (true, Order::OneInFlight) => Kind::Keyed(KeyOrder::OneInFlight),
        };
        Policy {
            unacked_max: config.unacked_records_max.into(),
            named_slots: keyed && self.named_slots,
            // Changes of all cursors are gathered together.
            gather_ms: 0,
            ..self.policy_of(kind)
        }
    }

    fn policy_of(&self, kind: Kind) -> Policy {
        let base = Policy::new(kind);
        Policy {
            lock_ms: self.lock_ms.map_or(base.lock_ms, i64::from),
            attempts_max: self.attempts_max.unwrap_or(base.attempts_max),
            dead: match self.dead {
                Dead::Park => DeadLetters::Park,
                Dead::Drop => DeadLetters::Drop,
                Dead::Topic(_) => DeadLetters::Topic,
            },
            backoff: match self.backoff_ms {
                None | Some(0) => Backoff::None,
                Some(min_ms) => Backoff::Doubling { min_ms },
            },
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(wire: v1::SharingPolicies) -> Reason {
        Sharing::from_wire(Some(&wire)).unwrap_err().reason
    }

    #[test]
    fn choices_come_back_from_the_wire_and_what_cannot_be_is_refused() {
        let all = Sharing {
            lock_ms: Some(60_000),
            attempts_max: Some(3),
            dead: Dead::Topic("graves".parse().unwrap()),
            backoff_ms: Some(100),
            order: Order::OneInFlight,
            named_slots: true,
        };
        for sharing in [all, Sharing::default()] {
            assert_eq!(Sharing::from_wire(Some(&sharing.to_wire())), Ok(sharing));
        }
        let none = v1::SharingPolicies::default;
        for wrong in [
            v1::SharingPolicies {
                lock_ms: Some(14_999),
                ..none()
            },
            v1::SharingPolicies {
                attempts_max: Some(1),
                ..none()
            },
            v1::SharingPolicies {
                attempts_max: Some(1 << 20),
                ..none()
            },
            v1::SharingPolicies {
                backoff_ms: Some(u32::MAX),
                ..none()
            },
            v1::SharingPolicies {
                dead_letter_topic: "graves".to_owned(),
                ..none()
            },
        ] {
            assert_eq!(refusal(wrong), Reason::InvalidRequest);
        }
        let nameless = v1::SharingPolicies {
            dead_letters: v1::DeadLetters::Topic as i32,
            ..none()
        };
        assert_eq!(refusal(nameless), Reason::InvalidName);
    }
}
