//! Identities that were looked for and are not there: each costs a listing of every topic, so the answer is kept for a moment.
//!
//! A topic has its identity before anybody can name it, so what is missing once stays missing; a reading that was late is made good
//! within [`KEPT_FOR`].

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use hulse_proto::id::TopicId;
use tokio::time::Instant;

/// How long an identity counts as missing.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Identities kept at once; the oldest go first.
const KEPT_MAX: usize = 10_000;

/// The identities, with the times at which they were missing.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    ids: HashSet<TopicId>,
    in_order: VecDeque<(Instant, TopicId)>,
}

impl Unknown {
    /// A listing did not show it.
    pub(super) fn note(&mut self, id: TopicId) {
        self.expire();
        if self.ids.insert(id) {
            self.in_order.push_back((Instant::now(), id));
        }
        if self.in_order.len() > KEPT_MAX {
            self.forget_oldest();
        }
    }

    /// Whether that was just now.
    pub(super) fn holds(&mut self, id: TopicId) -> bool {
        self.expire();
        self.ids.contains(&id)
    }

    fn expire(&mut self) {
        while self
            .in_order
            .front()
            .is_some_and(|(at, _)| at.elapsed() >= KEPT_FOR)
        {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.in_order.pop_front() {
            self.ids.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(number: usize) -> TopicId {
        TopicId(Uuid::from_u128(number as u128))
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_identity_is_kept_for_a_moment_and_with_few_others() {
        let mut unknown = Unknown::default();
        unknown.note(id(1));
        tokio::time::advance(KEPT_FOR / 2).await;
        unknown.note(id(2));
        unknown.note(id(1));
        assert!(unknown.holds(id(1)) && unknown.holds(id(2)) && !unknown.holds(id(3)));
        tokio::time::advance(KEPT_FOR / 2).await;
        assert!(!unknown.holds(id(1)) && unknown.holds(id(2)));
        (10..10 + KEPT_MAX).for_each(|number| unknown.note(id(number)));
        assert!(!unknown.holds(id(2)) && unknown.holds(id(10)));
        assert_eq!(
            (unknown.ids.len(), unknown.in_order.len()),
            (KEPT_MAX, KEPT_MAX)
        );
    }
}
