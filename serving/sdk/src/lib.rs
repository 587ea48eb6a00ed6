//! `hulse-sdk`: the Rust client of Hulse.
//!
//! ```no_run
//! # async fn example() -> Result<(), hulse_sdk::Error> {
//! use hulse_sdk::{Client, Record, Start};
//!
//! let client = Client::builder("grpc://127.0.0.1:7400").build()?;
//! let producer = client.producer("greetings").build().await?;
//! let ticket = producer.send(Record::new("hello").key("world")).await?; // queued
//! let receipt = ticket.await?; // durable
//! println!("stored in partition {} at {:?}", receipt.partition, receipt.offset);
//! producer.close().await?;
//!
//! let mut reader = client.reader("greetings").start(Start::Earliest).follow(false).build().await?;
//! while let Some(record) = reader.next().await? {
//!     println!("{:?}", record.value);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Reading order: [`Client`], [`Producer`] (`producer` says the path of a record; `lane/core.rs` is the heart), [`Reader`], [`Admin`],
//! [`Error`]; [`schema`] for values instead of bytes. Connections: `connect`; produce sessions: `session`. For those who use it: [`losing_nothing`].
//!
//! # Invariants
//! 1. Nothing is stored twice and nothing of a partition is reordered, through any number of broken links, while the producer is
//!    idempotent (the default).
//! 2. Everything is bounded: memory by `max_unacked_bytes` and `max_bytes_in_flight`, time by the delivery and request time-outs.
//! 3. An error says whether what was asked may have been applied.
//!
//! Sizes are bytes, timestamps ms since 1970, offsets count records. Wire types are not public. Runs on tokio only.

mod admin;
mod backoff;
mod client;
mod clock;
mod connect;
mod consumer;
mod error;
mod interceptor;
mod lane;
pub mod losing_nothing;
mod producer;
mod reader;
pub mod schema;
mod session;
#[cfg(test)]
mod testing;

pub use admin::{
    Admin, AttachedConsumer, BacklogAction, BacklogQuota, BalanceMove, BalanceReport, Blocked,
    Bookie, BookieState, Bookies, Broker, BrokerOrder, Cluster, Cursor, CursorRates,
    CursorSelection, CursorState, Damage, DamagedRecords, DeadLetters, Draining, Keep, KeptBacklog,
    KeyOrder, Ledger, LiveBookie, MovedCursor, NewSubscription, NewTopic, Offsets, Partition,
    Replication, Retention, Sharing, Subscription, SubscriptionChange, Topic, TopicChange,
    TopicCopies, TrimTo, Trimmed, UpdateEffect, Upkeep,
};
pub use client::{Client, ClientBuilder};
pub use connect::{Connect, Connecting, TcpConnect, Transport};
pub use consumer::{
    Acknowledgement, BlockedReason, Commit, Consumed, ConsumerNote, ConsumerStats, HeldUp,
    QueueConsumer, QueueConsumerBuilder, QueueMessage, QueueReceipt, ReceivedRecord, SkipReason,
    StreamConsumer, StreamConsumerBuilder, StreamItem, StreamNote, StreamPartition, StreamRecord,
    StreamStats, SubscriptionConsumer, SubscriptionConsumerBuilder, SubscriptionType,
    Unacknowledged, UnknownSubscriptionType,
};
pub use error::{Error, Gap};
pub use hulse_proto::batch::{BatchHeader, Compression, Header};
pub use hulse_proto::error::{ErrorKind, Fate, Fault, Reason};
pub use hulse_proto::id::{EntryId, LedgerId, Offset, ProducerId, TopicId};
pub use hulse_proto::time::WallClock;
pub use interceptor::{
    Interceptor, PLACED_HEADER_BYTES_MAX, Placed, Produced, Refusal, numbers, trace_context,
};
pub use producer::{
    Acks, DeliveryMode, Partitioner, Producer, ProducerBuilder, ProducerIdentity, ProducerStats,
    Receipt, Record, Ticket, UnknownDeliveryMode, murmur2, partition_of_key, raw,
};
pub use reader::{ReadRecord, Reader, ReaderBuilder, ReaderStats, RecordBatch, Start};
pub use uuid::Uuid;
