//! Commands of a node: `standalone`, `broker`, `bookie`, `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `hulse standalone`
#[derive(Debug, Args)]
#[command(after_help = "\
An empty data directory is formatted; any other must be one of ours. Flags win over the environment
(HULSE_BOOKIE__SYNC=off), the environment over hulse.toml; `hulse config show --origin` tells what holds.

With several bookies each record has as many copies, three at most, and its producer is answered when more than half of them are on
disk; a directory keeps the number of bookies it was made with. They listen 10 ports behind --grpc and --http, one after the other.

Several brokers share the partitions; a client that is told of one finds them all. Broker 2 listens one port behind --grpc and --http,
and behind the last of --kafka. Their number may be another at each start. What fails in one part ends the process: a cluster whose
parts live and die apart is charts/local/up.

Examples:
  hulse standalone
  hulse standalone --brokers 2 --bookies 3 --data ./small-cluster
  hulse standalone --bookies 3 --data ./three-copies --grpc 127.0.0.1:7500 --http 127.0.0.1:7580 --kafka off
  hulse standalone --data ./more-data --grpc 127.0.0.1:7500 --http 127.0.0.1:7580 --kafka off")]
pub(crate) struct Standalone {
    /// Brokers, each with ports of its own, which share the partitions [default 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10))]
    pub(crate) brokers: Option<u32>,
    /// Bookies, each with a log of its own; the data directory's number, or 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) bookies: Option<u32>,
    /// Data directory [node.data_dir, default ./hulse-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address for clients [listen.grpc, default 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    /// Address for metrics and health [listen.http, default 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Addresses for Kafka clients, or off [listen.kafka, default 127.0.0.1:9092]
    #[arg(long, value_name = "ADDR[,ADDR]")]
    pub(crate) kafka: Option<String>,
    /// always | interval:DURATION | off [bookie.sync, default always]
    #[arg(long, value_name = "MODE")]
    pub(crate) sync: Option<String>,
}

/// `hulse config`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse config default > hulse.toml\n  hulse config show --origin\n  hulse config check --config hulse.toml"
)]
pub(crate) enum ConfigCommand {
    /// The values in force
    #[command(
        after_help = "Examples:\n  hulse config show --origin\n  hulse config show --role broker"
    )]
    Show {
        /// Also where each comes from
        #[arg(long)]
        origin: bool,
        /// For what kind of server: some defaults differ
        #[arg(long, value_enum, default_value_t = Role::Standalone)]
        role: Role,
    },
    /// Every key at its default, with what it does
    #[command(after_help = "Examples:\n  hulse config default > hulse.toml")]
    Default,
    /// Says what is wrong, or nothing
    #[command(after_help = "Examples:\n  hulse config check --config hulse.toml")]
    Check {
        /// For what kind of server
        #[arg(long, value_enum, default_value_t = Role::Standalone)]
        role: Role,
    },
}

/// What kind of server a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// All in one process
    Standalone,
    /// A broker of a cluster
    Broker,
    /// A bookie of a cluster
    Bookie,
}

/// `hulse broker`
#[derive(Debug, Args)]
#[command(after_help = "\
A broker keeps nothing on a disk: records are with the bookies, everything else is in etcd. It waits for etcd as long as it must.
How many copies there are stands in the cell's record, made by the first node from broker.replication (3 copies, 2 before an answer).

Examples:
  hulse broker --metadata http://127.0.0.1:2379")]
pub(crate) struct Broker {
    /// Name in metadata, of no other broker [node.name, default node-1]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// etcd's members, as http://host:port [metadata.endpoints]
    #[arg(long, value_name = "URL[,URL]")]
    pub(crate) metadata: Option<String>,
    /// Address for clients [listen.grpc, default 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    /// Address for metrics and health [listen.http, default 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Addresses for Kafka clients, or off [listen.kafka, default 127.0.0.1:9092]
    #[arg(long, value_name = "ADDR[,ADDR]")]
    pub(crate) kafka: Option<String>,
}

/// `hulse bookie`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
A bookie keeps one log on one disk. Its directory is formatted once, which gives it its name in the cell for ever; a start refuses any
other directory, and one that another process has.

Examples:
  hulse bookie format --name bookie-1 --data ./bookie-1 --metadata http://127.0.0.1:2379
  hulse bookie --name bookie-1 --data ./bookie-1 --metadata http://127.0.0.1:2379"
)]
pub(crate) struct Bookie {
    #[command(subcommand)]
    pub(crate) command: Option<BookieCommand>,
    #[command(flatten)]
    pub(crate) node: BookieNode,
}

/// What else can be done with a bookie's directory.
#[derive(Debug, Subcommand)]
pub(crate) enum BookieCommand {
    /// Make an empty directory a bookie's, and register it in the cell
    #[command(
        after_help = "Examples:\n  hulse bookie format --name bookie-2 --data ./bookie-2 --metadata http://127.0.0.1:2379"
    )]
    Format(BookieNode),
    /// Give a bookie whose disk is gone an empty directory; its copies are made again from the others
    #[command(
        after_help = "The name stays, and the life of the old disk is over: should it come back, it is refused.\n\nExamples:\n  hulse bookie replace --name bookie-2 --data ./bookie-2-new --metadata http://127.0.0.1:2379"
    )]
    Replace(BookieNode),
}

/// Which bookie, and where it is.
#[derive(Debug, Args)]
pub(crate) struct BookieNode {
    /// Data directory [node.data_dir, default ./hulse-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Name in metadata, of no other bookie [node.name, default node-1]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// What fails together with it, e.g. its rack [node.zone]
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,
    /// etcd's members, as http://host:port [metadata.endpoints]
    #[arg(long, value_name = "URL[,URL]")]
    pub(crate) metadata: Option<String>,
    /// Address for brokers [listen.bookie, default 127.0.0.1:7410]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Address for metrics and health [listen.http, default 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// always | interval:DURATION | off [bookie.sync, default always]
    #[arg(long, value_name = "MODE")]
    pub(crate) sync: Option<String>,
}
