//! One connection: reads requests, begins them one after the other, answers in their order.
//!
//! A request has two stages. The first is awaited before the next request is looked at: it resolves names, opens partitions and hands
//! batches over, so that what one request did is seen by the next, and batches keep their order. What is left (waiting for
//! durability, for records to come) goes on beside later requests; its answer waits for its turn.

mod run;

pub(crate) use run::Connection;
