//! Who owns which partition (ARCHITECTURE D9), as far as this broker knows.
//!
//! `rule` decides; `view` is what metadata said of brokers, holders and pins; `follow` keeps it fresh; `directory` is what the rest of
//! the broker asks, `redirect` the word that sends a client to another broker. `lease` is how far others can have taken over at all.
//!
//! # Words
//! Each is one thing of ownership, here and in `partition`, and stands for no other:
//!
//! | word | means |
//! |---|---|
//! | owner | the one broker that may serve a partition, by the rule: its holder while that lives, else the pin, else the rendezvous winner |
//! | holder | the life of a broker that a partition's key names: who won its last epoch, dead or alive |
//! | epoch | the number in that key, which each win makes higher |
//! | claim | by what right an epoch is won (`partition::claim`); a name that a group takes is another matter (`groups::claims`) |
//! | lease | how long the store keeps a broker registered without a word of it; of a broker, never of a partition |
//! | term | one registration under a lease, from its start until it may have run out |
//! | tenure | that a partition which is open here is this broker's still, as whoever tells its end must know (`partition::tenure`) |
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
