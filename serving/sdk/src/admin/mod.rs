//! Administration of topics, subscriptions and ledgers: typed forms of services Admin and Subscriptions.

mod backlog;
mod balance;
mod bookies;
mod brokers;
mod cluster;
mod copies;
mod damage;
mod handle;
mod offsets;
mod retention;
mod sharing;
mod subscription_types;
mod subscriptions;
mod types;

pub use backlog::{BacklogAction, BacklogQuota, KeptBacklog};
pub use balance::{BalanceMove, BalanceReport};
pub use bookies::{Blocked, Bookie, BookieState, Bookies, LiveBookie, Upkeep};
pub use brokers::{BrokerOrder, Draining};
pub use cluster::{Broker, Cluster};
pub use copies::{Replication, TopicCopies};
pub use damage::{Damage, DamagedRecords};
pub use handle::Admin;
pub use offsets::Offsets;
pub use retention::{Keep, NewTopic, Retention, TopicChange, TrimTo, Trimmed, UpdateEffect};
pub use sharing::{DeadLetters, KeyOrder, Sharing};
pub use subscription_types::{
    AttachedConsumer, Cursor, CursorRates, CursorSelection, CursorState, MovedCursor,
    NewSubscription, Subscription, SubscriptionChange,
};
pub use types::{Ledger, Partition, Topic};
