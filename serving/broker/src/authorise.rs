//! The one door that every request of every listener passes (ARCHITECTURE D11).
//!
//! It allows everything for now, but for what the cell keeps for itself; its callers already name who asks, what for and on what, so that rules can come without
//! touching a call site.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{LedgerId, TopicId, TopicName};

use crate::groups::INTERNAL_TENANT;
use crate::subscriptions::SubscriptionName;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// No identity was presented.
    Anonymous,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// See that it exists, and its state.
    Describe,
    /// Append records.
    Produce,
    /// Read records.
    Consume,
    /// Bring it into being.
    Create,
    /// Change it.
    Alter,
    /// Remove it.
    Delete,
    /// An operator's decision over stored data.
    Operate,
}

/// What it is asked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The cell as a whole.
    Cell,
    /// Every topic of `tenant/namespace`; empty: of all.
    Namespace(&'a str),
    /// A topic by name.
    Topic(&'a TopicName),
    /// A topic by identity.
    TopicId(TopicId),
    /// A subscription.
    Subscription(&'a SubscriptionName),
    /// A ledger.
    Ledger(LedgerId),
}

/// Decides whether `principal` may do `action` on `resource`.
///
/// # Errors
/// `PERMISSION_DENIED` or `UNAUTHENTICATED`, once there are rules.
pub fn authorise(
    principal: &Principal,
    action: Action,
    resource: Resource<'_>,
) -> Result<(), Fault> {
    if let Resource::Topic(name) = resource
        && name.tenant() == INTERNAL_TENANT
        && action != Action::Describe
    {
        let why = format!("topic {name} is the cell's own");
        return Err(Fault::new(Reason::PermissionDenied, why));
    }
    match principal {
        Principal::Anonymous => {
            tracing::trace!(?action, ?resource, "allowed");
            Ok(())
        }
    }
}
