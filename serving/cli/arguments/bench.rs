//! `hulse bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Acks, Compression};
use crate::config::{ByteSize, Period};

/// What all measurements share.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Topic; made for the measurement when it does not exist
    #[arg(long, default_value = Load::TOPIC, value_name = "TOPIC")]
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
}

impl Load {
    /// The topic of measurements where none is named.
    pub(crate) const TOPIC: &str = "bench";
}

/// How a measurement compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measured {
    /// Not
    None,
    /// Fast
    Lz4,
    /// Small
    Zstd,
    /// Every codec in turn, on the records of FILE; says which to take
    All,
}

/// `hulse bench`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse bench produce --size 1KiB --duration 2s\n  hulse bench latency --rate 1000 --duration 2s\n  hulse bench consume"
)]
pub(crate) enum Bench {
    /// Send as fast as answers allow, or at a rate
    #[command(after_help = "\
With --compression all and a FILE: each codec (none, lz4, zstd, gzip, snappy) compresses these records and sends them, in three rounds of a
third of --duration each. Printed are the ratio, what one processor of the client can compress, and the rate from end to end (the
middle round, and how far the rounds scatter); then which resource limits, and which codec to take, or none. hulse produce and the
SDK send none, lz4 and zstd, so one of these is taken; gzip and snappy come from Kafka's clients only, and every client reads all
five. A topic that was made for it is deleted again.

Examples:
  hulse bench produce --duration 2s
  hulse bench produce --size 100B --rate 2000 --duration 2s
  hulse generate demo-data -n 5000 --dry-run > orders.jsonl && hulse bench produce --compression all orders.jsonl --duration 600ms")]
    Produce {
        #[command(flatten)]
        load: Load,
        /// Records to measure with, one a line
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// How a record is written in FILE
        #[arg(
            short,
            long,
            default_value = "%v\\n",
            value_name = "FORMAT",
            requires = "file"
        )]
        format: String,
        /// How batches are compressed
        #[arg(long, value_enum, default_value = "none")]
        compression: Measured,
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
    #[command(after_help = "Examples:\n  hulse bench latency --rate 500 --size 1KiB --duration 2s")]
    Latency {
        #[command(flatten)]
        load: Load,
        /// How batches are compressed
        #[arg(long, value_enum, default_value = "none")]
        compression: Compression,
        /// Records per second
        #[arg(long, default_value = "1000", value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
    },
}
