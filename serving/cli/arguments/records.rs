//! Commands that send and read records: `produce`, `consume`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use hulse_sdk::DeliveryMode;

use super::subscriptions::Type;
use crate::format;
use crate::position::{self, Position};

/// Slots of a keyed subscription.
const SLOTS: u16 = 4_096;

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
    /// at_least_once: --acks quorum; at_most_once: --acks none
    #[arg(long, conflicts_with = "acks", value_name = "MODE")]
    pub(crate) delivery: Option<DeliveryMode>,
    /// How batches are compressed
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) compression: Compression,
    /// At most so many records per second
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Put a number on each record, so that `hulse verify TOPIC` finds each missing one
    #[arg(long)]
    pub(crate) number: bool,
}

impl Produce {
    /// What to wait for, by either of the two flags.
    pub(crate) fn acks(&self) -> Acks {
        match self.delivery {
            None => self.acks,
            Some(DeliveryMode::AtMostOnce) => Acks::None,
            Some(_) => Acks::Quorum,
        }
    }
}

fn produce_help() -> String {
    format!(
        "{}\n\nThe literal at the end of the format ends a record (a newline where there is none).\n\n\
         Examples:\n  echo hello | hulse produce greetings\n  \
         hulse produce orders -f '%k\\t%v\\n' --file orders.tsv\n  \
         seq 1000 | hulse produce counted --delivery at_least_once --number\n  \
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
    /// How a record is printed [default: %v\n, unless --output names a form]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// Only these partitions
    #[arg(short, long, value_delimiter = ',', value_name = "N,..")]
    pub(crate) partitions: Vec<u32>,
    /// Go on where this subscription is; it is made at -o (or where reading would begin) if it does not exist
    #[arg(short, long, value_name = "NAME")]
    pub(crate) subscription: Option<String>,
    /// How consumers share the subscription
    #[arg(
        long = "type",
        value_enum,
        default_value = "exclusive",
        requires = "subscription"
    )]
    pub(crate) kind: Type,
    /// Acknowledge what is printed; this is the default
    #[arg(long, requires = "subscription", conflicts_with = "no_ack")]
    pub(crate) ack: bool,
    /// Acknowledge nothing, so that the next run prints it again
    #[arg(long, requires = "subscription")]
    pub(crate) no_ack: bool,
    /// End the consumer that is attached instead of being refused
    #[arg(long, requires = "subscription")]
    pub(crate) takeover: bool,
    /// Name of this consumer [default: drawn by chance]
    #[arg(long, requires = "subscription", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// keyed with named slots: those of this consumer, half open; may be repeated
    #[arg(
        long,
        requires = "subscription",
        value_name = "FIRST-END",
        value_parser = slots
    )]
    pub(crate) slots: Vec<(u16, u16)>,
    /// at_least_once: acknowledge what was printed; at_most_once: acknowledge first, print then
    #[arg(
        long,
        requires = "subscription",
        default_value = "at_least_once",
        value_name = "MODE"
    )]
    pub(crate) delivery: DeliveryMode,
}

/// "0-2048".
fn slots(text: &str) -> Result<(u16, u16), String> {
    let range = text.split_once('-');
    let range = range.and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    match range {
        Some((first, end)) if first < end && end <= SLOTS => Ok((first, end)),
        _ => Err(format!(
            "it is no range of slots; write FIRST-END, of 0-{SLOTS}, END not included"
        )),
    }
}

fn consume_help() -> String {
    format!(
        "{}\n\n{}\n\nExamples:\n  hulse consume greetings -o start -n 1\n  \
         hulse consume orders -o -10 -e -f '%p/%o %k: %v\\n'\n  \
         hulse consume orders -o @-15m --output json\n  \
         hulse consume orders -s billing -n 1 --no-ack\n  \
         hulse consume orders -s ledger --type stream -n 10",
        position::HELP,
        format::OUTPUT_HELP
    )
}
