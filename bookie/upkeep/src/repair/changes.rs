//! What a repair writes into metadata: its intent, and the swap (storage.md X4, X6). Pure functions.

use hulse_proto::id::{EntryId, NodeName};
use hulse_proto::ledger::{Degraded, Intent, LedgerMetadata, LedgerState};
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::tier::LocalCopies;

use super::event::RepairTask;

/// Where a task stands in a ledger's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Which fragment.
    pub(super) index: usize,
    /// Its exclusive end, decided for ever.
    pub(super) bound: EntryId,
}

/// What became of a task since it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    Stands(Place),
    Needless,
    /// Its fragment may still change: later.
    Changing,
}

/// Is the task still right (X1), and may it be done (X2)?
pub(super) fn judge(task: &RepairTask, metadata: &LedgerMetadata, mutation: Mutation) -> Judged {
    let tiered = metadata.tier.as_ref();
    if tiered.is_some_and(|tier| tier.local != LocalCopies::Held) {
        // Its copies are being dropped: one that is made now would be left behind (storage.md G5).
        return Judged::Needless;
    }
    match metadata.state {
        LedgerState::Deleting => return Judged::Needless,
        // Its end compares the version: a change now would only beat it.
        LedgerState::InRecovery => return Judged::Changing,
        LedgerState::Open | LedgerState::Closed => {}
    }
    let mut fragments = metadata.fragments.iter();
    let Some(index) = fragments.position(|fragment| fragment.first == task.first) else {
        return Judged::Needless;
    };
    let ensemble = &metadata.fragments[index].ensemble;
    let named = ensemble.get(task.position) == Some(&task.old);
    if !named || (!task.fills() && ensemble.contains(&task.new)) {
        return Judged::Needless;
    }
    match metadata.settled_end(index) {
        Some(bound) => Judged::Stands(Place { index, bound }),
        None if mutation.is(Mutant::RepairOpenTail) => Judged::Stands(Place {
            index,
            bound: EntryId(u64::MAX),
        }),
        None => Judged::Changing,
    }
}

/// The intent, in the place of an earlier one of the same member.
pub(super) fn with_intent(
    task: &RepairTask,
    metadata: &LedgerMetadata,
    nonce: [u8; 16],
) -> LedgerMetadata {
    let mut changed = without_intents(task, metadata);
    changed.intents.push(Intent {
        first: task.first,
        old: task.old.clone(),
        new: task.new.clone(),
        task: nonce,
    });
    changed.repair_nonce = nonce;
    changed
}

/// True while the intent of this very repair stands.
pub(super) fn holds_intent(task: &RepairTask, metadata: &LedgerMetadata, made: [u8; 16]) -> bool {
    let mine = |intent: &Intent| {
        intent.first == task.first
            && intent.old == task.old
            && intent.new == task.new
            && intent.task == made
    };
    metadata.intents.iter().any(mine)
}

/// The end: the new member stands in the old one's place, and nothing of its fragment is said to be lacking there.
pub(super) fn swapped(
    task: &RepairTask,
    place: Place,
    metadata: &LedgerMetadata,
) -> LedgerMetadata {
    let mut changed = without_intents(task, metadata);
    changed.fragments[place.index].ensemble[task.position] = task.new.clone();
    changed.degraded = not_lacking(
        &changed.degraded,
        &task.old.bookie,
        (task.first, place.bound),
    );
    changed
}

/// Without intents for this member, and without those whose member left its fragment.
fn without_intents(task: &RepairTask, metadata: &LedgerMetadata) -> LedgerMetadata {
    let mut changed = metadata.clone();
    changed.intents.retain(|intent| {
        let ours = intent.first == task.first && intent.old == task.old;
        let fragment = metadata.fragments.iter().find(|f| f.first == intent.first);
        !ours && fragment.is_some_and(|fragment| fragment.ensemble.contains(&intent.old))
    });
    changed
}

/// Takes a bookie's name off what is recorded as lacking in a range; what lies outside the range stays.
fn not_lacking(
    degraded: &[Degraded],
    bookie: &NodeName,
    (first, end): (EntryId, EntryId),
) -> Vec<Degraded> {
    let mut left = Vec::with_capacity(degraded.len());
    for found in degraded {
        let (from, to) = (found.first.max(first), found.end.min(end));
        if from >= to || !found.bookies.contains(bookie) {
            left.push(found.clone());
            continue;
        }
        let mut part = |first: EntryId, end: EntryId, bookies: Vec<NodeName>| {
            if first < end && !bookies.is_empty() {
                left.push(Degraded {
                    first,
                    end,
                    bookies,
                });
            }
        };
        let others = found.bookies.iter().filter(|name| *name != bookie);
        part(found.first, from, found.bookies.clone());
        part(from, to, others.cloned().collect());
        part(to, found.end, found.bookies.clone());
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(first: u64, end: u64, bookies: &[&str]) -> Degraded {
        Degraded {
            first: EntryId(first),
            end: EntryId(end),
            bookies: bookies
                .iter()
                .map(|name| NodeName::new(name).unwrap())
                .collect(),
        }
    }

    #[test]
    fn name_is_taken_off_the_range_that_was_filled_and_off_no_other() {
        let before = [degraded(0, u64::MAX, &["a", "b"]), degraded(3, 5, &["c"])];
        let a = NodeName::new("a").unwrap();
        let after = not_lacking(&before, &a, (EntryId(4), EntryId(9)));
        let expected = [
            degraded(0, 4, &["a", "b"]),
            degraded(4, 9, &["b"]),
            degraded(9, u64::MAX, &["a", "b"]),
            degraded(3, 5, &["c"]),
        ];
        assert_eq!(after, expected);
        let alone = [degraded(0, 7, &["a"])];
        assert_eq!(not_lacking(&alone, &a, (EntryId(0), EntryId(7))), []);
    }
}
