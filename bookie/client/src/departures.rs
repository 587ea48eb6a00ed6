//! Bookies that are to leave, told to the writers of this process (storage.md C7).

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::ledger::Member;
use tokio::time::{Instant, sleep};

use crate::directory::{RegistrationState, list_registrations};
use crate::ledger_client::Inner;

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
        let (mut stays, mut leaves) = (Vec::new(), Vec::new());
        for found in registered {
            match found.state {
                RegistrationState::Active | RegistrationState::ReadOnly => stays.push(found.member),
                _ => leaves.push(found.member),
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
