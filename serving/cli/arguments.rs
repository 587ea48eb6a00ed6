//! The command line: what clap parses. Every page of help ends with examples.
//!
//! Globals stand before or after the command. `-o` is a position and `-f` a format, as kcat and rpk taught; the output's shape is
//! `--output` or `-j` (operations.md B).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::{ByteSize, Period};
use crate::format;
use crate::output::Shape;
use crate::position::{self, Position};

/// Durable streaming platform: one binary for the server and the command line.
#[derive(Debug, Parser)]
#[command(
    name = "hulse",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  hulse standalone                          start a server here, data in ./hulse-data
  echo hello | hulse produce greetings      send a record
  hulse consume greetings -o start -n 1     read it"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// Server to talk to
    #[arg(
        long,
        global = true,
        env = "HULSE_SERVER",
        default_value = "127.0.0.1:7400",
        value_name = "HOST:PORT",
        help_heading = "Globals"
    )]
    pub(crate) server: String,
    /// Configuration file (default: ./hulse.toml if it exists; conf.d/*.toml beside it is read too)
    #[arg(
        long,
        global = true,
        env = "HULSE_CONFIG",
        value_name = "FILE",
        help_heading = "Globals"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Shape of data on standard output
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "table",
        value_name = "SHAPE",
        help_heading = "Globals"
    )]
    pub(crate) output: Shape,
    /// Same as --output json
    #[arg(short = 'j', global = true, help_heading = "Globals")]
    pub(crate) json: bool,
    /// Give up a request, or a record that is not stored, after this long
    #[arg(
        long,
        global = true,
        default_value = "30s",
        value_name = "DURATION",
        help_heading = "Globals"
    )]
    pub(crate) timeout: Period,
    /// Do not ask before destroying something
    #[arg(long, global = true, help_heading = "Globals")]
    pub(crate) yes: bool,
    /// Only data and errors
    #[arg(short, long, global = true, help_heading = "Globals")]
    pub(crate) quiet: bool,
    /// Log more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Globals")]
    pub(crate) verbose: u8,
    /// No colour
    #[arg(long, global = true, help_heading = "Globals")]
    pub(crate) no_color: bool,
}

impl Globals {
    /// The shape of data.
    pub(crate) fn shape(&self) -> Shape {
        if self.json { Shape::Json } else { self.output }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server: broker, bookie and metadata in one process
    Standalone(Standalone),
    /// Send records, one per line of standard input
    Produce(Produce),
    /// Read records; begins at the end and follows unless told otherwise
    Consume(Consume),
    /// Topics: list, create, describe, delete, add partitions
    #[command(subcommand, visible_alias = "topic")]
    Topics(Topics),
    /// Ledgers: list, accept a loss
    #[command(subcommand, visible_alias = "ledger")]
    Ledgers(Ledgers),
    /// Measure a running server
    #[command(subcommand)]
    Bench(Bench),
    /// Configuration of a node: show, default, check
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// `hulse standalone`
#[derive(Debug, Args)]
#[command(after_help = "\
An empty data directory is formatted; any other must be one of ours. Flags win over the environment
(HULSE_BOOKIE__SYNC=off), the environment over hulse.toml; `hulse config show --origin` tells what holds.

Examples:
  hulse standalone
  hulse standalone --data /var/lib/hulse --grpc 127.0.0.1:7500 --http 127.0.0.1:7580")]
pub(crate) struct Standalone {
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

/// What a producer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Acks {
    /// Nothing: a record may be lost without a word
    None,
    /// Durable on a quorum of bookies
    Quorum,
}

/// How batches are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    /// Not
    None,
    /// Fast
    Lz4,
    /// Small
    Zstd,
}

/// `hulse produce`
#[derive(Debug, Args)]
#[command(after_help = produce_help())]
pub(crate) struct Produce {
    /// Topic; created if the server allows it
    pub(crate) topic: String,
    /// How a record is written in the input
    #[arg(short, long, default_value = "%v\\n", value_name = "FORMAT")]
    pub(crate) format: String,
    /// Key of every record that has none in the input
    #[arg(short, long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Header of every record; may be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE")]
    pub(crate) headers: Vec<String>,
    /// Send everything to this partition
    #[arg(short, long, value_name = "N")]
    pub(crate) partition: Option<u32>,
    /// Read from a file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// What to wait for
    #[arg(long, value_enum, default_value = "quorum")]
    pub(crate) acks: Acks,
    /// How batches are compressed
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) compression: Compression,
    /// At most so many records per second
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
}

fn produce_help() -> String {
    format!(
        "{}\n\nThe literal at the end of the format ends a record (a newline where there is none).\n\n\
         Examples:\n  echo hello | hulse produce greetings\n  \
         hulse produce orders -f '%k\\t%v\\n' --file orders.tsv\n  \
         hulse produce blobs -f '%v{{base64}}\\n' -H source=import --compression zstd < blobs.txt",
        format::INPUT_HELP
    )
}

/// `hulse consume`
#[derive(Debug, Args)]
#[command(after_help = consume_help())]
pub(crate) struct Consume {
    /// Topics
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Where to begin and stop [default: end; start with -n or -e]
    #[arg(short, long, allow_hyphen_values = true, value_name = "POSITION")]
    pub(crate) offset: Option<Position>,
    /// Stop after so many records
    #[arg(short = 'n', long = "num", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop at the end of what there is now
    #[arg(short = 'e', long)]
    pub(crate) exit: bool,
    /// How a record is printed
    #[arg(short, long, default_value = "%v\\n", value_name = "FORMAT")]
    pub(crate) format: String,
    /// Only these partitions
    #[arg(short, long, value_delimiter = ',', value_name = "N,..")]
    pub(crate) partitions: Vec<u32>,
}

