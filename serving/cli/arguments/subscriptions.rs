//! `hulse subscriptions`.

use clap::{Args, Subcommand, ValueEnum};

use crate::config::{OrOff, Period};
use crate::position::{self, Position};

/// How consumers share a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Type {
    /// One consumer; a second one is refused
    Exclusive,
    /// One consumer at a time, others stand by
    Failover,
    /// Consumers share the records, and each is acknowledged by itself
    Queue,
    /// As queue, and the records of one key go to one consumer at a time, in order
    Keyed,
    /// Consumers share the partitions, as a consumer group of Kafka does, and with its clients
    Stream,
}

/// A subscription of a topic.
#[derive(Debug, Args)]
pub(crate) struct OfTopic {
    /// topic or tenant/namespace/topic
    pub(crate) topic: String,
    /// Name of the subscription
    pub(crate) subscription: String,
}

/// How the records of a queue or keyed subscription are shared out.
#[derive(Debug, Args)]
pub(crate) struct SharingArgs {
    /// queue, keyed: a record without an answer comes back after this, 15s to 15m [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) lock: Option<Period>,
    /// queue, keyed: failed attempts until a record is a dead letter, 2 to 100; 0: no limit [default: 5]
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u32>,
    /// queue, keyed: the topic that dead letters are copied to [default: they stay, and are not delivered]
    #[arg(long, value_name = "TOPIC")]
    pub(crate) dead_letter_topic: Option<String>,
    /// queue, keyed: dead letters count as processed
    #[arg(long, conflicts_with = "dead_letter_topic")]
    pub(crate) drop_dead_letters: bool,
    /// queue, keyed: a record that failed waits this long, and twice as long each time [default: it does not wait]
    #[arg(long, value_name = "TIME")]
    pub(crate) backoff: Option<Period>,
    /// keyed: what is promised beside that a key is at one consumer
    #[arg(long, value_enum, default_value = "sticky")]
    pub(crate) key_order: KeyOrder,
    /// keyed: consumers name their slots (`hulse consume --slots`) instead of being given them
    #[arg(long)]
    pub(crate) named_slots: bool,
}

/// What a keyed subscription promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyOrder {
    /// First deliveries of a key come in order
    Sticky,
    /// And a record that was returned stops its keys
    BlockOnNack,
    /// And the next record of a key comes when the one before is acknowledged
    OneInFlight,
}

