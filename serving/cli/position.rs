//! Positions of `-o`: where to begin and, after a colon, where to stop (operations.md B).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hulse_proto::time::TimestampMs;

use crate::config::Period;
use crate::format::parse_rfc3339;

/// A place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first record that is kept.
    Start,
    /// After the last record there is now.
    End,
    /// This offset.
    At(u64),
    /// So many records before the end.
    BeforeEnd(u64),
    /// So many records after the start.
    AfterStart(u64),
    /// The first record of this time or later.
    Time(TimestampMs),
    /// The first record of so many ms before now or later.
    Ago(i64),
}

/// As it is written.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::End => f.write_str("end"),
            Self::At(offset) => write!(f, "{offset}"),
            Self::BeforeEnd(records) => write!(f, "-{records}"),
            Self::AfterStart(records) => write!(f, "+{records}"),
            Self::Time(ms) => write!(f, "@{ms}"),
            Self::Ago(ms) => {
                let ago = Duration::from_millis(ms.unsigned_abs());
                write!(f, "@-{}", Period(ago))
            }
        }
    }
}

/// Where to begin and where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// First record.
    pub(crate) from: Place,
    /// Exclusive; `None`: never.
    pub(crate) until: Option<Place>,
}

/// The forms, for the help pages.
pub(crate) const HELP: &str = "\
Positions: start (earliest, beginning) | end (latest)
           N offset | -N the last N | +N skip N from the start | N:M N: :M :end ranges (end exclusive)
           @TIME | @TIME:TIME, where TIME is 2013-01-31, 2013-01-31T10:00:00Z, seconds or ms since 1970, or -15m:
           the time that a record carries, which is that of its sending unless its producer said another";

impl Place {
    /// The offset, between `start` and `end` of the partition; `found` answers the offset of a time.
    pub(crate) fn offset(self, start: u64, end: u64, found: Option<u64>) -> u64 {
        match self {
            Self::Start => start,
            Self::End => end,
            Self::At(offset) => offset,
            Self::BeforeEnd(records) => end.saturating_sub(records).max(start),
            Self::AfterStart(records) => start.saturating_add(records).min(end),
            Self::Time(_) | Self::Ago(_) => found.unwrap_or(end),
        }
    }

    /// The time to look up, if this place is one.
    pub(crate) fn time(self, now_ms: TimestampMs) -> Option<TimestampMs> {
        match self {
            Self::Time(ms) => Some(ms),
            Self::Ago(ms) => Some(now_ms.saturating_sub(ms)),
            _ => None,
        }
    }
}

/// Why a position cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PositionError(String);

impl fmt::Display for PositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PositionError {}

fn refused<T>(why: impl Into<String>) -> Result<T, PositionError> {
    Err(PositionError(why.into()))
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn place(text: &str) -> Option<Place> {
    match text {
        "start" | "beginning" | "earliest" => return Some(Place::Start),
        "end" | "latest" => return Some(Place::End),
        _ => {}
    }
    if let Some(records) = text.strip_prefix('-') {
        return number(records).map(Place::BeforeEnd);
    }
    if let Some(records) = text.strip_prefix('+') {
        return number(records).map(Place::AfterStart);
    }
    number(text).map(Place::At)
}

fn time(text: &str) -> Option<Place> {
    if let Some(ago) = text.strip_prefix('-') {
        let period: Period = ago.parse().ok()?;
        return i64::try_from(period.0.as_millis()).ok().map(Place::Ago);
    }
    if let Some(value) = number(text) {
        let value = i64::try_from(value).ok()?;
        // Up to ten digits are seconds (until the year 2286), more are milliseconds.
        let ms = if text.len() <= 10 {
            value.checked_mul(1000)?
        } else {
            value
        };
        return Some(Place::Time(ms));
    }
    parse_rfc3339(text).map(Place::Time)
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        if text.starts_with("msgid:") {
            return refused(
                "message ids come with subscriptions, which this version does not have",
            );
        }
        if let Some(times) = text.strip_prefix('@') {
            return range(times, time).map_or_else(
                || {
                    refused(format!(
                        "{text:?} is no time; write @2013-01-31T10:00:00Z, @seconds, @ms or @-15m"
                    ))
                },
                Ok,
            );
        }
        if let Some(position) = range(text, place) {
            return Ok(position);
        }
        if range(text, time).is_some() {
            return refused(format!("{text:?} is a time; write @{text}"));
        }
        refused(format!(
            "{text:?} is no position; write start, end, N, -N, +N, N:M or @TIME"
        ))
    }
}

