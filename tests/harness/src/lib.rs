//! `tests-harness`: what the tests of Hulse are built on: a cell simulated from one seed, its faults, and the oracles.
//!
//! A [`World`] holds the real storage nodes over memory disks, a network that loses, delays and repeats messages, and one
//! metadata store behind faults. Every client runs in a [`Process`] that can be paused or killed at any of its messages.
//! [`Suite`] runs it for many seeds; [`Truth`] judges what is stored at the end.
//!
//! # Invariants
//! 1. Everything that happens follows from the seed: one thread, virtual time, named streams of chance ([`Seeds`]).
//! 2. An oracle never stops a run; it adds to [`Violations`].
//!
//! Reading order: [`seed`], [`process`], [`network`], [`bookie`], [`metadata`], [`world`], [`truth`], [`runner`].

pub mod bookie;
pub mod broker;
pub mod chains;
pub mod chaos;
pub mod clock;
pub mod consumer;
mod copies;
pub mod counts;
pub mod crash_point;
pub mod cursor_truth;
pub mod departed;
pub mod directory;
pub mod lives;
pub mod metadata;
pub mod mover;
pub mod network;
pub mod planner;
pub mod process;
pub mod producer;
pub mod reader;
pub mod report;
pub mod runner;
pub mod seed;
pub mod shape;
pub mod sharer;
pub mod sharing_truth;
mod tally;
pub mod trace;
pub mod trimmer;
pub mod truth;
pub mod upkeep;
pub mod violations;
pub mod world;

pub use bookie::{PowerLoss, SimBookie};
pub use broker::{BrokerSizes, Cluster, SimBroker};
pub use consumer::{Consumer, Habit};
pub use counts::Counts;
pub use crash_point::{CrashPoint, Hits};
pub use cursor_truth::CursorTruth;
pub use mover::Mover;
pub use planner::plan_upkeep;
pub use process::Process;
pub use producer::{Manner, Producer};
pub use report::report;
pub use runner::{Run, Suite, runtime};
pub use seed::Seeds;
pub use shape::Shape;
pub use sharer::{SharedSubscription, Sharer, Temper};
pub use sharing_truth::SharingTruth;
pub use truth::{Outcome, RecordId, Truth, Violation};
pub use upkeep::Upkeep;
pub use violations::Violations;
pub use world::{MetadataRates, World, WorldSetup};
