//! How many copies a topic's records have, as it is shown.

use hulse_sdk::{Replication, TopicCopies};
use serde::Serialize;

use crate::output::grouped;

/// How many copies records have, and what of the ledgers is not so.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CopiesView {
    /// Of new ledgers: bookies, copies of each record, and how many of these are waited for.
    ensemble: u32,
    write_quorum: u32,
    ack_quorum: u32,
    /// Ledgers of which it is known: all, those made with fewer copies, and closed ones that lack some now.
    ledgers: Option<u64>,
    ledgers_made_with_fewer_copies: Option<u64>,
    ledgers_lacking_copies: Option<u64>,
    #[serde(skip)]
    holds: Replication,
    #[serde(skip)]
    there: Option<TopicCopies>,
}

impl CopiesView {
    /// What new ledgers get, and how those are that are there.
    pub(crate) fn new(holds: Replication, there: Option<TopicCopies>) -> Self {
        Self {
            ensemble: holds.ensemble.unwrap_or(0),
            write_quorum: holds.write_quorum.unwrap_or(0),
            ack_quorum: holds.ack_quorum.unwrap_or(0),
            ledgers: there.map(|there| there.ledgers),
            ledgers_made_with_fewer_copies: there.map(|there| there.made_with_fewer),
            ledgers_lacking_copies: there.map(|there| there.lacking),
            holds,
            there,
        }
    }

    /// "3 copies, 2 before an acknowledgement".
    pub(crate) fn words(&self) -> String {
        words(&self.holds)
    }

    /// What an operator should know of such a choice; `None`: nothing.
    pub(crate) fn warning(&self) -> Option<String> {
        warning(&self.holds)
    }

    /// What of the ledgers is not as the topic asks; `None`: all of it is, or it is not known.
    pub(crate) fn shortcomings(&self) -> Option<String> {
        shortcomings(self.there.as_ref()?)
    }
}

/// "3 copies, 2 before an acknowledgement".
fn words(holds: &Replication) -> String {
    let number = |said: Option<u32>| said.unwrap_or(0);
    let (ensemble, write) = (number(holds.ensemble), number(holds.write_quorum));
    let ack = number(holds.ack_quorum);
    let spread = match ensemble > write {
        true => format!(", spread over {ensemble} bookies"),
        false => String::new(),
    };
    match write {
        1 => format!("1 copy{spread}"),
        copies => format!("{copies} copies{spread}, {ack} before an acknowledgement"),
    }
}

/// What of a topic's ledgers is not as it asks; `None`: all of it is.
fn shortcomings(copies: &TopicCopies) -> Option<String> {
    let looked = match copies.all {
        true => "of",
        false => "of the first",
    };
    let of = |count: u64, what: &str| {
        let all = grouped(copies.ledgers);
        (count > 0).then(|| format!("{} {looked} {all} ledgers {what}", grouped(count)))
    };
    let fewer = of(
        copies.made_with_fewer,
        "were made with fewer copies, which they keep until retention lets them go",
    );
    let lacking = of(
        copies.lacking,
        "lack copies now: hulse cluster health says what is done about it",
    );
    let both: Vec<String> = [fewer, lacking].into_iter().flatten().collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// What an operator should know of such a choice; `None`: nothing.
fn warning(holds: &Replication) -> Option<String> {
    let write = holds.write_quorum?;
    match holds.ack_quorum? {
        1 if write > 1 => Some(
            "a record is acknowledged when one bookie has it: until the others have it too, that disk alone can lose it".to_owned(),
        ),
        ack if ack == write && write > 1 => Some(format!(
            "a record waits for all {write} copies: when a bookie of its ledger stops, producers wait until another one takes its place"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_that_cost_something_are_told() {
        let holds = |write, ack| Replication {
            ensemble: Some(3),
            write_quorum: Some(write),
            ack_quorum: Some(ack),
        };
        assert_eq!(warning(&holds(3, 2)), None);
        assert_eq!(warning(&holds(1, 1)), None);
        assert!(warning(&holds(3, 1)).unwrap().contains("one bookie"));
        assert!(warning(&holds(3, 3)).unwrap().contains("all 3"));
        assert_eq!(words(&holds(3, 2)), "3 copies, 2 before an acknowledgement");
        assert!(words(&holds(2, 2)).contains("spread over 3"));
    }
}
