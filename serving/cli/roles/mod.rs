//! What runs a server: builds the parts, wires them, waits for the end. No logic of its own lives here.
//!
//! [`standalone`] is the whole product in one process. Around it: [`data_dir`] (may this directory be used), [`ports`] (its addresses),
//! [`kafka`] (its listeners), [`presence`] (the node's keys in metadata and their lease), [`bookies`] (who can be called), [`seams`]
//! (clock, chance and memory of the real machine), [`signals`], [`banner`], [`logging`], [`build_info`], [`failures`] (why it does not start, in four parts).

mod banner;
mod bookies;
mod build_info;
mod damage;
mod data_dir;
mod failures;
mod kafka;
pub(crate) mod logging;
mod memory;
mod ports;
mod presence;
mod seams;
mod signals;
pub(crate) mod standalone;

pub(crate) use seams::SystemClock;
