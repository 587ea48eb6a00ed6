//! Commands of a node: `standalone`, `config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `hulse standalone`
#[derive(Debug, Args)]
#[command(after_help = "\
An empty data directory is formatted; any other must be one of ours. Flags win over the environment
(HULSE_BOOKIE__SYNC=off), the environment over hulse.toml; `hulse config show --origin` tells what holds.

Examples:
  hulse standalone
  hulse standalone --data ./more-data --grpc 127.0.0.1:7500 --http 127.0.0.1:7580 --kafka off")]
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
