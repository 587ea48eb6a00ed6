//! Bookies that are to leave, told to the writers of this process (storage.md C7); also those that upkeep has given up and that open
//! ledgers still name (X3): a ledger that nobody writes to would not find out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::NodeName;
use hulse_proto::ledger::Member;
use hulse_proto::wire::metadata::blocked_repair::Kind;
use tokio::time::{Instant, sleep};

use crate::directory::{Registration, RegistrationState, list_registrations, upkeep_report};
use crate::ledger_client::Inner;
use crate::placement::Room;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Writers are told again after this: some were made from what was known before.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// Looks and tells. Silence of metadata tells nothing.
pub(crate) async fn follow(inner: &Inner) {
    let mut told: (Vec<Member>, Option<Instant>) = (Vec::new(), None);
    loop {
        sleep(LOOK).await;
        let Ok(registered) = list_registrations(&*inner.metadata).await else {
            continue;
        };
        let given_up = given_up(inner, &registered).await;
        let (mut stays, mut leaves) = (Vec::new(), Vec::new());
        for found in registered {
            match found.state {
                _ if given_up.contains(&found.member.bookie) => leaves.push(found.member),
                RegistrationState::Active | RegistrationState::ReadOnly => stays.push(found.member),
                // No ledger names it any more, and it is registered for ever: nobody is woken for it again and again.
                RegistrationState::Retired => {}
                RegistrationState::Draining | RegistrationState::Lost => leaves.push(found.member),
            }
        }
        let again = told.1.is_none_or(|at| at.elapsed() >= TELL_AGAIN);
        // With nobody leaving, only a change is worth waking everybody.
        if told.0 == stays && (leaves.is_empty() || !again) {
            continue;
        }
        let first = told.1.is_none();
        let staying: Arc<[Member]> = stays.clone().into();
        told = (stays, Some(Instant::now()));
        if first && leaves.is_empty() {
            continue;
        }
        inner.writers.tell_staying(&staying);
    }
}

/// Bookies that do not run, that upkeep does not wait for any more, and that open ledgers name. None while the others are too few to
/// take their places: every ledger would look for somebody in vain.
async fn given_up(inner: &Inner, registered: &[Registration]) -> BTreeSet<NodeName> {
    let takes = |found: &&Registration| {
        let candidate = found.candidate();
        candidate.is_some_and(|candidate| Room::ForData.suffices(&candidate))
    };
    let others = registered.iter().filter(takes).count();
    let away = registered.iter().filter(|found| found.live.is_none());
    let away: BTreeSet<&NodeName> = away.map(|found| &found.member.bookie).collect();
    if away.is_empty() || others < inner.config.quorums.ensemble as usize {
        return BTreeSet::new();
    }
    let Ok(Some(report)) = upkeep_report(&*inner.metadata).await else {
        return BTreeSet::new();
    };
    let settling = report
        .blocked
        .iter()
        .filter(|blocked| blocked.kind() == Kind::Settling);
    let named = settling.filter_map(|blocked| NodeName::new(&blocked.bookie).ok());
    named.filter(|name| away.contains(name)).collect()
}
