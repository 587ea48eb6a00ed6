//! How much subscriptions may keep of a topic.

use std::time::Duration;

use hulse_proto::wire::v1;

use super::retention::{Keep, said, time_from_wire, time_to_wire};

/// What happens to a subscription that keeps more of a partition than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BacklogAction {
    /// Nothing: it goes on keeping, and is reported.
    Hold,
    /// Producers are refused with BACKLOG_EXCEEDED until it has processed enough.
    Reject,
    /// It loses its oldest records.
    Evict,
}

/// How much each subscription that holds may keep of each partition, counted from its first record that is not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BacklogQuota {
    /// Bytes up to the end of the log.
    pub bytes: Keep<u64>,
    /// Since that record was appended; whole milliseconds.
    pub time: Keep<Duration>,
    /// `None`: as the cluster says.
    pub action: Option<BacklogAction>,
}

/// What a subscription keeps of a partition, as the owner saw it last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptBacklog {
    /// `tenant/namespace/name`.
    pub subscription: String,
    /// Bytes.
    pub bytes: u64,
    /// Age of its oldest record, ms; 0 where the quota does not go by time.
    pub age_ms: u64,
    /// Of the quota; above 100: over it.
    pub used_percent: u32,
    /// Producers are refused because of it.
    pub refusing: bool,
}

impl BacklogAction {
    fn from_wire(number: i32) -> Option<Self> {
        match v1::BacklogAction::try_from(number) {
            Ok(v1::BacklogAction::Hold) => Some(Self::Hold),
            Ok(v1::BacklogAction::Reject) => Some(Self::Reject),
            Ok(v1::BacklogAction::Evict) => Some(Self::Evict),
            Ok(v1::BacklogAction::Unspecified) | Err(_) => None,
        }
    }

    fn number(self) -> i32 {
        let wire = match self {
            Self::Hold => v1::BacklogAction::Hold,
            Self::Reject => v1::BacklogAction::Reject,
            Self::Evict => v1::BacklogAction::Evict,
        };
        wire as i32
    }

    /// Of an update; `None`: as the cluster says.
    pub(super) fn change_to_wire(change: Option<Self>) -> i32 {
        change.map_or(v1::BacklogAction::Unspecified as i32, Self::number)
    }

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Reject => "reject",
            Self::Evict => "evict",
        }
    }
}

impl BacklogQuota {
    pub(super) fn from_wire(wire: Option<v1::BacklogQuota>) -> Self {
        let wire = wire.unwrap_or_default();
        Self {
            bytes: Keep::from_wire(wire.bytes),
            time: time_from_wire(wire.time_ms),
            action: wire.action.and_then(BacklogAction::from_wire),
        }
    }

    pub(super) fn to_wire(self) -> v1::BacklogQuota {
        v1::BacklogQuota {
            bytes: said(self.bytes.to_wire()),
            time_ms: said(time_to_wire(self.time)),
            action: self.action.map(BacklogAction::number),
        }
    }
}

impl KeptBacklog {
    pub(super) fn from_wire(wire: v1::KeptBacklog) -> Self {
        Self {
            subscription: wire.subscription,
            bytes: wire.bytes,
            age_ms: wire.age_ms,
            used_percent: wire.used_percent,
            refusing: wire.refusing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_comes_back_from_the_wire_as_it_was() {
        for action in [
            None,
            Some(BacklogAction::Hold),
            Some(BacklogAction::Reject),
            Some(BacklogAction::Evict),
        ] {
            for bytes in [Keep::Default, Keep::All, Keep::UpTo(7)] {
                let quota = BacklogQuota {
                    bytes,
                    time: Keep::UpTo(Duration::from_secs(3)),
                    action,
                };
                assert_eq!(BacklogQuota::from_wire(Some(quota.to_wire())), quota);
            }
        }
    }
}
