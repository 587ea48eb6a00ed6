//! Numbers that prove that nothing was lost, doubled or reordered between a producer and a reader.
//!
//! [`NumberStamper`] puts a header `hulse-number` on every record: which producer, which partition, the how manieth record of that
//! producer there. The numbers are dense, so on arrival [`NumberCheck`] (or [`NumberChecker`], the same as an interceptor) names each
//! one that is missing, with its neighbours. It sees stored bytes only: whatever happened on the way is found.
//!
//! What it cannot know by itself: records behind the last one that arrived ([`NumberCheck::expect`] tells it how many there were), and
//! records before the first one where the log's start was trimmed ([`NumberCheck::trimmed`]). A record whose `send` failed has taken a
//! number, and is missing with right: [`NumberStamper::failed`] lists those.

mod check;
mod finding;
mod stamp;
#[cfg(test)]
mod tests;

pub use check::{NumberCheck, NumberChecker};
pub use finding::{NumberFinding, NumberReport, Place, SeenNumber, TrimmedNumbers};
pub use stamp::{NUMBER_HEADER, NumberStamper, StampedNumber};
