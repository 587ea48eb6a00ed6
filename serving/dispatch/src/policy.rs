//! What a subscription may choose of its dispatch, with defaults and bounds.

use hulse_proto::time::TimestampMs;

/// How records are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any record to any consumer.
    Queue,
    /// Records of one key to one consumer at a time.
    Keyed(KeyOrder),
}

/// What KEYED promises (serving.md B4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrder {
    /// Unacked records of a slot are at one consumer (K1), first deliveries of a slot come in order (K2).
    Sticky,
    /// And a record that was given back by itself, or whose lock ended, stops its slot until it is acked or dead-lettered.
    BlockOnNack,
    /// And the next record of a key comes only after the ack of the one before is durable. Keys with one hash count as one key.
    OneInFlight,
}

/// What becomes of a record that failed too often (B3.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetters {
    /// It stays, is not delivered, and holds the base.
    Park,
    /// It counts as processed.
    Drop,
    /// It is copied to a topic, and is processed when the copy is durable.
    Topic,
}

/// How long a record that was given back waits, unless the consumer says (B3.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backoff {
    /// It does not.
    None,
    /// For the n-th failure the n-th of these, ms; the last one for all later ones.
    Steps(Vec<u32>),
    /// `min_ms` doubled with each failure, and up to a quarter more by chance.
    Doubling {
        /// After the first failure.
        min_ms: u32,
    },
}

/// Longest delay of a record, ms: a day (B3.10).
pub const DELAY_MS_MAX: TimestampMs = 24 * 3_600 * 1_000;
/// Dead letters under way per cursor: what a producer's duplicate window covers (amendment to B3.11).
pub const LETTERS_MAX: usize = 5;
/// Consumers of one cursor.
pub const SESSIONS_MAX: usize = 1_000;
/// Most that a lock may last, ms; also the least, unless 0 (B3.5).
pub const LOCK_MS: (TimestampMs, TimestampMs) = (15_000, 15 * 60_000);

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// QUEUE or KEYED.
    pub kind: Kind,
    /// KEYED: consumers name their slots instead of being given them (B4.1).
    pub named_slots: bool,
    /// A record without an answer comes back after this; 0: never (B3.5).
    pub lock_ms: TimestampMs,
    /// Failed attempts until a record is dead; 0: no limit (B3.8).
    pub attempts_max: u16,
    /// Then.
    pub dead: DeadLetters,
    /// Before then.
    pub backoff: Backoff,
    /// Unacked records per consumer (B9.2).
    pub unacked_max: u64,
    /// Unacked records per cursor (B2.7).
    pub window_max: u64,
    /// Acked ranges above the base; then nothing new is read (B2.7).
    pub ack_ranges_max: usize,
    /// Records that are read ahead and not delivered (B4.5) …
    pub look_ahead_records: u64,
    /// … and bytes, by the mean size of what was read last …
    pub look_ahead_bytes: u64,
    /// … and records per consumer that could take some.
    pub look_ahead_per_consumer: u64,
    /// Records of one delivery. More than a batch has: batches are not split.
    pub unit_records_max: u64,
    /// After a take-over old records wait this long, from the first consumer on, for acks with tickets (B3.14).
    pub reattach_grace_ms: TimestampMs,
    /// KEYED: the slots of a consumer that went are kept for its name this long (B4.10).
    pub name_grace_ms: TimestampMs,
    /// Changes are gathered for this long before they are written …
    pub gather_ms: TimestampMs,
    /// … or up to this many bytes (B2.3).
    pub gather_bytes: usize,
    /// With changes that are not durable for this long nothing more is delivered (B10).
    pub doubt_ms: TimestampMs,
}

impl Policy {
    /// The defaults.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            named_slots: false,
            lock_ms: 30_000,
            attempts_max: 5,
            dead: DeadLetters::Park,
            backoff: Backoff::None,
            unacked_max: 5_000,
            window_max: 20_000,
            ack_ranges_max: 10_000,
            look_ahead_records: 2_000,
            look_ahead_bytes: 16 << 20,
            look_ahead_per_consumer: 500,
            unit_records_max: u64::MAX,
            reattach_grace_ms: 1_000,
            name_grace_ms: 0,
            gather_ms: 4,
            gather_bytes: 64 << 10,
            doubt_ms: 2_000,
        }
    }

    /// The bounds of what users may set.
    ///
    /// # Errors
    /// Every value that is out of its bounds.
    pub fn validate(&self) -> Result<(), Vec<PolicyFault>> {
        let mut faults = Vec::new();
        let mut check = |field, found: i64, min: i64, max: i64| {
            if found < min || found > max {
                faults.push(PolicyFault {
                    field,
                    found,
                    min,
                    max,
                });
            }
        };
        if self.lock_ms != 0 {
            check("lock_ms", self.lock_ms, LOCK_MS.0, LOCK_MS.1);
        }
        if self.attempts_max != 0 {
            check("attempts_max", i64::from(self.attempts_max), 2, 100);
        }
        check("name_grace_ms", self.name_grace_ms, 0, 60_000);
        check("reattach_grace_ms", self.reattach_grace_ms, 0, 60_000);
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        check("unacked_max", whole(self.unacked_max), 1, 1 << 30);
        check("window_max", whole(self.window_max), 1, 1 << 30);
        check(
            "unit_records_max",
            whole(self.unit_records_max),
            1,
            i64::MAX,
        );
        if let Backoff::Steps(steps) = &self.backoff {
            check("backoff steps", steps.len() as i64, 1, 32);
        }
        match faults.is_empty() {
            true => Ok(()),
            false => Err(faults),
        }
    }

    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.kind, Kind::Keyed(_))
    }

    pub(crate) fn is_strict(&self) -> bool {
        matches!(self.kind, Kind::Keyed(order) if order != KeyOrder::Sticky)
    }

    /// A record that failed so often is dead.
    pub(crate) fn is_spent(&self, failed: u16) -> bool {
        self.attempts_max > 0 && failed >= self.attempts_max
    }

    /// How many records a delivery may have that holds one which failed so often; `None`: it is no suspect (B3.9).
    ///
    /// From attempt max(2, half the limit) on, counted from 1, the number is halved with each one so that the last attempt is
    /// alone: with a limit of 5 attempts 3, 4 and 5 go out as 4, 2 and 1 records.
    pub(crate) fn suspects_max(&self, failed: u16) -> Option<u64> {
        let (threshold, last) = match self.attempts_max {
            0 => (2, 4),
            limit => ((limit.div_ceil(2)).max(2) - 1, limit - 1),
        };
        if failed < threshold {
            return None;
        }
        Some(1 << u32::from(last.saturating_sub(failed)).min(16))
    }
}

/// A value that is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {found}; it must be from {min} to {max}")]
pub struct PolicyFault {
    /// Which.
    pub field: &'static str,
    /// As given.
    pub found: i64,
    /// Least.
    pub min: i64,
    /// Most.
    pub max: i64,
}
