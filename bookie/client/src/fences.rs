//! Whether somebody fenced an open ledger: what its writer's owner asks the bookies when metadata do not say whose the ledger is.
//!
//! A take-over serves only once it has closed every open ledger of the chain, and closes one only once the fenced members of its last
//! fragment meet every ack quorum (storage.md R4). So while an ack quorum's worth of them is not fenced, no take-over has come that far:
//! those that are left, all fenced, would not cover. One fenced member says that a take-over is under way, which ends the writer (W6).

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::bookie::{Address, BookieError, FenceAnswer, FenceRequest};
use hulse_proto::id::{FenceToken, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, Member, Quorums};
use tokio::time::timeout;

use crate::ledger_client::Inner;
use crate::quorum::ensemble_covered;

/// What the members of an open ledger know of fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fences {
    /// When they were asked, nobody had recovered the ledger, so nobody else served its partition.
    Free,
    /// Somebody recovers it, or did; or it was deleted. Its writer will never confirm an entry again.
    Fenced,
    /// Too few answered, or the ledger is being closed.
    Unknown,
}

/// What was answered so far.
#[derive(Debug)]
pub(crate) struct Look {
    quorums: Quorums,
    /// By position: it answered that no fence stands.
    free: Vec<bool>,
    /// By position: perhaps not in the ensemble that metadata have, as a change of it is unresolved.
    doubtful: Vec<bool>,
}

impl Look {
    /// Nobody has answered. `doubtful` is a bit for each position.
    pub(crate) fn new(quorums: Quorums, doubtful: u64) -> Self {
        let positions = quorums.ensemble as usize;
        let doubtful = |at: usize| at >= 64 || doubtful >> at & 1 == 1;
        Self {
            quorums,
            free: vec![false; positions],
            doubtful: (0..positions).map(doubtful).collect(),
        }
    }

    /// Takes an answer; says what is proven by now, if anything.
    pub(crate) fn answered(
        &mut self,
        position: usize,
        answer: &Result<FenceAnswer, BookieError>,
    ) -> Option<Fences> {
        match answer {
            Ok(found) if found.token == FenceToken(0) => {
                self.free[position] = !self.doubtful[position];
                let rest: Vec<bool> = self.free.iter().map(|free| !free).collect();
                (!ensemble_covered(self.quorums, &rest)).then_some(Fences::Free)
            }
            Ok(_)
            | Err(
                BookieError::StaleToken { .. }
                | BookieError::Fenced { .. }
                | BookieError::Deleted { .. }
                | BookieError::WrongCell { .. },
            ) => Some(Fences::Fenced),
            Err(_) => None,
        }
    }
}

/// Asks the last fragment's members, all at once, each for `read_timeout` at most. Cancel-safe.
pub(crate) async fn look(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    (metadata, doubtful): (Arc<LedgerMetadata>, u64),
) -> Fences {
    let ensemble = &metadata.last_fragment().ensemble;
    let mut look = Look::new(metadata.quorums, doubtful);
    let asked = ensemble
        .iter()
        .enumerate()
        .map(|(position, member)| async move { (position, ask(inner, ledger, member).await) });
    let mut answers: FuturesUnordered<_> = asked.collect();
    while let Some((position, answer)) = answers.next().await {
        if let Some(proven) = look.answered(position, &answer) {
            return proven;
        }
    }
    Fences::Unknown
}

async fn ask(inner: &Inner, ledger: LedgerId, member: &Member) -> Result<FenceAnswer, BookieError> {
    let no_answer = |why: &str| BookieError::NoAnswer {
        why: why.to_owned(),
    };
    let bookie = inner.bookies.calls(member);
    let bookie = bookie.ok_or_else(|| no_answer("bookie is not connected"))?;
    let request = FenceRequest {
        to: Address {
            cell: inner.cell,
            incarnation: member.incarnation,
            ledger,
        },
        token: FenceToken(0),
    };
    let answer = timeout(inner.config.read_timeout, bookie.fence(request)).await;
    answer.unwrap_or_else(|_| Err(no_answer("no answer in time")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hulse_proto::id::EntryId;

    fn free() -> Result<FenceAnswer, BookieError> {
        Ok(FenceAnswer {
            token: FenceToken(0),
            confirmed_end: EntryId(0),
            held_end: EntryId(0),
        })
    }

    fn silent() -> Result<FenceAnswer, BookieError> {
        Err(BookieError::NoAnswer {
            why: "cut".to_owned(),
        })
    }

    /// Whatever set of members answers "free", a look calls the ledger free exactly when the others, all fenced, would not let a
    /// recovery go on.
    #[test]
    fn free_is_said_exactly_when_no_recovery_can_have_covered() {
        for (ensemble, write, ack) in [
            (1, 1, 1),
            (3, 3, 2),
            (3, 3, 3),
            (3, 3, 1),
            (4, 3, 2),
            (5, 3, 2),
        ] {
            let quorums = Quorums {
                ensemble,
                write,
                ack,
            };
            for answering in 0..1_u32 << ensemble {
                let mut look = Look::new(quorums, 0);
                let mut said = None;
                for position in 0..ensemble as usize {
                    let answers = answering >> position & 1 == 1;
                    let answer = if answers { free() } else { silent() };
                    said = said.or(look.answered(position, &answer));
                }
                let fenced: Vec<bool> = (0..ensemble).map(|at| answering >> at & 1 == 0).collect();
                let expected = (!ensemble_covered(quorums, &fenced)).then_some(Fences::Free);
                assert_eq!(said, expected, "{quorums:?} {answering:b}");
            }
        }
    }

    #[test]
    fn members_of_a_change_that_is_unresolved_prove_nothing() {
        let quorums = Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        };
        let mut look = Look::new(quorums, 0b001);
        assert_eq!(look.answered(0, &free()), None);
        assert_eq!(look.answered(1, &free()), None);
        assert_eq!(look.answered(2, &free()), Some(Fences::Free));
    }

    #[test]
    fn one_fence_is_enough() {
        let quorums = Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        };
        let mut look = Look::new(quorums, 0);
        assert_eq!(look.answered(0, &silent()), None);
        let stale = Err(BookieError::StaleToken {
            ledger: LedgerId(1),
            token: FenceToken(4),
            asked: FenceToken(0),
        });
        assert_eq!(look.answered(2, &stale), Some(Fences::Fenced));
    }
}
