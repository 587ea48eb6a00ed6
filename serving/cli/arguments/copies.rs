//! Flags that say how many copies records have.

use std::str::FromStr;

use clap::Args;
use hulse_sdk::Replication;

/// How many copies records have.
#[derive(Debug, Args)]
pub(crate) struct CopiesFlags {
    /// Copies of each record, each on another bookie; most of them are waited for: a number or default [default: broker.replication]
    #[arg(short = 'r', long, value_name = "N", conflicts_with_all = ["ensemble", "write_quorum"])]
    pub(crate) replication_factor: Option<Factor>,
    /// Bookies of a ledger, over which its records are spread; more than copies only where one bookie is too slow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ensemble: Option<u32>,
    /// Copies of each record
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) write_quorum: Option<u32>,
    /// Copies that are durable before a record is acknowledged; one disk fewer than this may be lost at any time [default: most of them]
    #[arg(long, value_name = "N", alias = "min-insync-replicas", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ack_quorum: Option<u32>,
}

/// `-r`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    /// As the cell says.
    Default,
    /// So many.
    Copies(u32),
}

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "default" => Ok(Self::Default),
            number => match number.parse() {
                Ok(copies) if copies > 0 => Ok(Self::Copies(copies)),
                _ => Err("a number of copies, from 1, or default".to_owned()),
            },
        }
    }
}

impl CopiesFlags {
    /// What is asked for. `None`: nothing; `Some(None)`: what the cell says.
    ///
    /// # Errors
    /// What the cell says, and something else beside it.
    pub(crate) fn asked(&self) -> Result<Option<Option<Replication>>, String> {
        let asked = match self.replication_factor {
            Some(Factor::Default) if self.ack_quorum.is_some() => {
                return Err("--ack-quorum contradicts --replication-factor default".to_owned());
            }
            Some(Factor::Default) => return Ok(Some(None)),
            Some(Factor::Copies(copies)) => Replication::factor(copies),
            None => Replication {
                ensemble: self.ensemble,
                write_quorum: self.write_quorum,
                ack_quorum: None,
            },
        };
        let asked = Replication {
            ack_quorum: self.ack_quorum,
            ..asked
        };
        Ok((asked != Replication::default()).then_some(Some(asked)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(factor: Option<&str>, ack_quorum: Option<u32>) -> CopiesFlags {
        CopiesFlags {
            replication_factor: factor.map(|text| text.parse().unwrap()),
            ensemble: None,
            write_quorum: None,
            ack_quorum,
        }
    }

    #[test]
    fn flags_ask_for_what_they_say_and_for_nothing_else() {
        assert_eq!(flags(None, None).asked(), Ok(None));
        assert_eq!(flags(Some("default"), None).asked(), Ok(Some(None)));
        assert!(flags(Some("default"), Some(2)).asked().is_err());
        let three = Replication::factor(3);
        assert_eq!(flags(Some("3"), None).asked(), Ok(Some(Some(three))));
        let all = Replication {
            ack_quorum: Some(3),
            ..three
        };
        assert_eq!(flags(Some("3"), Some(3)).asked(), Ok(Some(Some(all))));
        assert!("0".parse::<Factor>().is_err());
    }
}
