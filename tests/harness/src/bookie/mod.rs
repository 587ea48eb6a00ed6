//! Bookies of a simulation: the real node, step by step, over a memory disk, behind the simulated network.
//!
//! `sim_bookie` is the bookie, `boot` how it starts, `life` one boot of it, `collect` what it asks of metadata, `media` what becomes
//! of its disk, `spoil` what a directed test does to it, `promises` the oracle of what it says, `endpoint` the way to it, `request`
//! calls as values.

mod boot;
mod collect;
mod endpoint;
mod leaving;
mod life;
mod media;
mod promises;
mod request;
mod sim_bookie;
mod spoil;

pub use endpoint::{ClientSide, Endpoint, Progress};
pub use request::{Reply, Request};
pub use sim_bookie::{BookieSetup, PowerLoss, SimBookie};
