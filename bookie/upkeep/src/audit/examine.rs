//! One ledger: which of its copies are lacking, and what is to be done (storage.md X1, X2). Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use bookie_client::quorum::in_write_set;
use hulse_proto::bookie::HeldRun;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{Intent, LedgerMetadata, LedgerState, LossKind, Member, Quorums};
use hulse_proto::tier::LocalCopies;

use super::fleet::Trust;
use super::ranges::{both, gaps, without};

/// Gaps of one place that are told at once; the next pass finds what is left.
const GAPS_MAX: usize = 10_000;

/// What bookies said that they hold, each from the moment on at which it was asked; `None`: it was not asked, or did not answer.
pub type Holdings<'a> = &'a dyn Fn(&Member, LedgerId) -> Option<Vec<HeldRun>>;

/// What a place in an ensemble needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// Another member, which gets everything.
    Another,
    /// These entries.
    Entries(Vec<Range<u64>>),
    /// Nothing: what is recorded as lacking is there, or a repair of it was begun that nobody needs.
    Note,
    /// Nothing can be done before the fragment is settled: its owner writes to it, or nobody has closed it.
    Settling,
    /// To be waited for: its bookie does not run now.
    Waiting,
}

/// A place in an ensemble that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Of this ledger,
    pub ledger: LedgerId,
    /// in the fragment that begins here,
    pub first: EntryId,
    /// and has this ensemble,
    pub ensemble: Vec<Member>,
    /// this place.
    pub position: usize,
    /// What it needs.
    pub want: Want,
    /// Its copies are good, and are to be somewhere else.
    pub leaves: bool,
    /// Members of the fragment that are there and whole, as far as is known.
    pub good: usize,
    /// About how many bytes are to be copied.
    pub bytes: u64,
}

impl Finding {
    /// The member that it is about.
    pub fn member(&self) -> &Member {
        &self.ensemble[self.position]
    }

    /// A copy is not there; not merely to be moved, or noted.
    pub fn is_lacking(&self) -> bool {
        !self.leaves && self.want != Want::Note
    }
}

/// Compares a ledger with who is there and what they hold.
pub fn examine(
    ledger: LedgerId,
    metadata: &LedgerMetadata,
    trust: impl Fn(&Member) -> Trust,
    holdings: Holdings<'_>,
) -> Vec<Finding> {
    // Of a ledger that is in object storage bookies need to hold nothing (storage.md G5).
    let tiered = metadata.tier.as_ref();
    let let_go = tiered.is_some_and(|tier| tier.local != LocalCopies::Held);
    if metadata.state == LedgerState::Deleting || let_go {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, fragment) in metadata.fragments.iter().enumerate() {
        let bound = metadata.settled_end(index);
        let range = fragment.first.0..bound.map_or(fragment.first.0, |bound| bound.0);
        let members = (&fragment.ensemble[..], range);
        let given_up = given_up(ledger, metadata, members, &trust, holdings);
        let places = fragment.ensemble.iter().enumerate();
        let wants: Vec<Option<Want>> = places
            .map(|(position, member)| {
                let place = (metadata, (fragment.first, bound));
                let held = || {
                    let runs = holdings(member, ledger)?;
                    let range = fragment.first.0..bound?.0;
                    let quorums = metadata.quorums;
                    Some(lacking(quorums, position, range, &runs, &given_up))
                };
                want(place, trust(member), member, held)
            })
            .collect();
        let good = wants
            .iter()
            .zip(&fragment.ensemble)
            .filter(|(want, member)| {
                matches!(want, None | Some(Want::Note)) || trust(member) == Trust::Leaving
            })
            .count();
        for (position, want) in wants.into_iter().enumerate() {
            let Some(want) = want else { continue };
            findings.push(Finding {
                bytes: bytes(metadata, (fragment.first, bound), &want),
                ledger,
                first: fragment.first,
                ensemble: fragment.ensemble.clone(),
                leaves: trust(&fragment.ensemble[position]) == Trust::Leaving,
                position,
                want,
                good,
            });
        }
    }
    findings
}

/// A ledger's metadata, first entry and settled end of a fragment.
type PlaceOf<'a> = (&'a LedgerMetadata, (EntryId, Option<EntryId>));

fn want(
    (metadata, (first, bound)): PlaceOf<'_>,
    trust: Trust,
    member: &Member,
    lacks: impl FnOnce() -> Option<Vec<Range<u64>>>,
) -> Option<Want> {
    let leaves = matches!(trust, Trust::Leaving | Trust::Gone(_));
    let Some(bound) = bound else {
        return leaves.then_some(Want::Settling);
    };
    if leaves {
        return Some(Want::Another);
    }
    let noted = metadata.degraded.iter().any(|degraded| {
        let meets = degraded.first < bound && first < degraded.end;
        meets && degraded.bookies.contains(&member.bookie)
    });
    // Of a repair that nobody goes on with: it would name its target, and keep that from being retired, for ever.
    let left_behind = |intent: &Intent| intent.first == first && intent.old == *member;
    let noted = noted || metadata.intents.iter().any(left_behind);
    if trust == Trust::Silent {
        return Some(Want::Waiting);
    }
    let lacking = lacks()?;
    match (lacking.is_empty(), noted) {
        (false, _) => Some(Want::Entries(lacking)),
        (true, true) => Some(Want::Note),
        (true, false) => None,
    }
}

