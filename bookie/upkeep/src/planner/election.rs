//! One planner at a time.
//!
//! Two planners would do no harm: every change compares the version that it was made from. They would only copy twice.

use std::time::Duration;

use bookie_metadata::Election;

/// Of the planner.
pub(super) const ELECTION: Election = Election {
    key: "upkeep/planner",
    lease: Duration::from_secs(10),
};
