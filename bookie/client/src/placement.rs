//! Which bookies store a new ledger (storage.md, amended M5), and which replace a member that fails (W10).

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

/// What must fit into a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Records.
    ForData,
    /// META or CONTROL alone, which pass read-only bookies.
    ForTheRest,
}

impl Room {
    /// True when a bookie can take what must fit.
    pub(crate) fn suffices(self, candidate: &Candidate) -> bool {
        candidate.live && (candidate.writable || self == Self::ForTheRest)
    }
}

impl From<LedgerKind> for Room {
    fn from(kind: LedgerKind) -> Self {
        match kind {
            LedgerKind::Log => Self::ForData,
            LedgerKind::State => Self::ForTheRest,
        }
    }
}

/// Chooses E members: usable ones first, spread over zones; registered ones that are down only to fill up.
///
/// A ledger for records needs Qa live and writable members, one for META or CONTROL alone Qa live ones (amendment to D1).
pub(crate) fn choose(
    quorums: Quorums,
    room: Room,
    mut candidates: Vec<Candidate>,
    rng: &mut impl Rng,
) -> Result<Placement, CreateError> {
    let usable = |candidate: &Candidate| room.suffices(candidate);
    let registered = candidates.len();
    let live = candidates
        .iter()
        .filter(|candidate| usable(candidate))
        .count();
    let read_only = candidates
        .iter()
        .filter(|candidate| candidate.live && !usable(candidate))
        .count();
    if live < quorums.ack as usize || registered < quorums.ensemble as usize {
        return Err(CreateError::NotEnoughBookies {
            live,
            read_only,
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

/// Chooses who takes the places of `failing` members (storage.md W10): usable bookies outside the ensemble that did not fail in
/// this ledger, spread over zones; no bookie is in two places. Fewer than asked for when there are no more; among equals the first is taken.
pub(crate) fn replace(
    room: Room,
    ensemble: &[Member],
    failing: &[usize],
    failed: &[Member],
    candidates: &[Candidate],
) -> Vec<(usize, Member)> {
    let kept = |member: &Member| {
        let mut positions = ensemble.iter().enumerate();
        positions.any(|(at, kept)| !failing.contains(&at) && kept.bookie == member.bookie)
    };
    let mut per_zone = BTreeMap::<&str, usize>::new();
    for candidate in candidates.iter().filter(|found| kept(&found.member)) {
        *per_zone.entry(&candidate.zone).or_default() += 1;
    }
    let mut usable: Vec<&Candidate> = candidates
        .iter()
        .filter(|found| room.suffices(found))
        .filter(|found| !kept(&found.member))
        .filter(|found| !ensemble.contains(&found.member) && !failed.contains(&found.member))
        .collect();
    let mut replaced = Vec::new();
    // A bookie whose disk was replaced takes the place of its lost one: two places of one bookie would be one copy, and who stayed in the
    // other place could not be replaced any more.
    for position in failing {
        let own = usable
            .iter()
            .position(|found| found.member.bookie == ensemble[*position].bookie);
        if let Some(own) = own {
            replaced.push((*position, usable.remove(own).member.clone()));
        }
    }
    let filled: Vec<usize> = replaced.iter().map(|(position, _)| *position).collect();
    for position in failing.iter().filter(|position| !filled.contains(position)) {
        let rank = |candidate: &Candidate| {
            let crowd = per_zone.get(candidate.zone.as_str()).copied();
            (!candidate.writable, crowd.unwrap_or(0))
        };
        let best = usable
            .iter()
            .enumerate()
            .min_by_key(|(index, candidate)| (rank(candidate), *index));
        let Some((best, _)) = best else {
            break;
        };
        let chosen = usable.remove(best);
        *per_zone.entry(&chosen.zone).or_default() += 1;
        replaced.push((*position, chosen.member.clone()));
    }
    replaced
}

/// Who should take the place of one member of a fragment that changes no more (storage.md X4): a live and writable bookie of no other
/// place in it, in a zone that has fewest of the others. `None`: there is none.
pub fn choose_replacement(
    ensemble: &[Member],
    position: usize,
    candidates: &[Candidate],
) -> Option<Member> {
    let writable: Vec<Candidate> = candidates
        .iter()
        .filter(|candidate| Room::ForData.suffices(candidate))
        .filter(|candidate| candidate.member != ensemble[position])
        .cloned()
        .collect();
    // Of those that stay, a zone counts whether they can be written to or not.
    let others = candidates.iter().filter(|candidate| {
        let mut places = ensemble.iter().enumerate();
        places.any(|(at, member)| at != position && *member == candidate.member)
    });
    let known: Vec<Candidate> = writable.into_iter().chain(others.cloned()).collect();
    let mut chosen = replace(Room::ForData, ensemble, &[position], &[], &known);
    chosen.pop().map(|(_, member)| member)
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::{Incarnation, NodeName};
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    fn candidate(name: &str, zone: &str, live: bool, writable: bool) -> Candidate {
        Candidate {
            member: Member {
                bookie: NodeName::new(name).unwrap(),
                incarnation: Incarnation::default(),
            },
            live,
            writable,
            zone: zone.to_owned(),
        }
    }

    fn place(
        kind: LedgerKind,
        candidates: &[Candidate],
        seed: u64,
    ) -> Result<Placement, CreateError> {
        let quorums = Quorums {
            ensemble: 3,
            write: 3,
            ack: 2,
        };
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        choose(quorums, kind.into(), candidates.to_vec(), &mut rng)
    }

    #[test]
    fn placement_spreads_over_zones_and_depends_on_the_seed() {
        let all: Vec<_> = (0..9)
            .map(|n| candidate(&format!("b{n}"), ["x", "y", "z"][n % 3], true, true))
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let placement = place(LedgerKind::Log, &all, seed).unwrap();
            let zones: std::collections::BTreeSet<_> = placement
                .ensemble
                .iter()
                .map(|member| &all.iter().find(|c| c.member == *member).unwrap().zone)
                .collect();
            assert_eq!(zones.len(), 3);
            assert!(placement.absent.is_empty());
            seen.insert(format!("{:?}", placement.ensemble));
            assert_eq!(place(LedgerKind::Log, &all, seed).unwrap(), placement);
        }
        assert!(seen.len() > 5);
    }

    #[test]
    fn placement_fills_up_with_absent_members_but_needs_the_ack_quorum() {
        let mut all = vec![
            candidate("a", "", true, true),
            candidate("b", "", true, true),
            candidate("c", "", false, true),
        ];
        let placement = place(LedgerKind::Log, &all, 1).unwrap();
        assert_eq!(placement.absent, vec![all[2].member.clone()]);
        all[1].live = false;
        let refused = place(LedgerKind::Log, &all, 1);
        assert!(matches!(
            refused,
            Err(error @ CreateError::NotEnoughBookies { live: 1, .. }) if !error.is_full()
        ));
        let few = place(LedgerKind::Log, &all[..2], 1);
        assert!(matches!(
            few,
            Err(CreateError::NotEnoughBookies { registered: 2, .. })
        ));
    }

    #[test]
    fn bookie_with_a_new_disk_takes_its_own_place_and_no_other() {
        let old: Vec<_> = ["a", "b", "c"]
            .map(|name| candidate(name, "", true, true))
            .to_vec();
        let ensemble: Vec<Member> = old.iter().map(|found| found.member.clone()).collect();
        let mut now = old.clone();
        now[2].member.incarnation = Incarnation(uuid::Uuid::from_u128(7));
        let new = now[2].member.clone();
        let replace = |failing: &[usize]| replace(Room::ForData, &ensemble, failing, &[], &now);
        // Also while another member fails, for which there is nobody.
        assert_eq!(replace(&[1, 2]), [(2, new.clone())]);
        assert_eq!(replace(&[2]), [(2, new.clone())]);
        assert_eq!(replace(&[1]), []);
        // One more: it takes what is left.
        now.push(candidate("d", "", true, true));
        let spare = now[3].member.clone();
        let mut both = super::replace(Room::ForData, &ensemble, &[1, 2], &[], &now);
        both.sort_by_key(|(position, _)| *position);
        assert_eq!(both, [(1, spare), (2, new)]);
    }

    #[test]
    fn placement_of_a_state_ledger_takes_read_only_bookies() {
        let all: Vec<_> = ["a", "b", "c"]
            .map(|name| candidate(name, "", true, false))
            .to_vec();
        assert!(place(LedgerKind::State, &all, 1).is_ok());
        let full = place(LedgerKind::Log, &all, 1).unwrap_err();
        assert!(full.is_full(), "{full}");
    }
}
