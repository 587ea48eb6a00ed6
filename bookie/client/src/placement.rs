//! Which bookies store a new ledger (storage.md, amended M5).

use std::collections::BTreeMap;

use hulse_proto::ledger::{LedgerKind, Member, Quorums};
use rand::Rng;
use rand::seq::SliceRandom;

use crate::directory::Candidate;
use crate::error::CreateError;

/// A new ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// E members.
    pub(crate) ensemble: Vec<Member>,
    /// Those of them that cannot take entries now: the ledger starts degraded.
    pub(crate) absent: Vec<Member>,
}

/// Chooses E members: usable ones first, spread over zones; registered ones that are down only to fill up.
///
/// A log ledger needs Qa live and writable members, a state ledger Qa live ones (amendment to D1).
pub(crate) fn choose(
    quorums: Quorums,
    kind: LedgerKind,
    mut candidates: Vec<Candidate>,
    rng: &mut impl Rng,
) -> Result<Placement, CreateError> {
    let usable = |candidate: &Candidate| match kind {
        LedgerKind::Log => candidate.live && candidate.writable,
        LedgerKind::State => candidate.live,
    };
    let registered = candidates.len();
    let live = candidates
        .iter()
        .filter(|candidate| usable(candidate))
        .count();
    if live < quorums.ack as usize || registered < quorums.ensemble as usize {
        return Err(CreateError::NotEnoughBookies {
            live,
            registered,
            ack: quorums.ack,
            ensemble: quorums.ensemble,
        });
    }
    // The order of arrival must not matter, only the seed.
    candidates.sort_by(|a, b| a.member.bookie.cmp(&b.member.bookie));
    candidates.shuffle(rng);
    let mut per_zone = BTreeMap::<String, usize>::new();
    let mut placement = Placement {
        ensemble: Vec::new(),
        absent: Vec::new(),
    };
    while placement.ensemble.len() < quorums.ensemble as usize {
        let rank = |candidate: &Candidate| {
            let crowd = per_zone.get(&candidate.zone).copied().unwrap_or(0);
            (!usable(candidate), !candidate.writable, crowd)
        };
        let (best, _) = candidates
            .iter()
            .enumerate()
            .min_by_key(|(index, candidate)| (rank(candidate), *index))
            .expect("there are at least E candidates");
        let chosen = candidates.remove(best);
        if !usable(&chosen) {
            placement.absent.push(chosen.member.clone());
        }
        *per_zone.entry(chosen.zone).or_default() += 1;
        placement.ensemble.push(chosen.member);
    }
    Ok(placement)
}
