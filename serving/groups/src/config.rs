//! What an operator may set of groups.

use crate::limits::MEMBERS_MAX;

/// Times in ms. The defaults are Kafka's (serving.md B6, B7) and ARCHITECTURE §5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupsConfig {
    /// Shortest session of a classic member.
    pub session_min_ms: u32,
    /// Longest session of a classic member.
    pub session_max_ms: u32,
    /// An empty group waits so long for more members before its first generation.
    pub initial_rebalance_delay_ms: u32,
    /// Session of a member of the newer protocol.
    pub consumer_session_ms: u32,
    /// What such a member is told about its heartbeats.
    pub consumer_heartbeat_ms: u32,
    /// Members of a group.
    pub members_max: u32,
    /// Offsets of a group without members are kept so long.
    pub offsets_retention_ms: u64,
    /// A member whose application takes no record for so long, with records waiting, is warned (amendment "Livelock guard").
    pub idle_max_ms: u64,
    /// After the warning it keeps its partitions so long.
    pub idle_grace_ms: u64,
}

impl Default for GroupsConfig {
    fn default() -> Self {
        Self {
            session_min_ms: 6_000,
            session_max_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            consumer_session_ms: 45_000,
            consumer_heartbeat_ms: 5_000,
            members_max: 1_000,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            idle_max_ms: 300_000,
            idle_grace_ms: 30_000,
        }
    }
}

impl GroupsConfig {
    /// Members of a group, within what a group may have at all.
    pub(crate) fn members_max(&self) -> usize {
        self.members_max.min(MEMBERS_MAX) as usize
    }
}
