//! The cores under a seeded scheduler: one writer, memory bookies, one or two recoverers, a metadata store with unknown outcomes.
//!
//! With spares, bookies die and are replaced, metadata fall silent, and upkeep touches the ledger's key.
//!
//! One seed is one run. Every message can be lost, doubled, slow, or frozen until long after everything else; each recoverer can
//! die. At the end an undisturbed recovery closes the ledger, everything frozen thaws, and the oracle looks (storage.md §11).

mod facts;
mod members;
mod network;
mod oracle;
mod runs;
mod world;

use network::{Message, Network, Profile};
use oracle::Oracle;
use world::{Setup, World};
