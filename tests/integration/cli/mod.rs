//! The command line as a user meets it: every example of every page of help, every form of output, exit codes, long commands that are
//! cut short.

mod addresses;
mod bench;
mod completing;
mod copying;
mod examining;
mod examples;
mod help;
mod newcomers;
mod outages;
mod outputs;
mod profiles;
mod records;
mod sharing;
mod surprises;
mod verifying;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::server::{HULSE, Server};

/// The tests here have the ports from this one on, ten each.
const PORT: u16 = 17_700;

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed; its standard output.
pub(super) fn done(server: &Server, arguments: &[&str], input: &str) -> String {
    let output = server.hulse(arguments, input);
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{}",
        output.status,
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs a command that must succeed, and reads its JSON.
pub(super) fn json(server: &Server, arguments: &[&str]) -> Value {
    let told = done(server, &[arguments, &["-j"]].concat(), "");
    serde_json::from_str(&told).unwrap_or_else(|error| panic!("{arguments:?}: {error}\n{told}"))
}

/// A command without a server, in a folder of its own, with nothing of the user's environment.
fn alone(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(HULSE)
        .args(arguments)
        .current_dir(folder)
        .env("HULSE_PROFILES", folder.join("profiles.toml"))
        .env_remove("HULSE_SERVER")
        .env_remove("HULSE_PROFILE")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary can be started")
}
