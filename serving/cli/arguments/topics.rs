//! `hulse topics`.

use clap::{Args, Subcommand, ValueEnum};

use super::copies::CopiesFlags;
use crate::config::{ByteSize, Period};
use crate::position::{self, Position};
use crate::retained::Stays;

/// `hulse topics`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse topics list\n  hulse topics create payments -p 8\n  hulse topics describe orders --output wide"
)]
pub(crate) enum Topics {
    /// All topics of a namespace, or all there are
    #[command(
        after_help = "Examples:\n  hulse topics list\n  hulse topics list public/default --output json"
    )]
    List {
        /// tenant/namespace
        namespace: Option<String>,
    },
    /// Create topics
    #[command(
        after_help = "Examples:\n  hulse topics create payments\n  hulse topics create acme/shop/orders -p 8\n  hulse topics create ledger -r 1"
    )]
    Create {
        /// topic or tenant/namespace/topic
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
        /// Partitions [default: broker.default_partitions]
        #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        partitions: Option<u32>,
        #[command(flatten)]
        copies: CopiesFlags,
        #[command(flatten)]
        retention: RetentionFlags,
        #[command(flatten)]
        backlog: BacklogFlags,
    },
    /// Change how long the records of topics stay, how much their subscriptions may keep, and how many copies there are
    #[command(
        after_help = "A change that lets records go says how many, and whose that are not acknowledged yet, and asks first; --dry-run only says it.\n\nCopies are those of ledgers that are made from then on; open ones are rolled at once. What lies in older ledgers keeps the copies that\nit has: hulse topics describe says how many those are.\n\nExamples:\n  hulse topics update orders --retention 30d\n  hulse topics update orders --retention 1h --dry-run\n  hulse topics update orders --backlog-size 10GiB --backlog-policy reject\n  hulse topics update orders --retention off --retention-size 50GiB\n  hulse topics update orders --retention default\n  hulse topics update orders -r 1"
    )]
    Update {
        /// topic or tenant/namespace/topic
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
        #[command(flatten)]
        copies: CopiesFlags,
        #[command(flatten)]
        retention: RetentionFlags,
        #[command(flatten)]
        backlog: BacklogFlags,
    },
    /// Remove the oldest records, up to a position
    Trim(Trim),
    /// One topic and its partitions
    #[command(
        after_help = "Examples:\n  hulse topics describe orders\n  hulse topics describe orders --output json"
    )]
    Describe {
        /// topic or tenant/namespace/topic
        topic: String,
    },
    /// Delete topics and everything in them
    #[command(
        after_help = "Examples:\n  hulse topics delete orders --dry-run\n  hulse topics delete orders --yes"
    )]
    Delete {
        /// topic or tenant/namespace/topic
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
    },
    /// Set the number of partitions; it can only grow, because keys would change their partition
    #[command(after_help = "Examples:\n  hulse topics partitions orders 16")]
    Partitions {
        /// topic or tenant/namespace/topic
        topic: String,
        /// New total
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        total: u32,
    },
    /// The newest records, or some from a position, as a table
    Peek(Peek),
    /// Copy records into another topic, with other partitions if wanted; goes on where an earlier copy stopped
    Copy(Copy),
}

/// How long records stay.
#[derive(Debug, Args)]
pub(crate) struct RetentionFlags {
    /// Records go this long after their append: a duration, off or default [default: retention.time]
    #[arg(long, value_name = "TIME")]
    pub(crate) retention: Option<Stays<Period>>,
    /// In each partition so much stays: a size, off or default [default: retention.size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) retention_size: Option<Stays<ByteSize>>,
}

/// How much each subscription may keep of each partition.
#[derive(Debug, Args)]
pub(crate) struct BacklogFlags {
    /// A subscription may keep so much of each partition: a size, off or default [default: backlog_quota.size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) backlog_size: Option<Stays<ByteSize>>,
    /// A subscription may keep a record so long: a duration, off or default [default: backlog_quota.age]
    #[arg(long, value_name = "TIME")]
    pub(crate) backlog_age: Option<Stays<Period>>,
    /// What happens to one that keeps more [default: backlog_quota.policy]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) backlog_policy: Option<BacklogPolicy>,
}

/// What happens to a subscription that keeps too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BacklogPolicy {
    /// It goes on keeping, and is reported
    Hold,
    /// Producers are refused until it has processed enough
    Reject,
    /// It loses its oldest records
    Evict,
    /// As the cluster says
    Default,
}

/// `hulse topics trim`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "\
Records below the position are not served any more once it answers; their storage comes back behind it. Subscriptions that
stand below it go on at the first record that stays.

{}

Examples:
  hulse topics trim orders --before @-30d --dry-run
  hulse topics trim orders -p 0 --before 2 --yes
  hulse topics trim orders --before end --yes",
    position::HELP
))]
pub(crate) struct Trim {
    /// topic or tenant/namespace/topic
    pub(crate) topic: String,
    /// The first record that stays
    #[arg(long, allow_hyphen_values = true, value_name = "POSITION")]
    pub(crate) before: Position,
    /// Only these partitions
    #[arg(short, long, value_delimiter = ',', value_name = "N,..")]
    pub(crate) partitions: Vec<u32>,
}

/// `hulse topics peek`
#[derive(Debug, Args)]
#[command(after_help = format!(
    "{}\n\nExamples:\n  hulse topics peek orders\n  hulse topics peek orders -n 3 -o start\n  hulse topics peek orders -n 1 -j",
    position::HELP
))]
pub(crate) struct Peek {
    /// topic or tenant/namespace/topic
    pub(crate) topic: String,
    /// How many
    #[arg(short = 'n', long = "num", default_value = "10", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
    /// Begin here instead of before the end
    #[arg(short, long, allow_hyphen_values = true, value_name = "POSITION")]
    pub(crate) offset: Option<Position>,
    /// Only these partitions
    #[arg(short, long, value_delimiter = ',', value_name = "N,..")]
    pub(crate) partitions: Vec<u32>,
}

/// `hulse topics copy`
#[derive(Debug, Args)]
#[command(after_help = "\
Every record keeps its key, value, headers and time. Records of one key keep their order: a source's partition is read in order, and
all records of a key go to one partition of the target. Nobody else may write to the target meanwhile; if somebody did, the copy says
so and stops.

How far the copy is stands in a small topic beside the target, TARGET.copied: run the command again after a break, or to copy what
has come since. It stays for that; when you are through with copying, hulse topics delete TARGET.copied.

Examples:
  hulse topics copy orders orders-wide --partitions 16
  hulse topics copy orders orders-narrow --partitions 1 --dry-run")]
pub(crate) struct Copy {
    /// Topic to read
    pub(crate) source: String,
    /// Topic to write; made if it is not there
    pub(crate) target: String,
    /// Partitions of a target that is made [default: as many as the source has]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partitions: Option<u32>,
    /// How batches are compressed
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) compression: super::Compression,
    /// At most so many records per second
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
}
