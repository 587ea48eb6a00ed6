//! Values with units: sizes, durations, shares of memory, and how a bookie syncs.
//!
//! Each type parses from text and prints back the shortest text that parses to the same value.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hulse_proto::size;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::{Serialize, Serializer};

/// Bytes, written with a unit: `64MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteSize(pub(crate) u64);

/// A length of time, written with a unit: `30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period(pub(crate) Duration);

/// How much memory the process may use: a size, or a share of what the container or machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryBudget {
    /// Percent, 1 to 90.
    Share(u8),
    /// Bytes.
    Size(ByteSize),
}

/// A limit, or `off`: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrOff<T> {
    /// None.
    Off,
    /// This.
    At(T),
}

impl<T> OrOff<T> {
    /// The limit, if there is one.
    pub(crate) fn limit(self) -> Option<T> {
        match self {
            Self::Off => None,
            Self::At(limit) => Some(limit),
        }
    }
}

impl<T: FromStr<Err = String>> FromStr for OrOff<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "off" => Ok(Self::Off),
            text => match text.parse() {
                Ok(limit) => Ok(Self::At(limit)),
                Err(why) => Err(format!("{why}; or off")),
            },
        }
    }
}

impl<T: fmt::Display> fmt::Display for OrOff<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::At(limit) => limit.fmt(f),
        }
    }
}

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for OrOff<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl<T: fmt::Display> Serialize for OrOff<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// When a bookie makes its log durable (ARCHITECTURE D5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncMode {
    /// Before every confirmation.
    Always,
    /// At this interval; a confirmed record may be lost with the machine.
    Interval(Period),
    /// Never by itself; a confirmed record may be lost with the machine.
    Off,
}

const PERIODS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Number times unit; the unit is matched whole.
fn with_unit(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!(
            "{text:?} does not begin with a whole number; write e.g. {example}"
        ));
    }
    let names = || {
        let mut names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        names.reverse();
        names.join(", ")
    };
    if unit.trim().is_empty() {
        return Err(format!(
            "{text:?} has no unit; write e.g. {example} (units: {})",
            names()
        ));
    }
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit.trim())
        .map(|(_, factor)| *factor)
        .ok_or_else(|| format!("unit {:?} is not known; units: {}", unit.trim(), names()))?;
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// The largest unit that divides the value.
fn in_unit(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    if value == 0 {
        return format!("0{smallest}");
    }
    units
        .iter()
        .find(|(_, factor)| value.is_multiple_of(*factor))
        .map_or_else(
            || format!("{value}{smallest}"),
            |(name, factor)| format!("{}{name}", value / factor),
        )
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        with_unit(text, &size::UNITS, "64MiB").map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&size::exact(self.0))
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        with_unit(text, &PERIODS, "30s").map(|ms| Self(Duration::from_millis(ms)))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        f.pad(&in_unit(ms, &PERIODS, "ms"))
    }
}

impl FromStr for MemoryBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(share) = text.trim().strip_suffix('%') else {
            return text.parse().map(Self::Size);
        };
        match share.trim().parse() {
            Ok(share @ 1..=90) => Ok(Self::Share(share)),
            _ => Err(format!(
                "{text:?} is not a share; write 1% to 90%, or a size such as 2GiB"
            )),
        }
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{share}%"),
            Self::Size(size) => size.fmt(f),
        }
    }
}

impl FromStr for SyncMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("interval:")) {
            ("always", _) => Ok(Self::Always),
            ("off", _) => Ok(Self::Off),
            (_, Some(period)) => match period.parse()? {
                Period(Duration::ZERO) => Err("an interval of 0 is `always`".to_owned()),
                period => Ok(Self::Interval(period)),
            },
            _ => Err(format!(
                "{text:?} is none of: always, interval:<duration>, off"
            )),
        }
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.pad("always"),
            Self::Interval(period) => write!(f, "interval:{period}"),
            Self::Off => f.pad("off"),
        }
    }
}

/// Accepts text only: a bare number has no unit.
struct Text;

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text with a unit, in quotes")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

fn from_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    let text = deserializer.deserialize_str(Text)?;
    text.parse().map_err(D::Error::custom)
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(ByteSize, Period, MemoryBudget, SyncMode);

#[cfg(test)]
mod tests {
    use super::*;

    fn fault<T: FromStr<Err = String> + fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err()
    }

    #[test]
    fn size_parses_and_prints_the_shortest_text() {
        for (text, bytes, printed) in [
            ("1B", 1, "1B"),
            ("64 MiB", 64 << 20, "64MiB"),
            ("1024KiB", 1 << 20, "1MiB"),
            ("3MB", 3_000_000, "3MB"),
            ("10GB", 10_000_000_000, "10GB"),
            ("0B", 0, "0B"),
            ("1025B", 1025, "1025B"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(
                (size.0, size.to_string().as_str()),
                (bytes, printed),
                "{text}"
            );
        }
    }

    #[test]
    fn period_parses_and_prints_the_shortest_text() {
        for (text, ms, printed) in [
            ("250ms", 250, "250ms"),
            ("60s", 60_000, "1m"),
            ("24h", 86_400_000, "1d"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.0, Duration::from_millis(ms));
            assert_eq!(period.to_string(), printed);
        }
    }

    #[test]
    fn value_without_its_unit_is_refused_with_an_example() {
        assert!(fault::<ByteSize>("64").contains("no unit; write e.g. 64MiB"));
        assert!(fault::<ByteSize>("64Mb").contains("unit \"Mb\" is not known"));
        assert!(fault::<ByteSize>("MiB").contains("whole number"));
        assert!(fault::<ByteSize>("99999999TiB").contains("too large"));
        assert!(fault::<Period>("30").contains("no unit; write e.g. 30s"));
        assert!(fault::<Period>("30min").contains("units: ms, s, m, h, d"));
    }

    #[test]
    fn budget_and_sync_mode_parse_back_what_they_print() {
        for text in ["25%", "2GiB"] {
            assert_eq!(text.parse::<MemoryBudget>().unwrap().to_string(), text);
        }
        for text in ["always", "interval:100ms", "off"] {
            assert_eq!(text.parse::<SyncMode>().unwrap().to_string(), text);
        }
        assert!(fault::<MemoryBudget>("0%").contains("1% to 90%"));
        assert!(fault::<SyncMode>("never").contains("none of: always"));
        assert!(fault::<SyncMode>("interval:0s").contains("`always`"));
    }
}
