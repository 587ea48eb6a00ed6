//! Every bound of a coordinator shard (ARCHITECTURE D15). Bytes unless named otherwise.

/// Longest name of a group.
pub const GROUP_NAME_BYTES_MAX: usize = 512;
/// Longest id of a member, of a static member, of a client, of a host, of a protocol, of a rack; longest topic name.
pub const ID_BYTES_MAX: usize = 512;
/// Longest pattern of topic names.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Largest program that a pattern may become.
pub const PATTERN_PROGRAM_BYTES_MAX: usize = 1 << 20;
/// Most groups of a shard.
pub const GROUPS_MAX: usize = 100_000;
/// Most members of a group, whatever the config says.
pub const MEMBERS_MAX: u32 = 10_000;
/// What one member's protocols, or its assignment, may take.
pub const MEMBER_BYTES_MAX: usize = 256 << 10;
/// What a group's members may take together, protocols and assignments: it is one record.
pub const GROUP_BYTES_MAX: usize = 2 << 20;
/// Most protocols of a classic member.
pub const PROTOCOLS_MAX: usize = 32;
/// Most topic names of one subscription.
pub const SUBSCRIBED_TOPICS_MAX: usize = 10_000;
/// What the topic names that a group's members subscribe to may take together.
pub const SUBSCRIBED_BYTES_MAX: usize = 16 << 20;
/// Most partitions that a group may have to share.
pub const ASSIGNED_PARTITIONS_MAX: usize = 100_000;
/// Most committed offsets of a group.
pub const OFFSETS_MAX: usize = 200_000;
/// Most offsets of one request: they are one delta.
pub const REQUEST_OFFSETS_MAX: usize = 20_000;
/// What the offsets of one request may take as a record, which is an entry.
pub const REQUEST_OFFSETS_BYTES_MAX: usize = 4 << 20;
/// Longest metadata of a committed offset (serving.md B1, as Kafka's default).
pub const OFFSET_METADATA_BYTES_MAX: usize = 4096;
/// Most deltas that are under way to the chain; while there are so many, requests are refused as "loading".
pub const UNCONFIRMED_DELTAS_MAX: u64 = 4096;
/// Largest snapshot that is read.
pub const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
