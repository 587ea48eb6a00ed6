//! Replication factors and `min.insync.replicas`: how many bookies store a record, and how many of those are waited for.
//!
//! A factor of N is E = Qw = N; of `min.insync.replicas` so many are waited for whatever `acks` a producer asks for, and where nothing
//! is said most of the copies. Brokers that a client assigns store nothing: only their number counts.

use hulse_proto::error::Fault;
use hulse_proto::ledger::Quorums;
use serving_broker::Copies;

use super::topics::{Refused, refused};
use crate::error_code;
use crate::link::Link;

/// The config of a topic.
pub(super) const MIN_INSYNC: &str = "min.insync.replicas";

/// How many copies must be durable before a record is acknowledged: `min.insync.replicas`. Outer `None`: it is another config; inner:
/// what holds by itself.
///
/// # Errors
/// INVALID_CONFIG: not a number from 1.
#[expect(clippy::option_option, reason = "another config, or none, or a number")]
pub(super) fn min_insync(name: &str, value: Option<&str>) -> Result<Option<Option<u32>>, Refused> {
    if name != MIN_INSYNC {
        return Ok(None);
    }
    let wrong = |value: &str| {
        let why = format!("{name} is a number of copies, from 1, not {value:?}");
        (error_code::INVALID_CONFIG, why)
    };
    let number = |value: &str| match value.parse::<u32>() {
        Ok(copies) if copies > 0 => Ok(copies),
        _ => Err(wrong(value)),
    };
    Ok(Some(value.map(number).transpose()?))
}

/// E, Qw and Qa of a new topic: a replication factor (-1: what the cell says) and `min.insync.replicas`.
///
/// # Errors
/// INVALID_REPLICATION_FACTOR: there are not so many bookies, or more are waited for than there are copies.
pub(super) async fn quorums_of_new(
    link: &Link,
    factor: i16,
    min_insync: Option<u32>,
) -> Result<Option<Quorums>, Refused> {
    let copies = match u32::try_from(factor) {
        Ok(0) => {
            let why = "a record has at least one copy";
            return Err((error_code::INVALID_REPLICATION_FACTOR, why.to_owned()));
        }
        Ok(copies) => Copies::factor(copies),
        Err(_) => Copies::default(),
    };
    let asked = Copies {
        ack: min_insync.unwrap_or(0),
        ..copies
    };
    let quorums = link
        .front()
        .new_quorums((!asked.is_unsaid()).then_some(asked));
    quorums.await.map_err(|fault| refused(link, fault))
}

/// How many copies of each record there are.
pub(super) fn count(link: &Link, quorums: Option<Quorums>) -> i16 {
    let quorums = quorums.unwrap_or_else(|| link.front().cell_quorums());
    i16::try_from(quorums.write).unwrap_or(i16::MAX)
}

/// What a topic's copies are after `min.insync.replicas` was changed; `None`: to what holds by itself. How many copies there are
/// stays: that is no config of this wire.
///
/// # Errors
/// INVALID_REPLICATION: more are waited for than there are.
pub(super) fn altered(
    (now, cell): (Option<Quorums>, Quorums),
    waited_for: Option<u32>,
) -> Result<Option<Quorums>, Fault> {
    let before = now.unwrap_or(cell);
    let as_cell = (before.ensemble, before.write) == (cell.ensemble, cell.write);
    if waited_for.is_none() && as_cell {
        return Ok(None);
    }
    let asked = Copies {
        ensemble: before.ensemble,
        write: before.write,
        ack: waited_for.unwrap_or(0),
    };
    asked.apply(before).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Quorums = Quorums {
        ensemble: 3,
        write: 3,
        ack: 2,
    };

    #[test]
    fn altered_topic_waits_for_what_is_said_and_for_most_copies_otherwise() {
        let all = Quorums { ack: 3, ..CELL };
        assert_eq!(altered((None, CELL), Some(3)), Ok(Some(all)));
        assert_eq!(altered((Some(all), CELL), None), Ok(None));
        let five = Quorums {
            ensemble: 5,
            write: 5,
            ack: 5,
        };
        let most = Quorums { ack: 3, ..five };
        assert_eq!(altered((Some(five), CELL), None), Ok(Some(most)));
        assert!(altered((None, CELL), Some(4)).is_err());
    }
}
