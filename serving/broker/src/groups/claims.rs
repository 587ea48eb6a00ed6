//! Groups and subscriptions have one space of names (ARCHITECTURE D8): a group is made only while the record of its name says that it is
//! one, and the record goes after the group.
//!
//! What is claimed is known beside its coordinator, so that a group that is there costs metadata nothing, and goes on while they are
//! silent. A claim is held until its request is in the coordinator's queue, and the sweep looks behind what is in that queue: so no
//! record goes whose group is about to be.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hulse_proto::id::TopicName;

use crate::subscriptions::SubscriptionName;

/// Tenant and namespace of groups that are called by a short name.
const DEFAULT_NAMESPACE: &str = "public/default";

/// The record's name of a group. `None`: a Kafka client calls it what no subscription can be called, so it is in nobody's way.
pub(super) fn record_of(group: &str) -> Option<SubscriptionName> {
    SubscriptionName::parse(group, DEFAULT_NAMESPACE).ok()
}

/// What the group of a record is called: as Kafka's clients call it.
pub(crate) fn group_of(name: &SubscriptionName) -> Arc<str> {
    let parsed: Result<TopicName, _> = name.as_str().parse();
    match parsed {
        Ok(parsed) => super::names::called(&parsed),
        Err(_) => name.shared(),
    }
}

/// The one name of a group, by whichever of its names it is called (serving.md, amendment "Names"): `public/default/x` is `x`, as its
/// record is the same. What no subscription can be called stands for itself.
pub(super) fn canonical(group: &str) -> Option<Arc<str>> {
    record_of(group).map(|name| group_of(&name))
}

/// The claims beside one coordinator.
#[derive(Default)]
pub(super) struct Claims {
    known: Mutex<BTreeSet<Arc<str>>>,
    /// Whoever looks at metadata, one after the other.
    pub(super) looking: tokio::sync::Mutex<()>,
}

impl Claims {
    /// While this is held nobody takes a claim back.
    pub(super) fn known(&self) -> MutexGuard<'_, BTreeSet<Arc<str>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_called_as_short_as_on_the_other_wire() {
        for (group, record) in [
            ("billing", "public/default/billing"),
            ("acme/shop/billing", "acme/shop/billing"),
        ] {
            let name = record_of(group).unwrap();
            assert_eq!(name.as_str(), record);
            assert_eq!(&*group_of(&name), group);
        }
        for strange in ["", "two words", "a/b"] {
            assert_eq!(record_of(strange), None, "{strange}");
            assert_eq!(canonical(strange), None, "{strange}");
        }
    }

    #[test]
    fn group_has_one_name_by_whichever_of_them_it_is_called() {
        for (called, name) in [
            ("billing", "billing"),
            ("public/default/billing", "billing"),
            ("acme/shop/billing", "acme/shop/billing"),
        ] {
            assert_eq!(canonical(called).as_deref(), Some(name));
        }
    }
}
