//! Write sets and coverage (storage.md 2.0): which positions hold an entry, and when silence of the others proves nothing.

use hulse_proto::id::EntryId;
use hulse_proto::ledger::Quorums;

/// The positions that store `entry`: Qw of them, from `entry mod E` on.
pub fn write_set(quorums: Quorums, entry: EntryId) -> impl Iterator<Item = usize> + Clone {
    let ensemble = quorums.ensemble as usize;
    let start = (entry.0 % u64::from(quorums.ensemble)) as usize;
    (0..quorums.write as usize).map(move |step| (start + step) % ensemble)
}

/// True when `position` is in the write set of `entry`.
pub fn in_write_set(quorums: Quorums, entry: EntryId, position: usize) -> bool {
    let ensemble = u64::from(quorums.ensemble);
    let distance = (position as u64 + ensemble - entry.0 % ensemble) % ensemble;
    distance < u64::from(quorums.write)
}

/// True when a set of this many members of one write set meets every possible ack quorum of it: |set| >= Qw − Qa + 1.
pub fn entry_covered(quorums: Quorums, members: usize) -> bool {
    members > (quorums.write - quorums.ack) as usize
}

/// True when the set (`covered[position]`) meets every possible ack quorum of every entry: for each window of Qw consecutive
/// positions, fewer than Qa members are outside.
///
/// # Panics
/// If `covered` has not E positions.
pub fn ensemble_covered(quorums: Quorums, covered: &[bool]) -> bool {
    assert_eq!(
        covered.len(),
        quorums.ensemble as usize,
        "one flag per position"
    );
    (0..u64::from(quorums.ensemble)).all(|start| {
        let inside = write_set(quorums, EntryId(start))
            .filter(|position| covered[*position])
            .count();
        entry_covered(quorums, inside)
    })
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

    /// Every subset of a write set that could have acked an entry.
    fn ack_quorums(quorums: Quorums, entry: u64) -> Vec<u32> {
        let set: Vec<usize> = write_set(quorums, EntryId(entry)).collect();
        (0..1u32 << quorums.ensemble)
            .filter(|mask| {
                let members = set.iter().filter(|at| mask >> **at & 1 == 1).count();
                mask.count_ones() as usize == members && members >= quorums.ack as usize
            })
            .collect()
    }

    #[test]
    fn ensemble_coverage_is_exactly_meeting_every_ack_quorum() {
        for (e, w, a) in [
            (1, 1, 1),
            (3, 3, 2),
            (3, 3, 3),
            (3, 3, 1),
            (4, 3, 2),
            (5, 3, 2),
            (5, 4, 3),
        ] {
            let q = quorums(e, w, a);
            for mask in 0..1u32 << e {
                let covered: Vec<bool> = (0..e).map(|at| mask >> at & 1 == 1).collect();
                let meets_all = (0..u64::from(e)).all(|entry| {
                    ack_quorums(q, entry)
                        .iter()
                        .all(|quorum| quorum & mask != 0)
                });
                assert_eq!(ensemble_covered(q, &covered), meets_all, "{q:?} {mask:b}");
            }
        }
    }

    #[test]
    fn membership_agrees_with_the_write_set() {
        for (e, w) in [(1, 1), (3, 3), (4, 3), (5, 2)] {
            let q = quorums(e, w, 1);
            for entry in 0..20 {
                let set: Vec<usize> = write_set(q, EntryId(entry)).collect();
                for position in 0..e as usize {
                    assert_eq!(
                        in_write_set(q, EntryId(entry), position),
                        set.contains(&position)
                    );
                }
            }
        }
    }
}
