//! How many copies the records of a topic have: what may be asked for, and what it comes to. Pure.
//!
//! A ledger has E bookies, each record Qw copies among them, and is acknowledged when Qa of these are durable (storage.md 2.0). A topic
//! says all three or none; what it says holds for ledgers that are made from then on.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::ledger::Quorums;
use hulse_proto::limits::ENSEMBLE_MAX;

/// What somebody asks for; 0: nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copies {
    /// E. Not said: as it is.
    pub ensemble: u32,
    /// Qw. Not said: as it is.
    pub write: u32,
    /// Qa. Not said: most of the copies, or as it is when these are not said either.
    pub ack: u32,
}

/// Bookies that may hold new ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BookieCount {
    /// All of them: who is to leave, or is lost, does not count.
    pub registered: u32,
    /// Those that run.
    pub live: u32,
}

/// More than half of them: any two majorities meet.
fn majority(copies: u32) -> u32 {
    copies / 2 + 1
}

impl Copies {
    /// A replication factor: each record on so many bookies, and on no others.
    pub fn factor(copies: u32) -> Self {
        Self {
            ensemble: copies,
            write: copies,
            ack: 0,
        }
    }

    /// True when nothing is asked for.
    pub fn is_unsaid(self) -> bool {
        self == Self::default()
    }

    /// What holds when `now` held before.
    ///
    /// # Errors
    /// `INVALID_REPLICATION`: what is asked for contradicts itself, or what is not changed with it.
    pub fn apply(self, now: Quorums) -> Result<Quorums, Fault> {
        let said = |asked: u32, else_it: u32| if asked == 0 { else_it } else { asked };
        let write = said(self.write, now.write);
        let ack = match self.write {
            0 => now.ack,
            write => majority(write),
        };
        let quorums = Quorums {
            ensemble: said(self.ensemble, now.ensemble),
            write,
            ack: said(self.ack, ack),
        };
        check(quorums).map(|()| quorums)
    }
}

/// Refuses what contradicts itself.
fn check(quorums: Quorums) -> Result<(), Fault> {
    let Quorums {
        ensemble,
        write,
        ack,
    } = quorums;
    let why = if ensemble > ENSEMBLE_MAX {
        format!("a ledger has at most {ENSEMBLE_MAX} bookies, {ensemble} are asked for")
    } else if write > ensemble {
        format!(
            "each record would have {write} copies, and a ledger {ensemble} bookies: say a write quorum of at most {ensemble}, or a larger ensemble too"
        )
    } else if ack > write {
        let most = majority(write);
        format!(
            "a record would be acknowledged when {ack} copies are durable, and has {write}: no record ever would; say an ack quorum of at most {write} ({most} is most of them)"
        )
    } else {
        return Ok(());
    };
    Err(refused(why, quorums))
}

fn refused(why: String, quorums: Quorums) -> Fault {
    Fault::new(Reason::InvalidReplication, why)
        .with("ensemble", quorums.ensemble)
        .with("write_quorum", quorums.write)
        .with("ack_quorum", quorums.ack)
}

impl BookieCount {
    /// Refuses what these bookies cannot hold. Those that do not run now count: they are expected back.
    ///
    /// # Errors
    /// `INVALID_REPLICATION`, with the count that is there.
    pub fn check(self, quorums: Quorums) -> Result<(), Fault> {
        if quorums.ensemble <= self.registered {
            return Ok(());
        }
        let Self { registered, live } = self;
        let there = match registered {
            1 => "one is registered".to_owned(),
            count if count == live => format!("{count} are registered"),
            count => format!("{count} are registered, of which {live} run"),
        };
        let why = format!(
            "each ledger would have {} bookies, and {there}: add bookies first (hulse bookie format), or ask for at most {registered}",
            quorums.ensemble
        );
        Err(refused(why, quorums).with("registered", registered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorums(ensemble: u32, write: u32, ack: u32) -> Quorums {
        Quorums {
            ensemble,
            write,
            ack,
        }
    }

    fn asked(ensemble: u32, write: u32, ack: u32) -> Copies {
        Copies {
            ensemble,
            write,
            ack,
        }
    }

    #[test]
    fn factor_is_ensemble_and_write_quorum_and_most_of_them_acknowledge() {
        let now = quorums(3, 3, 2);
        for (factor, ack) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            let holds = Copies::factor(factor).apply(now);
            assert_eq!(holds, Ok(quorums(factor, factor, ack)));
        }
        let all = Copies {
            ack: 3,
            ..Copies::factor(3)
        };
        assert_eq!(all.apply(now), Ok(quorums(3, 3, 3)));
    }

    #[test]
    fn what_is_not_said_stays_as_it_is() {
        let now = quorums(5, 3, 3);
        assert_eq!(asked(0, 0, 2).apply(now), Ok(quorums(5, 3, 2)));
        assert_eq!(asked(4, 0, 0).apply(now), Ok(quorums(4, 3, 3)));
        assert_eq!(asked(0, 4, 0).apply(now), Ok(quorums(5, 4, 3)));
        assert_eq!(asked(0, 0, 0).apply(now), Ok(now));
        assert!(asked(0, 0, 0).is_unsaid());
    }

    #[test]
    fn contradictions_are_refused_with_what_could_be_said_instead() {
        let now = quorums(3, 3, 2);
        for (asked, words) in [
            (asked(0, 0, 4), "has 3"),
            (asked(0, 5, 0), "a larger ensemble too"),
            (asked(2, 0, 0), "a write quorum of at most 2"),
            (asked(99, 99, 0), "at most"),
        ] {
            let refused = asked.apply(now).unwrap_err();
            assert_eq!(refused.reason, Reason::InvalidReplication);
            assert!(refused.message.contains(words), "{refused}");
        }
    }

    #[test]
    fn more_bookies_than_are_registered_are_refused_with_the_count() {
        let there = BookieCount {
            registered: 4,
            live: 3,
        };
        assert_eq!(there.check(quorums(4, 3, 2)), Ok(()));
        let refused = there.check(quorums(5, 3, 2)).unwrap_err();
        assert!(
            refused.message.contains("4 are registered, of which 3 run"),
            "{refused}"
        );
        assert_eq!(refused.details["registered"], "4");
    }
}
