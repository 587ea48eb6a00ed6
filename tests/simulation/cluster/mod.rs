//! A whole cell at work: brokers among others that hand their partition over, or move it when a lease ends; planners of upkeep that
//! audit and repair; a bookie that is drained meanwhile; producers, readers, consumers and trims; and everything going wrong.
//!
//! `plan` is one run, `drain` the bookie that goes.

mod drain;
mod plan;

pub use plan::run;