/// `hulse subscriptions`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse subscriptions list\n  hulse subs create orders audit --from start\n  hulse subs describe orders billing"
)]
pub(crate) enum Subscriptions {
    /// All subscriptions with their backlogs, or those of a topic
    #[command(
        after_help = "Examples:\n  hulse subs list\n  hulse subs list orders --output wide\n  hulse subs list orders --output json"
    )]
    List {
        /// topic or tenant/namespace/topic
        topic: Option<String>,
    },
    /// Create a subscription, before its first consumer comes
    #[command(
        after_help = "Examples:\n  hulse subs create orders audit\n  hulse subs create orders search --type failover --from start\n  hulse subs create orders work --type queue --max-attempts 3 --dead-letter-topic graves"
    )]
    Create {
        #[command(flatten)]
        of: OfTopic,
        /// How consumers share it
        #[arg(long = "type", value_enum, default_value = "exclusive")]
        kind: Type,
        /// Where it begins: a position
        #[arg(
            long,
            default_value = "end",
            allow_hyphen_values = true,
            value_name = "POSITION"
        )]
        from: Position,
        /// Let retention take records that are not acknowledged yet
        #[arg(long)]
        no_hold: bool,
        /// Records that are older count as processed, whoever is attached [default: none does]
        #[arg(long, value_name = "TIME")]
        ttl: Option<Period>,
        #[command(flatten)]
        sharing: SharingArgs,
    },
    /// Change what a subscription keeps, on all of its topics
    #[command(
        after_help = "A subscription may be on several topics of its namespace, and what it keeps holds on all of them. Where records that are\nnot acknowledged may go, it says how many of each topic and asks first; --dry-run only says it.\n\nExamples:\n  hulse subs update orders billing --no-hold --dry-run\n  hulse subs update orders billing --hold\n  hulse subs update orders billing --ttl 7d --yes"
    )]
    Update {
        #[command(flatten)]
        of: OfTopic,
        /// Keep records until they are acknowledged, whatever retention says
        #[arg(long, required_unless_present_any = ["no_hold", "ttl"], conflicts_with = "no_hold")]
        hold: bool,
        /// Let retention take records that are not acknowledged yet
        #[arg(long)]
        no_hold: bool,
        /// Records that are older count as processed, whoever is attached; off: none does
        #[arg(long, value_name = "TIME")]
        ttl: Option<OrOff<Period>>,
    },
    /// Deliver nothing of a queue or keyed subscription, for a time or until it is resumed
    #[command(
        after_help = "What consumers hold comes back, and that counts for nothing. It holds over restarts.\n\nExamples:\n  hulse subs pause orders jobs --for 10m\n  hulse subs pause orders jobs --dry-run"
    )]
    Pause {
        #[command(flatten)]
        of: OfTopic,
        /// For so long [default: until it is resumed]
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Period>,
    },
    /// Let a subscription that was paused go on
    #[command(after_help = "Examples:\n  hulse subs resume orders jobs")]
    Resume {
        #[command(flatten)]
        of: OfTopic,
    },
    /// Try dead letters of a queue or keyed subscription anew
    #[command(
        after_help = "Those that stay where they are (parked) are delivered again, as if they had never failed. Those that went to a dead-letter\ntopic are sent to the topic again: all of its subscriptions get them. How often that was done is in their header\nhulse.redrive.\n\nExamples:\n  hulse subs redrive orders jobs --dry-run\n  hulse subs redrive orders jobs --yes"
    )]
    Redrive {
        #[command(flatten)]
        of: OfTopic,
        /// Only this partition; of letters that stay where they are
        #[arg(short, long, value_name = "N")]
        partition: Option<u32>,
        /// A record of a dead-letter topic goes back at most so often
        #[arg(long, default_value = "3", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
    },
    /// One subscription: its cursors and consumers
    #[command(
        after_help = "Examples:\n  hulse subs describe orders billing\n  hulse subs describe orders billing --output wide"
    )]
    Describe {
        #[command(flatten)]
        of: OfTopic,
    },
    /// Move cursors to a position; consumers go on from there
    #[command(after_help = seek_help())]
    Seek {
        #[command(flatten)]
        of: OfTopic,
        /// Where to: a position
        #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
        to: Position,
        /// Only this partition
        #[arg(short, long, value_name = "N")]
        partition: Option<u32>,
    },
    /// Pass over the next records of a partition
    #[command(
        after_help = "Examples:\n  hulse subs skip orders billing -p 0 -n 1 --dry-run\n  hulse subs skip orders billing -p 0 -n 1 --yes"
    )]
    Skip {
        #[command(flatten)]
        of: OfTopic,
        /// The partition
        #[arg(short, long, default_value = "0", value_name = "N")]
        partition: u32,
        /// How many records that are not acknowledged yet
        #[arg(short = 'n', long = "num", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        records: u64,
    },
    /// Pass over everything that is stored now
    #[command(
        after_help = "Examples:\n  hulse subs clear orders billing --dry-run\n  hulse subs clear orders billing --yes"
    )]
    Clear {
        #[command(flatten)]
        of: OfTopic,
        /// Only this partition
        #[arg(short, long, value_name = "N")]
        partition: Option<u32>,
    },
    /// Delete a subscription: its consumers end, its backlog is forgotten
    #[command(
        visible_alias = "unsubscribe",
        after_help = "Examples:\n  hulse subs delete orders billing --dry-run\n  hulse subs delete orders billing --force --yes"
    )]
    Delete {
        #[command(flatten)]
        of: OfTopic,
        /// Also while consumers are attached
        #[arg(long)]
        force: bool,
    },
}

fn seek_help() -> String {
    format!(
        "{}\n\nExamples:\n  hulse subs seek orders billing --to start --dry-run\n  \
         hulse subs seek orders billing --to @-10m --yes\n  \
         hulse subs seek orders billing --to -1 -p 0 --yes",
        position::HELP
    )
}
