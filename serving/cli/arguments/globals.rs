//! What every command understands: the globals of operations.md B.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};

use crate::commands::profile::Chosen;
use crate::config::Period;
use crate::output::Shape;

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
        env = "HULSE_SERVER",
        default_value = "127.0.0.1:7400",
        value_name = "HOST:PORT",
        help_heading = "Globals"
    )]
    pub(crate) server: String,
    /// The profile that named the server, when one did.
    #[arg(skip)]
    pub(crate) server_of: Option<String>,
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

impl Globals {
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
            self.server_of = Some(chosen.name.clone());
        }
        if let Some(timeout) = chosen.profile.timeout.filter(|_| is_default("timeout")) {
            self.timeout = timeout;
        }
    }
}
