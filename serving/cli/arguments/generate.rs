//! `hulse generate`.

use clap::{Args, Subcommand};

use super::Compression;

/// `hulse generate`
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  hulse generate demo-data --records 1000")]
pub(crate) enum Generate {
    /// Orders of a small shop, the same for the same seed
    DemoData(Demo),
}

/// `hulse generate demo-data`
#[derive(Debug, Args)]
#[command(after_help = "\
Each record is a JSON object: order_id, customer, product, category, price, quantity, country, event_time. Its key is the customer,
its time the event_time. Same seed, same records; with --dry-run they are printed and not sent.

Examples:
  hulse generate demo-data --records 1000
  hulse generate demo-data demo-orders --records 500 --rate 1000 --partitions 4
  hulse generate demo-data --records 3 --dry-run")]
pub(crate) struct Demo {
    /// Topic; made if it is not there
    #[arg(default_value = "orders")]
    pub(crate) topic: String,
    /// How many
    #[arg(short = 'n', long, default_value = "10000", value_name = "N")]
    pub(crate) records: u64,
    /// At most so many records per second
    #[arg(long, value_name = "RECORDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Another seed, other records
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) seed: u64,
    /// Event time of the first record
    #[arg(long, default_value = "2026-01-01", value_name = "DATE", value_parser = start)]
    pub(crate) start: i64,
    /// Partitions of a topic that is made
    #[arg(short, long, default_value = "1", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) partitions: u32,
    /// How batches are compressed
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) compression: Compression,
}

fn start(text: &str) -> Result<i64, String> {
    crate::format::parse_rfc3339(text)
        .ok_or_else(|| format!("{text:?} is no date; write 2026-01-31 or 2026-01-31T10:00:00Z"))
}
