//! Commands that look whether all is well: `verify`, `doctor`; and `completions`.

use clap::{Args, ValueEnum};

/// `hulse verify`
#[derive(Debug, Args)]
#[command(after_help = "\
A data directory of a node that is stopped is read from end to end: every file, group, record and checksum. Nothing is written.
A topic is read from its start: every offset must be there, and where records carry numbers (`hulse produce --number`, or the
interceptor of the SDK) each missing, doubled or displaced one is named with its producer, partition and neighbours.

Exit codes: 0 all is there, 7 something is damaged or missing.

Examples:
  seq 100 | hulse produce numbered --number && hulse verify numbered
  hulse verify ./hulse-data")]
pub(crate) struct Verify {
    /// Data directory of a stopped node, or a topic of a running one
    #[arg(value_name = "DATA-DIR|TOPIC")]
    pub(crate) target: String,
    /// It is a topic, whatever directories there are
    #[arg(long)]
    pub(crate) topic: bool,
}

/// `hulse doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Looks whether the server is reached, how its disk is, whether every partition opens, what is known to be damaged and what nobody has
checked since the start, what subscriptions keep and have lost, whether clocks agree.
Each finding has a code, a reason and a next command.

Exit codes: 0 nothing or notes only, 1 problems, 7 damaged data, 6 no server, or nothing at the address of --http.

Examples:
  hulse doctor
  hulse doctor -j")]
pub(crate) struct Doctor {
    /// Address of the server's metrics and health [default: the server's host, its port + 80]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) http: Option<String>,
}

/// `hulse completions`
#[derive(Debug, Args)]
#[command(after_help = "\
For bash, in ~/.bashrc:  eval \"$(hulse completions bash)\"
For zsh, in ~/.zshrc:    eval \"$(hulse completions zsh)\"
Names of topics and subscriptions are asked as you type, for at most a second, of the server that the line names, or the profile
in force; a topic of public/default is completed by its short name. Names of profiles are completed too.

Examples:
  hulse completions bash
  hulse completions fish > hulse.fish")]
pub(crate) struct Completions {
    /// Your shell
    pub(crate) shell: Shell,
    /// Names that could end this line, instead of the script: what the script asks
    #[arg(last = true, hide = true)]
    pub(crate) line: Vec<String>,
}

/// Shells that can complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// bash 4 or newer
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
}
