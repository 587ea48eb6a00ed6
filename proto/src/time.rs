//! Wall time as a seam. Passing time is tokio's; this is only "what date is it".

/// Milliseconds since 1970-01-01T00:00Z; negative before.
pub type TimestampMs = i64;

/// The date, from the operating system in production and from virtual time in simulation.
///
/// Never used for correctness (storage.md E6): hints, record timestamps and retention only.
pub trait WallClock: Send + Sync + 'static {
    /// Now. May step in either direction between two calls.
    fn now_ms(&self) -> TimestampMs;
}
