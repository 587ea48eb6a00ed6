//! What runs a server: builds the parts, wires them, waits for the end. No logic of its own lives here.
//!
//! [`standalone`] is the whole product in one process; [`broker`] and [`bookie`] are the roles of a cluster. Around them: [`process`]
//! (log, runtime, end), [`ground`] (metadata, clock, chance, name, cell), [`storage`] and [`serving`] (the two halves), [`data_dir`] (may
//! this directory be used), [`ports`] (addresses), [`folded`] (the roles of a cluster in one process), [`kafka`] (its listeners),
//! [`presence`] (the node's keys in metadata and their lease), [`upkeep`] (copies of all ledgers), [`bookies`] (who can be called),
//! [`seams`] (clock, chance and memory of the real machine), [`signals`], [`banner`],
//! [`logging`], [`build_info`], [`failures`] (why it does not start, in four parts).

mod banner;
pub(crate) mod bookie;
mod bookies;
pub(crate) mod broker;
mod build_info;
mod damage;
mod data_dir;
mod failures;
mod folded;
mod ground;
mod home;
mod kafka;
pub(crate) mod logging;
mod memory;
mod ports;
mod presence;
mod process;
mod seams;
mod serving;
mod signals;
pub(crate) mod standalone;
mod storage;
mod upkeep;

pub(crate) use seams::SystemClock;
