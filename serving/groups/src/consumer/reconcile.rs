//! One step of a member towards its target (serving.md B7): give up first, then get what is free.

use hulse_proto::id::PartitionId;

use crate::state::{Current, MemberState};
use crate::topics::Partitions;

/// Where a member stands after it was heard.
///
/// `owned` is what it says it has, `None`: it did not say. `free` says of a partition that no other member holds it.
pub(super) fn next_step(
    current: &Current,
    target: &Partitions,
    target_epoch: i32,
    owned: Option<&Partitions>,
    free: impl Fn(&PartitionId) -> bool,
) -> Current {
    let holds = |given_up: &Partitions| match owned {
        Some(owned) => !owned.is_disjoint(given_up),
        None => !given_up.is_empty(),
    };
    match current.state {
        // Until it shows that they are gone, its epoch stays, and nobody else gets them.
        MemberState::Unrevoked if holds(&current.revoking) => return current.clone(),
        MemberState::Stable if current.epoch == target_epoch => return current.clone(),
        _ => {}
    }
    let (kept, given_up): (Vec<_>, Vec<_>) = current
        .assigned
        .iter()
        .map(|(partition, epoch)| (*partition, *epoch))
        .partition(|(partition, _)| target.contains(partition));
    let given_up: Partitions = given_up
        .into_iter()
        .map(|(partition, _)| partition)
        .collect();
    if holds(&given_up) {
        return Current {
            epoch: current.epoch,
            previous_epoch: current.previous_epoch,
            state: MemberState::Unrevoked,
            assigned: kept.into_iter().collect(),
            revoking: given_up,
        };
    }
    let wanted = target
        .iter()
        .filter(|partition| !current.assigned.contains_key(partition));
    let (ready, held): (Vec<PartitionId>, Vec<PartitionId>) = wanted.partition(|p| free(p));
    let ready = ready.into_iter().map(|partition| (partition, target_epoch));
    Current {
        epoch: target_epoch,
        previous_epoch: match current.epoch == target_epoch {
            true => current.previous_epoch,
            false => current.epoch,
        },
        state: match held.is_empty() {
            true => MemberState::Stable,
            false => MemberState::Unreleased,
        },
        assigned: kept.into_iter().chain(ready).collect(),
        revoking: Partitions::new(),
    }
}
