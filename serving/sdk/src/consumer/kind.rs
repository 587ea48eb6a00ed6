//! Types of subscriptions, and places to begin, as the wire has them.

use std::fmt;
use std::str::FromStr;

use hulse_proto::wire::v1;
use hulse_proto::wire::v1::start_at::At;

use crate::reader::Start;

/// How the consumers of a subscription share its records. Takes and prints `exclusive`, `failover`, ….
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SubscriptionType {
    /// One consumer per partition; a second one is refused, or takes over.
    #[default]
    Exclusive,
    /// Any number of consumers; one of them gets the records of a partition, the others stand by.
    Failover,
    /// Records are shared by all consumers, and each is acknowledged by itself: [`crate::QueueConsumer`].
    Queue,
    /// As a queue, with the records of one key to one consumer at a time, in order.
    Keyed,
    /// The members of a group share the partitions: [`crate::StreamConsumer`].
    Stream,
}

impl SubscriptionType {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Exclusive,
        Self::Failover,
        Self::Queue,
        Self::Keyed,
        Self::Stream,
    ];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Failover => "failover",
            Self::Queue => "queue",
            Self::Keyed => "keyed",
            Self::Stream => "stream",
        }
    }

    pub(crate) fn to_wire(self) -> v1::SubscriptionType {
        match self {
            Self::Exclusive => v1::SubscriptionType::Exclusive,
            Self::Failover => v1::SubscriptionType::Failover,
            Self::Queue => v1::SubscriptionType::Queue,
            Self::Keyed => v1::SubscriptionType::Keyed,
            Self::Stream => v1::SubscriptionType::Stream,
        }
    }

    pub(crate) fn from_wire(wire: v1::SubscriptionType) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_wire() == wire)
    }
}

impl fmt::Display for SubscriptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no type of subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSubscriptionType(String);

impl fmt::Display for UnknownSubscriptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no type of subscriptions; write exclusive, failover, queue, keyed or stream",
            self.0
        )
    }
}

impl std::error::Error for UnknownSubscriptionType {}

impl FromStr for SubscriptionType {
    type Err = UnknownSubscriptionType;

    fn from_str(text: &str) -> Result<Self, UnknownSubscriptionType> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|kind| kind.as_str() == text);
        found.ok_or_else(|| UnknownSubscriptionType(text.to_owned()))
    }
}

/// A place on the wire.
pub(crate) fn start_at(start: Start) -> v1::StartAt {
    let at = match start {
        Start::Earliest => At::Earliest(true),
        Start::Latest => At::Latest(true),
        Start::Offset(offset) => At::Offset(offset.0),
        Start::Time(time) => At::TimeMs(time),
    };
    v1::StartAt { at: Some(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_parse_what_they_print_and_come_back_from_the_wire() {
        for kind in SubscriptionType::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
            assert_eq!(SubscriptionType::from_wire(kind.to_wire()), Some(kind));
        }
        let error = "shared".parse::<SubscriptionType>().unwrap_err();
        assert!(error.to_string().contains("failover"), "{error}");
        assert_eq!(
            SubscriptionType::from_wire(v1::SubscriptionType::Unspecified),
            None
        );
    }
}
