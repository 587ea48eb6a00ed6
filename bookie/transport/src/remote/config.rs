//! What the callers' end is told.

use std::time::Duration;

/// Bounds and times of the connections to one bookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteConfig {
    /// Bytes of adds that wait or are out, to one bookie; a further one is answered `Busy`. As much as the bookie itself lets wait.
    pub add_bytes_max: usize,
    /// Bytes of answers to reads that may be on their way from one bookie; further reads wait here.
    pub read_bytes_max: usize,
    /// Bytes that one read asks for at most, whatever its caller asks for.
    pub one_read_bytes_max: u32,
    /// Calls that wait or are out, to one bookie and of one lane; a further one is answered `Busy`.
    pub calls_max: usize,
    /// A call that has no answer for this long is answered `NoAnswer`. Above the patience of every caller: it only keeps calls that
    /// a bookie forgot from filling the room for ever.
    pub answer_timeout: Duration,
    /// How long a dial and the opening of its stream may take.
    pub open_timeout: Duration,
    /// First wait after a failed dial; doubles up to [`RemoteConfig::redial_max`].
    pub redial_initial: Duration,
    /// Longest wait after a failed dial.
    pub redial_max: Duration,
    /// A silent connection is asked this often whether it lives, also while no call is out.
    pub ping_interval: Duration,
    /// It is broken when it does not answer for this long: this finds a frozen process and a cut cable.
    pub ping_timeout: Duration,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self {
            add_bytes_max: 64 << 20,
            read_bytes_max: 32 << 20,
            one_read_bytes_max: 8 << 20,
            calls_max: 16 << 10,
            answer_timeout: Duration::from_secs(15),
            open_timeout: Duration::from_secs(2),
            redial_initial: Duration::from_millis(50),
            redial_max: Duration::from_secs(2),
            ping_interval: Duration::from_secs(2),
            ping_timeout: Duration::from_secs(3),
        }
    }
}