/// One place, or two around a colon. A time has colons itself, so every colon is tried.
fn range(text: &str, parse: impl Fn(&str) -> Option<Place>) -> Option<Position> {
    if let Some(from) = parse(text) {
        return Some(Position { from, until: None });
    }
    text.match_indices(':').find_map(|(at, _)| {
        let (left, right) = (&text[..at], &text[at + 1..]);
        let from = if left.is_empty() {
            Place::Start
        } else {
            parse(left)?
        };
        let until = match right {
            "" if left.is_empty() => return None,
            "" => None,
            "end" | "latest" => Some(Place::End),
            right => Some(parse(right)?),
        };
        Some(Position { from, until })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_parse_as_the_help_says() {
        use Place::{AfterStart, Ago, At, BeforeEnd, End, Start, Time};
        for (text, from, until) in [
            ("start", Start, None),
            ("end", End, None),
            ("earliest", Start, None),
            ("beginning", Start, None),
            ("latest", End, None),
            ("5:latest", At(5), Some(End)),
            ("7", At(7), None),
            ("-7", BeforeEnd(7), None),
            ("+7", AfterStart(7), None),
            ("3:9", At(3), Some(At(9))),
            ("3:", At(3), None),
            (":9", Start, Some(At(9))),
            (":end", Start, Some(End)),
            ("-10:end", BeforeEnd(10), Some(End)),
            ("@1357034400", Time(1_357_034_400_000), None),
            ("@1357034400123", Time(1_357_034_400_123), None),
            ("@2013-01-01T10:00:00Z", Time(1_357_034_400_000), None),
            ("@2013-01-01", Time(1_356_998_400_000), None),
            ("@-15m", Ago(900_000), None),
            (
                "@2013-01-01T10:00:00Z:2013-01-01T11:00:00Z",
                Time(1_357_034_400_000),
                Some(Time(1_357_038_000_000)),
            ),
            (
                "@2013-01-01:-1h",
                Time(1_356_998_400_000),
                Some(Ago(3_600_000)),
            ),
        ] {
            assert_eq!(text.parse(), Ok(Position { from, until }), "{text}");
        }
    }

    #[test]
    fn place_is_written_as_it_is_read() {
        for text in ["start", "end", "7", "-7", "+7", "@1357034400123", "@-15m"] {
            let position: Position = text.parse().unwrap();
            assert_eq!(position.from.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_position_is_refused_with_the_forms() {
        for (text, words) in [
            ("", "no position"),
            (":", "no position"),
            ("first", "no position"),
            ("--3", "no position"),
            ("1:x", "no position"),
            ("99999999999999999999", "no position"),
            ("-15m", "write @-15m"),
            ("2013-01-31", "write @2013-01-31"),
            ("@yesterday", "no time"),
            ("@-15", "no time"),
            ("msgid:7", "subscriptions"),
        ] {
            let error = text.parse::<Position>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn place_stays_between_start_and_end() {
        for (place, offset) in [
            (Place::Start, 10),
            (Place::End, 20),
            (Place::BeforeEnd(3), 17),
            (Place::BeforeEnd(300), 10),
            (Place::AfterStart(3), 13),
            (Place::AfterStart(300), 20),
            (Place::At(5), 5),
            (Place::Time(0), 20),
        ] {
            assert_eq!(place.offset(10, 20, None), offset, "{place:?}");
        }
        assert_eq!(Place::Time(0).offset(10, 20, Some(12)), 12);
    }
}
