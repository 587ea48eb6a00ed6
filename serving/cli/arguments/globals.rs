//! What every command understands: the globals of operations.md B.

use std::fmt;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

use crate::commands::profile::Chosen;
use crate::config::Period;
use crate::output::Shape;

/// Names the server where no flag does.
pub(crate) const SERVER_VARIABLE: &str = "HULSE_SERVER";
/// Time-out of a request where nobody names one.
const TIMEOUT: &str = "30s";

/// What every command understands.
#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// Profile with the server to talk to (`hulse profile list`)
    #[arg(
        long,
        global = true,
        env = "HULSE_PROFILE",
        value_name = "NAME",
        help_heading = "Globals"
    )]
    pub(crate) profile: Option<String>,
    /// Server to talk to
    #[arg(
        long,
        global = true,
        env = SERVER_VARIABLE,
        default_value = "127.0.0.1:7400",
        value_name = "HOST:PORT",
        help_heading = "Globals"
    )]
    pub(crate) server: String,
    /// Who named the server.
    #[arg(skip)]
    pub(crate) server_from: ServerFrom,
    /// Configuration file (default: ./hulse.toml if it exists; conf.d/*.toml beside it is read too)
    #[arg(
        long,
        global = true,
        env = "HULSE_CONFIG",
        value_name = "FILE",
        help_heading = "Globals"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Form of data on standard output
    #[arg(
        long,
        global = true,
        env = "HULSE_OUTPUT",
        value_enum,
        default_value = "table",
        value_name = "FORMAT",
        hide_possible_values = true,
        help = "Form of data on standard output: table, wide, json, jsonl, yaml, name; help lists the fields",
        help_heading = "Globals"
    )]
    pub(crate) output: Shape,
    /// Somebody named it.
    #[arg(skip)]
    pub(crate) output_named: bool,
    /// Same as --output json
    #[arg(short = 'j', global = true, help_heading = "Globals")]
    pub(crate) json: bool,
    /// Give up a request, or a record that is not stored, after this long
    #[arg(
        long,
        global = true,
        env = "HULSE_TIMEOUT",
        default_value = TIMEOUT,
        value_name = "DURATION",
        help_heading = "Globals"
    )]
    pub(crate) timeout: Period,
    /// Do not ask before destroying something
    #[arg(long, global = true, help_heading = "Globals")]
    pub(crate) yes: bool,
    /// Say what would be done, and do nothing
    #[arg(long, global = true, help_heading = "Globals")]
    pub(crate) dry_run: bool,
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

/// Who named the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum ServerFrom {
    /// Nobody.
    #[default]
    Default,
    /// `--server`.
    Flag,
    /// The environment.
    Variable,
    /// The profile of this name.
    Profile(String),
}

impl fmt::Display for ServerFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::Flag => f.write_str("of --server"),
            Self::Variable => write!(f, "of {SERVER_VARIABLE}"),
            Self::Profile(name) => write!(f, "of profile {name}"),
        }
    }
}

impl Globals {
    /// Looks who named the server and the output; a profile that names a server is settled later.
    pub(crate) fn note_sources(&mut self, matches: &ArgMatches) {
        let output = matches.value_source("output");
        self.output_named = output.is_some_and(|source| source != ValueSource::DefaultValue);
        self.server_from = match matches.value_source("server") {
            Some(ValueSource::CommandLine) => ServerFrom::Flag,
            Some(ValueSource::EnvVariable) => ServerFrom::Variable,
            _ => ServerFrom::Default,
        };
    }

    /// The server is named where it goes before any profile, and no profile is.
    pub(crate) fn does_without_a_profile(&self) -> bool {
        let named = matches!(self.server_from, ServerFrom::Flag | ServerFrom::Variable);
        named && self.profile.is_none()
    }

    /// The shape of data.
    pub(crate) fn shape(&self) -> Shape {
        if self.json { Shape::Json } else { self.output }
    }

    /// Nobody named a time-out.
    pub(crate) fn timeout_is_default(&self) -> bool {
        self.timeout.to_string() == TIMEOUT
    }

    /// Takes from a profile what nothing before it said: a flag, and the environment, unless a flag names the profile.
    pub(crate) fn settle(&mut self, matches: &ArgMatches, chosen: &Chosen) {
        let named = matches.value_source("profile") == Some(ValueSource::CommandLine);
        let is_default = |id| match matches.value_source(id) {
            Some(ValueSource::DefaultValue) => true,
            Some(ValueSource::EnvVariable) => named,
            _ => false,
        };
        if let Some(server) = chosen
            .profile
            .server
            .as_ref()
            .filter(|_| is_default("server"))
        {
            self.server.clone_from(server);
            self.server_from = ServerFrom::Profile(chosen.name.clone());
        }
        if let Some(timeout) = chosen.profile.timeout.filter(|_| is_default("timeout")) {
            self.timeout = timeout;
        }
    }
}
