//! `hulse cluster`, `hulse brokers`, `hulse bookies`.

use clap::{Args, Subcommand};

use crate::config::Period;

/// `hulse cluster`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse cluster status\n  hulse cluster health\n  hulse cluster check scale-in --bookies 1"
)]
pub(crate) enum ClusterCommand {
    /// The cell in one look: nodes, copies, and what is missing
    #[command(
        after_help = "Examples:\n  hulse cluster status\n  hulse cluster status --output json"
    )]
    Status,
    /// What of the cluster is not as it should be, why, and which command helps
    #[command(after_help = "\
Exit codes: 0 nothing or notes only, 1 problems, 7 records that no bookie has. `hulse doctor` looks at everything else, too.

Examples:
  hulse cluster health
  hulse cluster health -j")]
    Health,
    /// May something be done to it now: exit code 0, or 5 and why not
    #[command(
        subcommand,
        after_help = "Examples:\n  hulse cluster check scale-in --bookies 1"
    )]
    Check(CheckCommand),
}

/// `hulse cluster check`
#[derive(Debug, Subcommand)]
pub(crate) enum CheckCommand {
    /// May this node be stopped for a moment: does everything stay served without it
    #[command(after_help = "\
Asks what the node itself answers at /readyz/stop of its HTTP. After its start, /readyz/restart tells when the next one may go.

Examples:
  hulse cluster check restart node-1")]
    Restart {
        /// Name of a broker or bookie
        node: String,
    },
    /// May there be only so many bookies: those of higher numbers hold nothing any more
    #[command(after_help = "Examples:\n  hulse cluster check scale-in --bookies 1")]
    ScaleIn {
        /// How many are to stay: those named NAME-1 to NAME-N
        #[arg(long, value_name = "N")]
        bookies: u32,
    },
}

/// `hulse brokers`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse brokers list\n  hulse brokers describe node-1\n  hulse brokers drain broker-2 --dry-run\n  hulse brokers balance --dry-run"
)]
pub(crate) enum Brokers {
    /// Brokers that run
    #[command(after_help = "Examples:\n  hulse brokers list\n  hulse brokers list --output name")]
    List,
    /// One broker
    #[command(after_help = "Examples:\n  hulse brokers describe node-1")]
    Describe {
        /// Its name
        name: String,
    },
    /// Even out the load of brokers now, instead of when they were uneven for a while
    #[command(after_help = "\
The elected balancer looks at what each partition has to do and has some handed over, a few at once; clients follow. Pinned partitions
stay, and so do those that were moved lately (balance.cooldown). `hulse cluster status` tells what it saw last.

Examples:
  hulse brokers balance --dry-run
  hulse brokers balance
  hulse brokers balance --dry-run --output wide")]
    Balance,
    /// Have a broker give all its partitions away, as hulse drain does
    Drain(Drain),
    /// Let a broker that is drained take partitions again; none comes back by itself
    #[command(after_help = "Examples:\n  hulse brokers undrain node-1")]
    Undrain {
        /// Its name
        name: String,
    },
}

/// `hulse drain`, `hulse brokers drain`
#[derive(Debug, Args)]
#[command(after_help = "\
Partitions go to the other brokers one after the other (broker.drain_rate a second); their producers and consumers follow them, and lose
nothing. Ended with ^C, it goes on without this command; run again, it tells how far it is. A broker that starts again takes partitions
again. SIGTERM does the same by itself before a broker ends.

Examples:
  hulse drain broker-2 --dry-run
  hulse drain broker-2 --within 5m
  hulse drain --self --within 60s")]
pub(crate) struct Drain {
    /// Its name (hulse brokers list)
    #[arg(value_name = "BROKER", required_unless_present = "this")]
    pub(crate) name: Option<String>,
    /// The broker that answers at --server: for a hook beside a node that is to be stopped
    #[arg(long = "self", conflicts_with = "name")]
    pub(crate) this: bool,
    /// Wait no longer than this; what is left goes on
    #[arg(long, value_name = "DURATION")]
    pub(crate) within: Option<Period>,
}

/// `hulse bookies`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse bookies list\n  hulse bookies describe node-1\n  hulse bookies decommission bookie-3 --dry-run"
)]
pub(crate) enum Bookies {
    /// Bookies, also those that do not run
    #[command(after_help = "Examples:\n  hulse bookies list\n  hulse bookies list --output wide")]
    List,
    /// One bookie
    #[command(after_help = "Examples:\n  hulse bookies describe node-1")]
    Describe {
        /// Its name
        name: String,
    },
    /// Move everything off a bookie, so that it can be taken away for good
    #[command(after_help = "\
It takes no new ledgers from now on, and its copies are made anew on others. When no ledger names it any more it is retired: its disk
never serves again. `hulse bookies describe NAME` tells how far it is; `hulse bookies recommission NAME` ends it halfway.

Examples:
  hulse bookies decommission bookie-3 --dry-run
  hulse bookies decommission bookie-3 --yes --wait")]
    Decommission {
        /// Its name
        name: String,
        /// Stay until it is retired
        #[arg(long)]
        wait: bool,
    },
    /// Let a bookie that drains or is read-only take new ledgers again
    #[command(after_help = "Examples:\n  hulse bookies recommission node-1")]
    Recommission {
        /// Its name
        name: String,
    },
    /// Let a bookie take no new ledgers; it keeps and serves what it has
    #[command(
        name = "read-only",
        after_help = "Examples:\n  hulse bookies read-only bookie-3 --dry-run"
    )]
    ReadOnly {
        /// Its name
        name: String,
    },
    /// Say that a bookie's disk is gone for good, so that its copies are made anew at once
    #[command(after_help = "Examples:\n  hulse bookies lost bookie-3 --dry-run")]
    Lost {
        /// Its name; it must not run
        name: String,
    },
}
