//! `hulse config`: what a node would start with.

use crate::arguments::{ConfigCommand, Globals, Role};
use crate::config::{Config, Defaults, Loaded, Sources, load, reference, show, show_json};
use crate::failure::{Failure, Stop};
use crate::output::{Output, Shape, yaml};

/// Runs it.
///
/// # Errors
/// The configuration has faults, or the output is closed.
pub(crate) fn run(command: &ConfigCommand, globals: &Globals, output: Output) -> Result<(), Stop> {
    match command {
        ConfigCommand::Default => output.text(&reference()),
        ConfigCommand::Show { origin, role } => {
            let defaults = match role {
                Role::Standalone => Defaults::Standalone,
                Role::Broker | Role::Bookie => Defaults::Cluster,
            };
            let loaded = with_flags(globals, Vec::new(), defaults)?;
            match output.shape {
                Shape::Table | Shape::Wide | Shape::Help => output.text(&show(&loaded, *origin)),
                Shape::Json => output.text(&format!("{:#}\n", show_json(&loaded))),
                Shape::Jsonl => output.text(&format!("{}\n", show_json(&loaded))),
                Shape::Yaml => output.text(&yaml(&show_json(&loaded))),
                Shape::Name => {
                    let values = show_json(&loaded);
                    let names = values.as_object().into_iter().flat_map(|keys| keys.keys());
                    output.text(&names.map(|name| format!("{name}\n")).collect::<String>())
                }
            }
        }
        ConfigCommand::Check { role } => {
            let none = Vec::new();
            match role {
                Role::Standalone => for_standalone(globals, none, |_| Ok(1))?.0,
                Role::Broker => for_broker(globals, none)?,
                Role::Bookie => for_bookie(globals, none)?,
            };
            output.say("the configuration is valid");
            Ok(())
        }
    }
}

/// The configuration of this process: file, environment, and these flags as (key, flag, text), over the defaults of its kind.
///
/// # Errors
/// Every fault at once.
pub(crate) fn with_flags(
    globals: &Globals,
    flags: Vec<(&'static str, &'static str, String)>,
    defaults: Defaults,
) -> Result<Loaded, Failure> {
    let sources = Sources {
        file: globals.config.clone(),
        variables: std::env::vars_os()
            .filter_map(|(name, text)| {
                Some((
                    name.into_string().ok()?,
                    text.to_string_lossy().into_owned(),
                ))
            })
            .collect(),
        flags,
        defaults,
    };
    Ok(load(sources)?)
}

/// As [`with_flags`], for a standalone server, of as many bookies as `bookies` answers once it is known where the data are.
///
/// # Errors
/// Also what one process alone cannot do.
pub(crate) fn for_standalone(
    globals: &Globals,
    flags: Vec<(&'static str, &'static str, String)>,
    bookies: impl FnOnce(&Config) -> Result<u32, Failure>,
) -> Result<(Loaded, u32), Failure> {
    let looked = with_flags(globals, flags.clone(), Defaults::Standalone)?;
    let bookies = bookies(&looked.config)?;
    let loaded = with_flags(globals, flags, Defaults::Folded(bookies))?;
    loaded.check_standalone(bookies).map_err(|faults| {
        let next = match bookies {
            1 => {
                "set each key of broker.replication to 1, or leave it out; --bookies 3 starts more"
            }
            _ => "lower the keys of broker.replication, or leave them out; --bookies starts more",
        };
        Failure::from(faults).next(next)
    })?;
    Ok((loaded, bookies))
}

/// As [`with_flags`], for a broker of a cluster.
///
/// # Errors
/// Also what it cannot be without.
pub(crate) fn for_broker(
    globals: &Globals,
    flags: Vec<(&'static str, &'static str, String)>,
) -> Result<Loaded, Failure> {
    let loaded = with_flags(globals, flags, Defaults::Cluster)?;
    loaded.check_in_cluster()?;
    Ok(loaded)
}

/// As [`with_flags`], for a bookie of a cluster.
///
/// # Errors
/// Also what it cannot be without.
pub(crate) fn for_bookie(
    globals: &Globals,
    flags: Vec<(&'static str, &'static str, String)>,
) -> Result<Loaded, Failure> {
    let loaded = with_flags(globals, flags, Defaults::Cluster)?;
    loaded.check_bookie()?;
    Ok(loaded)
}
