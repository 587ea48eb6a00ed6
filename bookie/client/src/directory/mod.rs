//! Who can be called: the seam between the ledger client and whatever carries calls to storage nodes, and the directory of a cluster.
//!
//! [`BookieDirectory`] is the seam; [`list_bookies`] is what metadata says of bookies; [`RegisteredBookies`] finds them in metadata
//! wherever they are.

mod listing;
mod registered;
mod seam;
#[cfg(test)]
mod tests;

pub use listing::{Listed, list_bookies};
pub use registered::{Dial, RegisteredBookies};
pub use seam::{BookieDirectory, Candidate};
