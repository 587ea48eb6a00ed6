//! What is said of how much a subscription may keep.

use std::time::Duration;

use hulse_proto::wire::v1::BacklogAction;

use crate::retention::Setting;

/// What happens to a subscription that keeps more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QuotaAction {
    /// Nothing: it goes on keeping, and is reported.
    #[default]
    Hold,
    /// Producers are refused until it has processed enough.
    Reject,
    /// It loses its oldest records.
    Evict,
}

/// What a topic says, of each subscription that holds, on each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BacklogPolicy {
    /// Bytes from its first record that is not processed to the end of the log.
    pub bytes: Setting<u64>,
    /// Since that record was appended; whole milliseconds.
    pub time: Setting<Duration>,
    /// `None`: what the cluster says.
    pub action: Option<QuotaAction>,
}

/// What holds in the end. The default: no limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BacklogLimits {
    /// `None`: without limit.
    pub bytes: Option<u64>,
    /// `None`: without limit.
    pub time: Option<Duration>,
    /// Beyond a limit.
    pub action: QuotaAction,
}

impl QuotaAction {
    /// Its number on the wire and in metadata.
    pub fn number(self) -> i32 {
        let wire = match self {
            Self::Hold => BacklogAction::Hold,
            Self::Reject => BacklogAction::Reject,
            Self::Evict => BacklogAction::Evict,
        };
        wire as i32
    }

    /// Reads the number of the wire; 0: nothing is said. `None`: it is no number of an action.
    pub fn from_wire(number: i32) -> Option<Option<Self>> {
        match BacklogAction::try_from(number).ok()? {
            BacklogAction::Unspecified => Some(None),
            BacklogAction::Hold => Some(Some(Self::Hold)),
            BacklogAction::Reject => Some(Some(Self::Reject)),
            BacklogAction::Evict => Some(Some(Self::Evict)),
        }
    }
}

impl BacklogPolicy {
    /// What holds in a cluster that says `cluster` of topics that say nothing.
    pub fn limits(&self, cluster: BacklogLimits) -> BacklogLimits {
        BacklogLimits {
            bytes: self.bytes.or(cluster.bytes),
            time: self.time.or(cluster.time),
            action: self.action.unwrap_or(cluster.action),
        }
    }
}

impl From<BacklogLimits> for BacklogPolicy {
    /// As a topic would say it that leaves nothing to the cluster.
    fn from(limits: BacklogLimits) -> Self {
        Self {
            bytes: limits.bytes.map_or(Setting::Unlimited, Setting::Limit),
            time: limits.time.map_or(Setting::Unlimited, Setting::Limit),
            action: Some(limits.action),
        }
    }
}

impl BacklogLimits {
    /// True when nothing is ever too much.
    pub(crate) fn is_off(&self) -> bool {
        self.bytes.is_none() && self.time.is_none()
    }
}
