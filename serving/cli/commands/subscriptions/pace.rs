//! How a subscription stands in records, and how fast it goes.

use hulse_sdk::{CursorRates, CursorState};
use serde::Serialize;

use crate::output::grouped;

/// Where the records of a backlog are.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Stock {
    pub(super) ready_records: u64,
    pub(super) delayed_records: u64,
    pub(super) dead_records: u64,
    pub(super) dead_letters: u64,
    pub(super) expired_records: u64,
}

impl Stock {
    /// Of one cursor.
    pub(super) fn of(state: &CursorState) -> Self {
        let aside = state.unacked_records + state.delayed_records + state.dead_records;
        Self {
            ready_records: state.backlog_records.saturating_sub(aside),
            delayed_records: state.delayed_records,
            dead_records: state.dead_records,
            dead_letters: state.dead_letters,
            expired_records: state.expired_records,
        }
    }

    pub(super) fn sum(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            ready_records: sum.ready_records + one.ready_records,
            delayed_records: sum.delayed_records + one.delayed_records,
            dead_records: sum.dead_records + one.dead_records,
            dead_letters: sum.dead_letters + one.dead_letters,
            expired_records: sum.expired_records + one.expired_records,
        })
    }
}

/// Records per second, and when the backlog is empty if it goes on like this.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Pace {
    pub(super) in_per_s: Option<f64>,
    pub(super) out_per_s: Option<f64>,
    pub(super) drain_ms: Option<u64>,
}

impl Pace {
    /// Of cursors, of which as many are counted as have been watched for long enough.
    pub(super) fn of<'a>(states: impl Iterator<Item = &'a CursorState> + Clone) -> Self {
        let rates = states.clone().filter_map(|state| state.rates);
        let sum = |of: fn(CursorRates) -> f64| {
            let known = rates.clone().map(of);
            known.reduce(|sum, one| sum + one).map(rounded)
        };
        let (incoming, outgoing) = (sum(|it| it.incoming), sum(|it| it.outgoing));
        let backlog: u64 = states.map(|state| state.backlog_records).sum();
        Self {
            in_per_s: incoming,
            out_per_s: outgoing,
            drain_ms: incoming
                .zip(outgoing)
                .and_then(|(incoming, outgoing)| drain_ms(backlog, outgoing - incoming)),
        }
    }
}

/// Programs compare numbers: a tenth is as exact as it is.
pub(super) fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

fn drain_ms(backlog: u64, shrinks: f64) -> Option<u64> {
    match backlog {
        0 => Some(0),
        _ if shrinks > 0.0 => Some((backlog as f64 * 1_000.0 / shrinks) as u64),
        _ => None,
    }
}

/// "1,204", "0.5", "-".
pub(super) fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate > 0.0 && rate < 10.0 => format!("{rate:.1}"),
        Some(rate) => grouped(rate.round() as u64),
    }
}

/// "42s", "3m", "5h", "2d"; the age of a backlog needs no more.
pub(super) fn age(ms: u64) -> String {
    match ms / 1000 {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

pub(super) fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

/// What holds consumers up, in a word or two.
pub(super) fn blocked(why: &str) -> &str {
    match why {
        "BLOCKED_REASON_UNACKED_OF_CONSUMER" => "a consumer holds as many records as it may",
        "BLOCKED_REASON_UNACKED_OF_CURSOR" => "as many records are held as may be",
        "BLOCKED_REASON_ACK_RANGES" => "too many holes between acknowledged records",
        "BLOCKED_REASON_ACKS_WAIT" => "acknowledgements cannot be made durable now",
        "BLOCKED_REASON_PAUSED" => "paused",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_one_unit() {
        for (ms, text) in [
            (0, "0s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (7_200_000, "2h"),
            (200_000_000, "2d"),
        ] {
            assert_eq!(age(ms), text);
        }
    }

    #[test]
    fn backlog_that_does_not_shrink_is_never_empty() {
        assert_eq!(drain_ms(0, -5.0), Some(0));
        assert_eq!(drain_ms(100, 50.0), Some(2_000));
        assert_eq!(drain_ms(100, 0.0), None);
    }

    #[test]
    fn rates_are_short() {
        let told = [None, Some(0.0), Some(0.25), Some(1_204.4)].map(rate);
        assert_eq!(told, ["-", "0", "0.2", "1,204"]);
    }
}
