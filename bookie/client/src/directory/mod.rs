//! Who can be called: the seam between the ledger client and whatever carries calls to storage nodes, and the directory of a cluster.
//!
//! [`BookieDirectory`] is the seam; [`list_bookies`] is what metadata says of bookies, and [`change_registration`] what operators say;
//! [`RegisteredBookies`] finds them in metadata wherever they are.

mod changing;
mod listing;
mod registered;
mod seam;
#[cfg(test)]
mod tests;

pub use changing::{
    RegistrationError, UPKEEP_REPORT_KEY, change_registration, retire_drained, upkeep_report,
};
pub use listing::{
    Listed, LiveBookie, Registration, RegistrationState, list_bookies, list_registrations,
};
pub use registered::{Dial, RegisteredBookies};
pub use seam::{BookieDirectory, Candidate};
