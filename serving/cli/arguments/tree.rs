//! The tree: every command at the top.

use clap::{Parser, Subcommand};

use super::{
    Bench, Bookie, Bookies, Broker, Brokers, ClusterCommand, Completions, ConfigCommand, Consume,
    Doctor, Drain, Generate, Globals, Ledgers, Produce, ProfileCommand, Standalone, Subscriptions,
    Topics, Verify,
};

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

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server: broker, bookie and metadata in one process
    Standalone(Standalone),
    /// Run a broker of a cluster: clients connect to it
    Broker(Box<Broker>),
    /// Run a bookie of a cluster, or format its directory: it keeps records
    Bookie(Box<Bookie>),
    /// Send records, one per line of standard input
    Produce(Produce),
    /// Read records; begins at the end and follows unless told otherwise
    Consume(Consume),
    /// Topics: list, create, describe, update, trim, delete, add partitions
    #[command(subcommand, visible_alias = "topic")]
    Topics(Topics),
    /// Subscriptions: list, create, update, describe, seek, skip, clear, delete
    #[command(subcommand, visible_alias = "subs", aliases = ["sub", "subscription"])]
    Subscriptions(Subscriptions),
    /// The cluster: status, health, check
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Brokers: list, describe, drain, undrain
    #[command(subcommand)]
    Brokers(Brokers),
    /// Bookies: list, describe, decommission, recommission, read-only, lost
    #[command(subcommand)]
    Bookies(Bookies),
    /// Have a broker give all its partitions to the others, before it is stopped
    Drain(Drain),
    /// Ledgers: list, accept a loss
    #[command(subcommand, visible_alias = "ledger")]
    Ledgers(Ledgers),
    /// Measure a running server
    #[command(subcommand)]
    Bench(Bench),
    /// Configuration of a node: show, default, check
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Servers by name: create, use, list, show, edit, delete, prompt
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Check that nothing is damaged or missing: in a stopped node's directory, or in a topic
    Verify(Verify),
    /// Say what is wrong with a server, why, and what to run next
    Doctor(Doctor),
    /// Make data to play with
    #[command(subcommand)]
    Generate(Generate),
    /// The script that completes commands, flags and topics in your shell
    Completions(Completions),
}

impl Command {
    /// True for what logs as a server does.
    pub(crate) fn is_a_server(&self) -> bool {
        matches!(
            self,
            Self::Standalone(_) | Self::Broker(_) | Self::Bookie(_)
        )
    }

    /// False for what needs no server, so no profile either.
    pub(crate) fn talks_to_a_server(&self) -> bool {
        !matches!(
            self,
            Self::Standalone(_)
                | Self::Broker(_)
                | Self::Bookie(_)
                | Self::Config(_)
                | Self::Profile(_)
                | Self::Completions(_)
        )
    }
}
