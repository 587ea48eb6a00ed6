//! Bounds of a task (compute.md B11). Each breach is an error that names the field.

use std::time::Duration;

/// Bounds and waits of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Records that one epoch takes. Default: 100,000. Minimum: 1.
    pub epoch_rows_max: usize,
    /// Bytes of records that one epoch takes; one record more than fits is taken, so that a large one passes. Default: 16 MiB.
    pub epoch_input_bytes_max: usize,
    /// Bytes that one epoch writes to topics. An epoch that would write more is tried again with half of its records. Default: 64 MiB.
    pub epoch_output_bytes_max: usize,
    /// Bytes of changed rows of state that one epoch holds back until its commit; breach as above. Default: 64 MiB.
    pub epoch_overlay_bytes_max: usize,
    /// Bytes of state of a task: keys, rows and 64 bytes each. Default: 1 GiB.
    pub state_bytes_max: usize,
    /// Bytes of changelog that a restore holds besides its snapshot. Default: 2 GiB.
    pub restore_bytes_max: usize,
    /// Longest record of the changelog, bytes; longer deltas are split into chunks. Default: 512 KiB, below the limit of a record.
    pub changelog_record_bytes_max: usize,
    /// A snapshot is due once the changelog has grown by this since the last, or by the last one's size if that is more (B6).
    /// Default: 64 MiB.
    pub snapshot_after_bytes: u64,
    /// .. or after so long, if anything changed. Default: 10 min.
    pub snapshot_after: Duration,
    /// Share of an epoch's records that may fail under `skip` and `dead_letter`, in 1/1000; more fails the function rather than flood
    /// a topic (B10). An epoch below 100 records may always have one. Default: 100.
    pub error_permille_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            epoch_rows_max: 100_000,
            epoch_input_bytes_max: 16 * MIB,
            epoch_output_bytes_max: 64 * MIB,
            epoch_overlay_bytes_max: 64 * MIB,
            state_bytes_max: 1024 * MIB,
            restore_bytes_max: 2048 * MIB,
            changelog_record_bytes_max: MIB / 2,
            snapshot_after_bytes: 64 * MIB as u64,
            snapshot_after: Duration::from_secs(600),
            error_permille_max: 100,
        }
    }
}
