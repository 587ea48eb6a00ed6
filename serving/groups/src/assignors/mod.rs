//! Server-side assignors: who shall have which partitions (serving.md B7).
//!
//! An assignor is a function of the members, their topics and the target before; the same input gives the same target. Each
//! partition of a topic goes to exactly one member that is subscribed to it, if there is any.

mod range;
#[cfg(test)]
mod tests;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::TopicId;

use crate::topics::Partitions;

/// The assignor of a group whose members name none.
pub const DEFAULT: &str = UNIFORM;
/// Even and sticky.
pub const UNIFORM: &str = "uniform";
/// Neighbouring partitions of each topic, the same of topics that are alike.
pub const RANGE: &str = "range";
/// All of them.
pub const ALL: [&str; 2] = [UNIFORM, RANGE];

/// What an assignor looks at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demand {
    /// The topics of each member, among those below.
    pub(crate) members: BTreeMap<Arc<str>, BTreeSet<TopicId>>,
    /// The group's topics and their partitions.
    pub(crate) topics: BTreeMap<TopicId, u32>,
    /// The target before.
    pub(crate) before: BTreeMap<Arc<str>, Partitions>,
}

/// The target; each member is in it.
pub(crate) fn assign(assignor: &str, demand: &Demand) -> BTreeMap<Arc<str>, Partitions> {
    match assignor {
        RANGE => range::assign(demand),
        _ => uniform::assign(demand),
    }
}
