//! `serving-broker`: partitions, topics, and the gRPC listener. A broker has no disk; everything it knows is a fold of ledgers
//! and metadata (ARCHITECTURE D3).
//!
//! Main path of a record: `listener` (authorise, decode) → [`PartitionHandle::produce`] (checks) → `partition::core` (sequence,
//! offset, coalesce) → `bookie_client::LedgerWriter` → back to `partition::core` (apply, answer) → `listener`.
//!
//! # Invariants
//! 1. One task per open partition judges, numbers and appends; what it answers as stored is confirmed by an ack quorum.
//! 2. The confirmed state changes only by `LogState::apply`, live and in replay alike.
//! 3. A partition whose append has an unknown fate stops; the next take-over decides the fate by recovery before it serves.
//! 4. A partition task never awaits another partition, coordinator or broker (ARCHITECTURE D3).
//! 5. Where a log ends is told by its owner only (`partition::tenure`); what is appended is judged by bookies alone.
//!
//! A listener of another wire (the Kafka crate) is a [`WireListener`] over a [`Front`], given to [`serve_with`].
//!
//! Reading order: `owner` (which partitions are open here), `partition` (one of them), `log` and `state` (its two chains), `topics`,
//! `listener`; then, for several brokers, `owners` (whose a partition is), `partition::claim` (winning it), `partition::tenure` (whether it
//! still is ours), `giving` and `listener::handing` (it goes to another one), `listener::draining` (all of them do), `balance`.

mod accepting_loss;
mod authorise;
mod backlogs;
mod balance;
mod clock;
mod complaints;
mod config;
mod drain_order;
mod epochs;
mod expiry;
mod giving;
mod groups;
mod http;
mod keys;
mod ledger_views;
mod listener;
mod log;
mod metrics;
mod owner;
mod owners;
mod partition;
mod removal;
mod restart;
mod retention;
mod serve;
mod settling;
pub mod state;
mod storage_damage;
mod storage_fault;
mod subscription_metrics;
mod subscriptions;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod topics;

pub use authorise::{Action, Principal, Resource, authorise};
pub use backlogs::{BacklogLimits, BacklogPolicy, QuotaAction};
pub use balance::BalanceLimits;
pub use config::BrokerConfig;
pub use drain_order::DrainOrder;
pub use http::{Probes, StorageMode, serve_probes};
pub use ledger_views::LedgerView;
pub use listener::{Connection, Door, Front, IngressPermit, WireListener, accept};
pub use log::{ReadBatch, ReadChunk, SkipReason};
pub use metrics::Metrics;
pub use owner::{Partitions, PartitionsConfig};
pub use owners::{BrokerView, KafkaPlace, Lease};
pub use partition::{
    AckKind, AckStatus, Acked, Begin, Cause, ConsumerId, ConsumerView, CursorMove, CursorStart,
    CursorView, Handed, LaneView, LogOffsets, Moved, NewConsumer, NewSharer, PartitionHandle,
    PartitionPolicy, ProduceFuture, Produced, Rates, Replication, Said, ShareItem, SharePlan,
    ShareTie, Stand, Tie,
};
pub use restart::RestartRole;
pub use retention::{Limits, RetentionPolicy, Setting};
pub use serve::{Broker, ServeError, serve, serve_with};
pub use serving_groups::GroupsConfig;
pub use storage_damage::{DamageReport, DamagedEntries, StorageDamage};
pub use subscriptions::{
    Dead, NewSubscription, Order, Sharing, StartPoint, SubscribedTopic, Subscription,
    SubscriptionKind, SubscriptionName, SubscriptionPage, Subscriptions,
};
pub use topics::{
    BookieCount, Copies, NewTopic, PartitionRemover, Topic, TopicPage, TopicRules, TopicState,
    Topics, TopicsConfig,
};
