//! `hulse ledgers`.

use clap::Subcommand;

/// `hulse ledgers`
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  hulse ledgers list orders\n  hulse ledgers accept-loss 17 --dry-run"
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
        after_help = "Examples:\n  hulse ledgers accept-loss 17 --dry-run\n  hulse ledgers accept-loss 17 --up-to 4096 --yes"
    )]
    AcceptLoss {
        /// Number of the ledger
        ledger: u64,
        /// Give up everything from this entry on, also what can be read, instead of only what cannot
        #[arg(long, value_name = "ENTRY")]
        up_to: Option<u64>,
    },
}
