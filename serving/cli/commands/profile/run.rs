//! `hulse profile`: create, use, list, show, edit, delete, prompt.

use std::path::Path;
use std::process::Command;

use serde::Serialize;

use super::store::{
    Profile, Profiles, is_name, missing, parse, path_or_failure, read, write, write_text,
};
use crate::arguments::{Globals, ProfileCommand, SERVER_VARIABLE};
use crate::commands::session::{Session, check_address};
use crate::failure::{Code, Failure, Stop};
use crate::output::{Field, Table, View};

/// A profile as it is shown.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProfileView {
    name: String,
    current: bool,
    server: Option<String>,
    timeout: Option<String>,
}

impl View for ProfileView {
    const FIELDS: &'static [Field] = &[
        Field::text("name", "its name"),
        Field::boolean("current", "it is in force"),
        Field::text("server", "host:port of its servers").or_null(),
        Field::text("timeout", "of a request").or_null(),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["PROFILE", "CURRENT", "SERVER", "TIMEOUT"]);
        for row in rows {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            table.row(vec![
                row.name.clone(),
                if row.current { "*" } else { "" }.to_owned(),
                or_dash(&row.server),
                or_dash(&row.timeout),
            ]);
        }
        table.render()
    }
}

/// What a shell's prompt shows.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PromptView {
    profile: Option<String>,
}

impl View for PromptView {
    const FIELDS: &'static [Field] = &[Field::text("profile", "in force; null: none").or_null()];

    fn name(&self) -> String {
        self.profile.clone().unwrap_or_default()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let shown = rows.iter().filter_map(|row| row.profile.as_ref());
        shown.map(|name| format!("(hulse:{name}) ")).collect()
    }
}

/// Runs it.
///
/// # Errors
/// There is no such profile, or the file cannot be read or written.
pub(crate) fn run(session: Session<'_>, command: &ProfileCommand) -> Result<(), Stop> {
    let path = path_or_failure()?;
    let mut profiles = match command {
        // Also a file that cannot be understood is edited: this is how it is corrected.
        ProfileCommand::Edit => Profiles::default(),
        _ => read(&path)?,
    };
    match command {
        ProfileCommand::Create { name } => create(session, &path, profiles, name),
        ProfileCommand::Use { name } => switch(session, &path, profiles, name),
        ProfileCommand::List => {
            let names: Vec<String> = profiles.profile.keys().cloned().collect();
            let views: Vec<ProfileView> = names
                .iter()
                .filter_map(|name| profiles.view(name))
                .collect();
            session.output.list(&views)
        }
        ProfileCommand::Show { name } => {
            let named = name.as_deref().or(session.globals.profile.as_deref());
            let name = named
                .map(str::to_owned)
                .or_else(|| profiles.current.clone());
            let name = name.ok_or_else(|| {
                Failure::new(Code::ProfileMissing, "no profile is in force")
                    .why("none is current and none was named")
                    .object(path.display())
                    .next("hulse profile list; hulse profile use NAME")
            })?;
            session.output.one(&profiles.found(&name)?)
        }
        ProfileCommand::Edit => edit(session, &path),
        ProfileCommand::Delete { name } => {
            let view = profiles.found(name)?;
            profiles.profile.remove(name);
            for slot in [&mut profiles.current, &mut profiles.previous] {
                if slot.as_ref() == Some(name) {
                    *slot = None;
                }
            }
            write(&path, &profiles)?;
            let words = match &profiles.current {
                Some(current) => format!("deleted {name}; {current} is in force"),
                None => format!("deleted {name}; no profile is in force now"),
            };
            session.output.done(&view, &words)
        }
        ProfileCommand::Prompt => {
            let named = session.globals.profile.clone().or(profiles.current);
            session.output.one(&PromptView { profile: named })
        }
    }
}

fn create(
    session: Session<'_>,
    path: &Path,
    mut profiles: Profiles,
    name: &str,
) -> Result<(), Stop> {
    if !is_name(name) {
        return Err(Failure::new(Code::Usage, "this is no name of a profile")
            .why("a name has letters, digits, - and _ only, at most 64")
            .object(name)
            .next("hulse profile create local")
            .into());
    }
    if profiles.profile.contains_key(name) {
        return Err(
            Failure::new(Code::ProfileExists, "there is such a profile already")
                .why("a profile is not overwritten")
                .object(name)
                .next("hulse profile edit changes it, hulse profile delete removes it")
                .into(),
        );
    }
    let globals = session.globals;
    check_address(globals)?;
    let profile = Profile {
        server: Some(globals.server.clone()),
        timeout: (!globals.timeout_is_default()).then_some(globals.timeout),
    };
    profiles.profile.insert(name.to_owned(), profile);
    profiles.switch_to(name);
    write(path, &profiles)?;
    let view = profiles.found(name)?;
    let words = format!(
        "created {name} for {}; {}",
        globals.server,
        in_force(globals, name)
    );
    session.output.done(&view, &words)
}

