//! Who owns which partition (ARCHITECTURE D9), as far as this broker knows.
//!
//! `rule` decides; `view` is what metadata said of brokers, holders and pins; `follow` keeps it fresh; `directory` is what the rest of
//! the broker asks, `redirect` the word that sends a client to another broker. `lease` is how far others can have taken over at all.
//!
//! # Invariants
//! 1. The view is a hint. Whoever opens a partition has read its key in the same breath, and compares it in the transaction that
//!    wins the epoch: two brokers that disagree cost an epoch at most, never a record.
//! 2. A broker that is alone reads nothing of all this: every partition is its own.
//! 3. Silence changes nothing (ARCHITECTURE D6): only an answer of metadata makes a broker dead or another one the owner.

mod directory;
mod follow;
mod lease;
mod redirect;
mod rule;
mod view;

pub use directory::BrokerView;
pub(crate) use directory::{Owners, Place};
pub use lease::Lease;
pub(crate) use lease::{Moment, Term};
pub(crate) use redirect::{moved_to, owner_of};
pub use rule::KafkaPlace;
pub(crate) use view::holder as holder_of;