fn consume_help() -> String {
    format!(
        "{}\n\n{}\n\nExamples:\n  hulse consume greetings -o start -n 1\n  \
         hulse consume orders -o -10 -e -f '%p/%o %k: %v\\n'\n  \
         hulse consume orders -o @-15m --output json",
        position::HELP,
        format::OUTPUT_HELP
    )
}

/// `hulse topics`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse topics list\n  hulse topics create orders -p 8\n  hulse topics describe orders"
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
        after_help = "Examples:\n  hulse topics create orders\n  hulse topics create acme/shop/orders -p 8"
    )]
    Create {
        /// topic or tenant/namespace/topic
        #[arg(required = true, value_name = "TOPIC")]
        topics: Vec<String>,
        /// Partitions [default: broker.default_partitions]
        #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        partitions: Option<u32>,
    },
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
        after_help = "Examples:\n  hulse topics delete orders\n  hulse topics delete orders --yes"
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
}

/// `hulse ledgers`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse ledgers list orders\n  hulse ledgers accept-loss 17 --yes"
)]
pub(crate) enum Ledgers {
    /// Ledgers of a topic, or all
    #[command(
        after_help = "Examples:\n  hulse ledgers list\n  hulse ledgers list orders --output json"
    )]
    List {
        /// topic or tenant/namespace/topic
        topic: Option<String>,
    },
    /// Give up what cannot be read of a ledger, so that its partition opens again
    #[command(
        after_help = "Examples:\n  hulse ledgers accept-loss 17\n  hulse ledgers accept-loss 17 --up-to 4096 --yes"
    )]
    AcceptLoss {
        /// Number of the ledger
        ledger: u64,
        /// Seal at this entry (exclusive) instead of at the first that cannot be read
        #[arg(long, value_name = "ENTRY")]
        up_to: Option<u64>,
    },
}

/// What all measurements share.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Topic; made for the measurement when it does not exist
    #[arg(long, default_value = "bench", value_name = "TOPIC")]
    pub(crate) topic: String,
    /// Size of a record
    #[arg(long, default_value = "1KiB", value_name = "SIZE")]
    pub(crate) size: ByteSize,
    /// How long
    #[arg(long, default_value = "10s", value_name = "DURATION")]
    pub(crate) duration: Period,
    /// Partitions of a topic that is made
    #[arg(long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partitions: u32,
    /// What to wait for
    #[arg(long, value_enum, default_value = "quorum")]
    pub(crate) acks: Acks,
    /// How batches are compressed
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) compression: Compression,
}

/// `hulse bench`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse bench produce --size 1KiB --duration 10s\n  hulse bench latency --rate 1000\n  hulse bench consume"
)]
pub(crate) enum Bench {
    /// Send as fast as answers allow, or at a rate
    #[command(
        after_help = "Examples:\n  hulse bench produce\n  hulse bench produce --size 100B --rate 200000 --duration 30s"
    )]
    Produce {
        #[command(flatten)]
        load: Load,
        /// Records per second [default: as many as go]
        #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
        rate: Option<u32>,
    },
    /// Read a topic from its start to its end
    #[command(after_help = "Examples:\n  hulse bench consume --topic bench")]
    Consume {
        /// Topic
        #[arg(long, default_value = "bench", value_name = "TOPIC")]
        topic: String,
    },
    /// Send at a rate and measure each answer from the time it was due (open loop)
    #[command(
        after_help = "Examples:\n  hulse bench latency --rate 1000 --size 1KiB --duration 30s"
    )]
    Latency {
        #[command(flatten)]
        load: Load,
        /// Records per second
        #[arg(long, default_value = "1000", value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
    },
}

/// `hulse config`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse config default > hulse.toml\n  hulse config show --origin\n  hulse config check --config hulse.toml"
)]
pub(crate) enum ConfigCommand {
    /// The values in force
    #[command(after_help = "Examples:\n  hulse config show --origin")]
    Show {
        /// Also where each comes from
        #[arg(long)]
        origin: bool,
    },
    /// Every key at its default, with what it does
    #[command(after_help = "Examples:\n  hulse config default > hulse.toml")]
    Default,
    /// Says what is wrong, or nothing
    #[command(after_help = "Examples:\n  hulse config check --config hulse.toml")]
    Check,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn pages(command: &clap::Command, path: String, out: &mut Vec<(String, String)>) {
        let mut page = command.clone();
        out.push((path.clone(), page.render_long_help().to_string()));
        for inner in command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            pages(inner, format!("{path} {}", inner.get_name()), out);
        }
    }

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_page_of_help_has_examples() {
        let mut command = Arguments::command();
        command.build();
        let mut found = Vec::new();
        pages(&command, "hulse".to_owned(), &mut found);
        assert!(found.len() > 15, "{}", found.len());
        for (path, page) in found {
            assert!(page.contains("Examples:"), "{path} has no examples");
            assert!(page.contains("hulse "), "{path}");
        }
    }

    #[test]
    fn positions_that_begin_with_a_minus_are_no_flags() {
        let arguments = Arguments::try_parse_from(["hulse", "consume", "t", "-o", "-5", "-e"]);
        let Command::Consume(consume) = arguments.unwrap().command else {
            panic!("not consume");
        };
        assert_eq!(consume.offset, Some("-5".parse().unwrap()));
        assert!(consume.exit);
    }

    #[test]
    fn globals_stand_before_or_after_the_command() {
        for line in [
            "hulse --timeout 5s topics list -j",
            "hulse topics list -j --timeout 5s",
        ] {
            let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(arguments.globals.shape(), Shape::Json);
            assert_eq!(arguments.globals.timeout.to_string(), "5s");
        }
    }
}
