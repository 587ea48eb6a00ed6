//! `hulse profile`.

use clap::Subcommand;

/// `hulse profile`
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A flag, --profile among them, goes before the environment (HULSE_SERVER, HULSE_TIMEOUT), that before the profile in force, that before
the default.
The file is $HULSE_PROFILES, else hulse/profiles.toml in $XDG_CONFIG_HOME or ~/.config.

Examples:
  hulse profile create prod --server 127.0.0.1:7400
  hulse profile list
  hulse --profile local topics list")]
pub(crate) enum ProfileCommand {
    /// Keep a server under a name, and use it from now on
    #[command(
        after_help = "Examples:\n  hulse profile create home --server 127.0.0.1:7400\n  hulse profile create patient --server 127.0.0.1:7400 --timeout 2m"
    )]
    Create {
        /// Letters, digits, - and _
        name: String,
    },
    /// Use this profile from now on; - is what was before: another one, or none
    #[command(after_help = "Examples:\n  hulse profile use local\n  hulse profile use -")]
    Use {
        /// Its name, or -
        #[arg(allow_hyphen_values = true)]
        name: String,
    },
    /// All profiles
    #[command(after_help = "Examples:\n  hulse profile list\n  hulse profile list --output name")]
    List,
    /// One profile, or the one in force
    #[command(after_help = "Examples:\n  hulse profile show\n  hulse profile show local -j")]
    Show {
        /// Its name
        name: Option<String>,
    },
    /// Open the file of profiles in $VISUAL or $EDITOR
    #[command(after_help = "Examples:\n  EDITOR=true hulse profile edit")]
    Edit,
    /// Forget a profile
    #[command(after_help = "Examples:\n  hulse profile delete slow")]
    Delete {
        /// Its name
        name: String,
    },
    /// What a shell's prompt may show
    #[command(
        after_help = "For bash: PS1='$(hulse profile prompt)\\$ '\n\nExamples:\n  hulse profile prompt"
    )]
    Prompt,
}
