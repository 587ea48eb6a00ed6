//! `serving-testkit`: brokers in memory, for the tests of programs that use Hulse, and for ours (serving.md E5.9).
//!
//! The broker is the server's own crate over metadata and a bookie in memory; the client is the SDK over loopback connections. Nothing is
//! imitated, so a program meets the same order, errors and back-pressure as with a cluster; only the disk is missing.
//!
//! ```
//! use hulse_sdk::{Record, Start};
//! use serving_testkit::TestBroker;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let cluster = TestBroker::start().await?;
//! let client = cluster.client();
//! let producer = client.producer("greetings").build().await?;
//! producer.send(Record::new("hello")).await?.await?;
//!
//! // Every connection breaks; the program is not to notice.
//! cluster.links().cut();
//! producer.send(Record::new("again")).await?.await?;
//! producer.close().await?;
//!
//! let mut reader = client.reader("greetings").start(Start::Earliest).follow(false).build().await?;
//! let mut found = Vec::new();
//! while let Some(record) = reader.next().await? {
//!     found.push(record.value.unwrap_or_default());
//! }
//! assert_eq!(found, ["hello", "again"]);
//! cluster.stop().await;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # What can go wrong on purpose
//!
//! | fault | call |
//! |---|---|
//! | connections are slow, stall, break, or cannot be made | [`Links::delay`], [`Links::stall`], [`Links::cut`], [`Links::refuse`] |
//! | a connection breaks behind a given HTTP/2 frame | [`Links::cut_next`] |
//! | storage takes records and does not say so, or is full | [`TestBroker::hold_storage`], [`TestBroker::fill_storage`] |
//! | a partition moves to another broker, as planned | [`TestBroker::move_partition`] |
//! | a broker is cut off, and others take its partitions over | [`TestBroker::lose_broker`] |
//! | a producer is fenced by its next life | [`TestBroker::fence_producer`] |
//!
//! # Invariants
//! 1. What was acknowledged is there until the [`TestBroker`] is dropped, through every fault above.
//! 2. No file, no fixed port, no state outside of the value: tests may run side by side.
//! 3. Its date is its own: it begins where it is told and passes with tokio's time, for brokers and clients alike.
//!
//! Not here: bookies that lose data, several copies, time that stands still. That is what the simulation is for.

mod broker;
mod builder;
mod frames;
mod links;
mod node;
mod pump;
#[cfg(test)]
mod tests;

pub use broker::TestBroker;
pub use builder::{StartError, TestBrokerBuilder};
pub use frames::Way;
pub use links::Links;
pub use serving_broker::BrokerConfig;
