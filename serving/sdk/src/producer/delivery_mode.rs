//! Delivery modes by name.

use std::fmt;
use std::str::FromStr;

/// What becomes of a record when something breaks while it is sent or processed. Takes and prints `at_most_once` and
/// `at_least_once`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeliveryMode {
    /// It may be lost without a word, and is never there twice. Producers do not wait for an answer; consumers acknowledge before they
    /// hand a record over.
    AtMostOnce,
    /// It is never lost, and may be delivered again. Producers wait until it is durable; consumers acknowledge nothing before the
    /// application does.
    #[default]
    AtLeastOnce,
}

impl DeliveryMode {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AtMostOnce => "at_most_once",
            Self::AtLeastOnce => "at_least_once",
        }
    }
}

impl fmt::Display for DeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no delivery mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDeliveryMode(String);

impl fmt::Display for UnknownDeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no delivery mode; write at_most_once or at_least_once",
            self.0
        )
    }
}

impl std::error::Error for UnknownDeliveryMode {}

impl FromStr for DeliveryMode {
    type Err = UnknownDeliveryMode;

    fn from_str(text: &str) -> Result<Self, UnknownDeliveryMode> {
        match text {
            "at_most_once" => Ok(Self::AtMostOnce),
            "at_least_once" => Ok(Self::AtLeastOnce),
            other => Err(UnknownDeliveryMode(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_modes_parse_what_they_print_and_nothing_else() {
        for mode in [DeliveryMode::AtMostOnce, DeliveryMode::AtLeastOnce] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "exactly_once".parse::<DeliveryMode>().unwrap_err();
        assert!(error.to_string().contains("at_least_once"), "{error}");
    }
}