/// The entries of a range that a position should hold and does not, but for those that are given up.
fn lacking(
    quorums: Quorums,
    position: usize,
    range: Range<u64>,
    runs: &[HeldRun],
    given_up: &[Range<u64>],
) -> Vec<Range<u64>> {
    let mut gaps = without(&missing(range, runs), given_up);
    if quorums.write < quorums.ensemble {
        // Of a striped ledger a gap is what lies between entries of others, too.
        let ours = |gap: &Range<u64>| {
            let mut entries = gap.clone();
            entries.any(|entry| in_write_set(quorums, EntryId(entry), position))
        };
        gaps.retain(ours);
    }
    gaps.truncate(GAPS_MAX);
    gaps
}

fn missing(range: Range<u64>, runs: &[HeldRun]) -> Vec<Range<u64>> {
    gaps(range, runs.iter().map(|run| run.first.0..run.end.0))
}

/// Entries of a fragment that an operator gave up (storage.md R14) and that no member has: they are not lacking, as nothing can bring
/// them back. While a member is not heard it may have them, and none is given up.
fn given_up(
    ledger: LedgerId,
    metadata: &LedgerMetadata,
    (members, range): (&[Member], Range<u64>),
    trust: impl Fn(&Member) -> Trust,
    holdings: Holdings<'_>,
) -> Vec<Range<u64>> {
    let accepted = metadata
        .loss
        .filter(|loss| loss.kind == LossKind::Accepted && loss.from.0 < range.end);
    let Some(loss) = accepted else {
        return Vec::new();
    };
    let range = range.start.max(loss.from.0)..range.end;
    let mut nowhere = vec![range.clone()];
    for member in members {
        if matches!(trust(member), Trust::Gone(_)) {
            continue;
        }
        let Some(runs) = holdings(member, ledger) else {
            return Vec::new();
        };
        nowhere = both(&nowhere, &missing(range.clone(), &runs));
    }
    nowhere
}

/// About how much is to be copied, as if all entries were of one size.
fn bytes(
    metadata: &LedgerMetadata,
    (first, bound): (EntryId, Option<EntryId>),
    want: &Want,
) -> u64 {
    let Some(closed) = metadata.closed.filter(|closed| closed.end.0 > 0) else {
        return 0;
    };
    let entries = match want {
        Want::Another => bound.map_or(0, |bound| bound.0 - first.0),
        Want::Entries(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
        Want::Note | Want::Settling | Want::Waiting => 0,
    };
    let share = u128::from(closed.bytes) * u128::from(entries) / u128::from(closed.end.0);
    let striped =
        share * u128::from(metadata.quorums.write) / u128::from(metadata.quorums.ensemble);
    u64::try_from(striped).unwrap_or(u64::MAX)
}

/// How many ledgers and about how many bytes each member is to hold.
pub(super) fn shares(
    metadata: &LedgerMetadata,
) -> BTreeMap<(&str, hulse_proto::id::Incarnation), u64> {
    let mut shares = BTreeMap::new();
    let tiered = metadata.tier.as_ref();
    if tiered.is_some_and(|tier| tier.local == LocalCopies::Dropped) {
        // It is in object storage alone: whoever dropped its copy may leave (storage.md G5).
        return shares;
    }
    for (index, fragment) in metadata.fragments.iter().enumerate() {
        let place = (fragment.first, metadata.settled_end(index));
        let bytes = bytes(metadata, place, &Want::Another);
        for member in &fragment.ensemble {
            let key = (member.bookie.as_str(), member.incarnation);
            *shares.entry(key).or_insert(0) += bytes;
        }
    }
    for intent in &metadata.intents {
        let key = (intent.new.bookie.as_str(), intent.new.incarnation);
        shares.entry(key).or_insert(0);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(range: Range<u64>) -> HeldRun {
        HeldRun {
            first: EntryId(range.start),
            end: EntryId(range.end),
            digest: None,
        }
    }

    fn quorums(ensemble: u32, write: u32) -> Quorums {
        Quorums {
            ensemble,
            write,
            ack: 1,
        }
    }

    #[test]
    fn gaps_between_runs_are_lacking() {
        let lacks = |runs: &[(u64, u64)]| {
            let runs = runs.iter().map(|(first, end)| run(*first..*end));
            ends(lacking(
                quorums(3, 3),
                0,
                10..20,
                &runs.collect::<Vec<_>>(),
                &[],
            ))
        };
        assert_eq!(lacks(&[]), [(10, 20)]);
        assert_eq!(lacks(&[(0, 100)]), []);
        assert_eq!(lacks(&[(0, 11), (13, 15), (19, 30)]), [(11, 13), (15, 19)]);
        assert_eq!(lacks(&[(0, 10), (20, 30)]), [(10, 20)]);
    }

    fn ends(ranges: Vec<Range<u64>>) -> Vec<(u64, u64)> {
        ranges
            .into_iter()
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn entries_of_others_are_not_lacking_in_a_striped_ledger() {
        // Position 0 of three with two copies each holds entries 0, 2, 3, 5, 6, 8, …
        let runs = [run(0..1), run(2..4), run(5..7)];
        assert_eq!(lacking(quorums(3, 2), 0, 0..8, &runs, &[]), []);
        let runs = [run(0..1), run(5..7)];
        assert_eq!(ends(lacking(quorums(3, 2), 0, 0..8, &runs, &[])), [(1, 5)]);
    }
}
