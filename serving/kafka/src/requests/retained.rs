//! `retention.ms` and `retention.bytes`: how long the records of a topic stay.

use std::time::Duration;

use serving_broker::{RetentionPolicy, Setting};

use super::topics::Refused;
use crate::error_code;

pub(super) const RETENTION_MS: &str = "retention.ms";
pub(super) const RETENTION_BYTES: &str = "retention.bytes";
/// Of both: without limit.
pub(super) const UNLIMITED: i64 = -1;

/// A change of how long records stay.
pub(super) enum Retained {
    Time(Setting<Duration>),
    Bytes(Setting<u64>),
}

impl Retained {
    pub(super) fn apply(&self, policy: &mut RetentionPolicy) {
        match self {
            Self::Time(time) => policy.time = *time,
            Self::Bytes(bytes) => policy.bytes = *bytes,
        }
    }
}

/// What a config says of how long records stay; no value: what the cluster says. `None`: it is another config.
///
/// # Errors
/// INVALID_CONFIG: not a number that may be said.
pub(super) fn retained(name: &str, value: Option<&str>) -> Result<Option<Retained>, Refused> {
    if !matches!(name, RETENTION_MS | RETENTION_BYTES) {
        return Ok(None);
    }
    let wrong = |value: &str| {
        let why = format!("{name} is a whole number, or {UNLIMITED} for no limit, not {value:?}");
        (error_code::INVALID_CONFIG, why)
    };
    let number = value
        .map(|value| value.parse::<i64>().map_err(|_| wrong(value)))
        .transpose()?;
    let refused = || wrong(value.unwrap_or_default());
    let change = match name {
        RETENTION_MS => Setting::from_wire_ms(number).map(Retained::Time),
        _ => Setting::<u64>::from_wire(number).map(Retained::Bytes),
    };
    change.map(Some).ok_or_else(refused)
}
