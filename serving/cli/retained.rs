//! `--retention` and `--retention-size`: a limit, `off`, or `default` for what the cluster says.

use std::str::FromStr;
use std::time::Duration;

use hulse_sdk::Keep;

use crate::config::{ByteSize, OrOff, Period};

/// What is said of how much stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stays<T> {
    /// As the cluster says.
    Default,
    /// So much, or all of it.
    Limit(OrOff<T>),
}

impl<T: FromStr<Err = String>> FromStr for Stays<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "default" => Ok(Self::Default),
            text => match text.parse() {
                Ok(limit) => Ok(Self::Limit(limit)),
                Err(why) => Err(format!("{why}, or default")),
            },
        }
    }
}

impl<T> Stays<T> {
    fn keep<K>(self, value: impl FnOnce(T) -> K) -> Keep<K> {
        match self {
            Self::Default => Keep::Default,
            Self::Limit(OrOff::Off) => Keep::All,
            Self::Limit(OrOff::At(limit)) => Keep::UpTo(value(limit)),
        }
    }
}

impl From<Stays<Period>> for Keep<Duration> {
    fn from(stays: Stays<Period>) -> Self {
        stays.keep(|period| period.0)
    }
}

impl From<Stays<ByteSize>> for Keep<u64> {
    fn from(stays: Stays<ByteSize>) -> Self {
        stays.keep(|size| size.0)
    }
}

/// As a person reads it: `7d`, `off`.
pub(crate) fn shown_time(keep: Keep<Duration>) -> String {
    match keep {
        Keep::Default => "default".to_owned(),
        Keep::All => "off".to_owned(),
        Keep::UpTo(time) => Period(time).to_string(),
    }
}

/// As a person reads it: `5GiB`, `off`.
pub(crate) fn shown_size(keep: Keep<u64>) -> String {
    match keep {
        Keep::Default => "default".to_owned(),
        Keep::All => "off".to_owned(),
        Keep::UpTo(size) => ByteSize(size).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_is_a_limit_off_or_default() {
        let keep = |text: &str| text.parse::<Stays<Period>>().map(Keep::<Duration>::from);
        assert_eq!(keep("default"), Ok(Keep::Default));
        assert_eq!(keep("off"), Ok(Keep::All));
        assert_eq!(keep("90m"), Ok(Keep::UpTo(Duration::from_secs(5400))));
        let refused = keep("90").unwrap_err();
        assert!(
            refused.contains("no unit") && refused.ends_with("off, or default"),
            "{refused}"
        );
        let size: Stays<ByteSize> = "5GiB".parse().unwrap();
        assert_eq!(shown_size(size.into()), "5GiB");
    }
}
