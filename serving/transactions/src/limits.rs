//! Every bound of transactions (ARCHITECTURE D15; serving.md C10).

/// Longest transactional id, and longest name of a group of producers. Bytes.
pub const ID_BYTES_MAX: usize = 512;
/// Most transactional ids of a shard.
pub const IDS_MAX: usize = 100_000;
/// Most partitions and group shards of a transaction.
pub const PARTICIPANTS_MAX: usize = 1_000;
/// Most deltas that are under way to a chain; while there are so many, requests are refused.
pub const UNCONFIRMED_DELTAS_MAX: u64 = 4_096;
/// Most markers that a shard has on their way at once; the others wait their turn.
pub const MARKERS_IN_FLIGHT_MAX: usize = 10_000;
/// Largest snapshot that is read. Bytes.
pub const SNAPSHOT_BYTES_MAX: usize = 1 << 30;
/// Most open transactions of a partition.
pub const OPEN_MAX: usize = 10_000;
/// Most transactional producers that a partition, or a shard of groups, knows; beyond it the longest idle one is forgotten.
pub const PRODUCERS_MAX: usize = 100_000;
/// Most offsets, or ranges of acks, that one transaction stages at one place.
pub const STAGED_MAX: usize = 100_000;
/// Most producers whose verification is under way at one place.
pub const GUARDS_MAX: usize = 10_000;
/// Most items of a staging store's partition.
pub const ITEMS_MAX: usize = 1_000_000;
/// Most items on their way to one target: the target's duplicate window covers them (serving.md C2.4).
pub const PUBLISHING_MAX: usize = 5;
/// Most items that one tick looks at.
pub const TICK_ITEMS_MAX: usize = 10_000;
/// Most items that are being appended anew at once.
pub const RENEWING_MAX: usize = 64;