/// What a profile that was switched to is worth: the environment goes before it.
fn in_force(globals: &Globals, name: &str) -> String {
    let set = |variable| std::env::var(variable).ok().filter(|text| !text.is_empty());
    if let Some(server) = set(SERVER_VARIABLE) {
        return format!(
            "{SERVER_VARIABLE}={server} goes before it: it is in force after `unset {SERVER_VARIABLE}`, or with --profile {name}"
        );
    }
    match globals.profile.as_deref().filter(|named| *named != name) {
        Some(named) => format!(
            "profile {named} goes before it, which --profile or HULSE_PROFILE names; it is in force where they do not"
        ),
        None => "it is in force now".to_owned(),
    }
}

fn switch(
    session: Session<'_>,
    path: &Path,
    mut profiles: Profiles,
    name: &str,
) -> Result<(), Stop> {
    let name = match (name, profiles.previous.clone(), profiles.current.clone()) {
        ("-", Some(previous), _) => previous,
        ("-", None, Some(current)) => return leave(session, path, profiles, &current),
        ("-", None, None) => {
            let failure = Failure::new(Code::ProfileMissing, "there is no profile before this one")
                .why("no profile was in force")
                .object(path.display())
                .next("hulse profile list");
            return Err(failure.into());
        }
        (name, ..) => name.to_owned(),
    };
    profiles.found(&name)?;
    profiles.switch_to(&name);
    write(path, &profiles)?;
    let view = profiles.found(&name)?;
    let words = format!("switched to {name}; {}", in_force(session.globals, &name));
    session.output.done(&view, &words)
}

/// Back to what was before the first profile: none. The same again comes back to it.
fn leave(
    session: Session<'_>,
    path: &Path,
    mut profiles: Profiles,
    name: &str,
) -> Result<(), Stop> {
    profiles.previous = profiles.current.take();
    write(path, &profiles)?;
    let view = profiles.found(name)?;
    let words = format!("left {name}; no profile is in force now");
    session.output.done(&view, &words)
}

/// Lets the user's editor work on a copy, which replaces the file only when it can be understood.
fn edit(session: Session<'_>, path: &Path) -> Result<(), Stop> {
    let variable = |name| {
        std::env::var(name)
            .ok()
            .filter(|text| !text.trim().is_empty())
    };
    let editor = variable("VISUAL").or_else(|| variable("EDITOR"));
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| Profiles::default().text());
    let copy = path.with_extension("edit.toml");
    write_text(&copy, &text)?;
    let failed = |why: String| {
        Failure::new(Code::File, "the profiles were not edited")
            .why(why)
            .object(copy.display())
            .next("set EDITOR to an editor; what it wrote is in this file")
    };
    // An editor may come with arguments of its own.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program).args(words).arg(&copy).status();
    match status {
        Err(error) => return Err(failed(format!("{editor}: {error}")).into()),
        Ok(status) if !status.success() => return Err(failed(format!("{editor}: {status}")).into()),
        Ok(_) => {}
    }
    let edited = std::fs::read_to_string(&copy).map_err(|error| failed(error.to_string()))?;
    let profiles = parse(&edited).map_err(failed)?;
    write_text(path, &edited)?;
    // A copy that stays behind does no harm.
    let _ = std::fs::remove_file(&copy);
    let names: Vec<String> = profiles.profile.keys().cloned().collect();
    let views: Vec<ProfileView> = names
        .iter()
        .filter_map(|name| profiles.view(name))
        .collect();
    session.output.list(&views)
}

impl Profiles {
    fn view(&self, name: &str) -> Option<ProfileView> {
        let profile = self.profile.get(name)?;
        Some(ProfileView {
            name: name.to_owned(),
            current: self.current.as_deref() == Some(name),
            server: profile.server.clone(),
            timeout: profile.timeout.map(|timeout| timeout.to_string()),
        })
    }

    fn found(&self, name: &str) -> Result<ProfileView, Failure> {
        self.view(name).ok_or_else(|| missing(name, self))
    }

    fn switch_to(&mut self, name: &str) {
        if self.current.as_deref() != Some(name) {
            self.previous = self.current.replace(name.to_owned());
        }
    }
}
