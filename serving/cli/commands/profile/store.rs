//! The file of profiles: read whole, written whole, replaced by a rename.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Format as _, Toml};
use serde::Deserialize;

use crate::config::Period;
use crate::failure::{Code, Failure};

/// Names the file, for tests and for those who keep several.
const VARIABLE: &str = "HULSE_PROFILES";
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest name.
const NAME_BYTES_MAX: usize = 64;

/// One profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    /// `host:port`, several with commas.
    pub(crate) server: Option<String>,
    /// As `--timeout`.
    pub(crate) timeout: Option<Period>,
}

/// Every profile, and which is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profiles {
    /// In force where neither `--profile` nor HULSE_PROFILE names one.
    pub(crate) current: Option<String>,
    /// The one before, for `profile use -`.
    pub(crate) previous: Option<String>,
    /// By name.
    #[serde(default)]
    pub(crate) profile: BTreeMap<String, Profile>,
}

/// A profile with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Its name.
    pub(crate) name: String,
    /// What it says.
    pub(crate) profile: Profile,
}

/// The profile in force: `named`, else the current one, else none.
///
/// # Errors
/// There is none of that name, or the file cannot be understood.
pub(crate) fn in_force(named: Option<&str>) -> Result<Option<Chosen>, Failure> {
    let Some(path) = path() else {
        return match named {
            None => Ok(None),
            Some(name) => Err(missing(name, &Profiles::default())),
        };
    };
    read(&path)?.chosen(named)
}

/// Names of profiles; none where they cannot be read.
pub(crate) fn names() -> Vec<String> {
    let profiles = path().and_then(|path| read(&path).ok());
    profiles.map_or_else(Vec::new, |profiles| profiles.profile.into_keys().collect())
}

/// Where the profiles are; `None` where the user has no home.
pub(crate) fn path() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable(VARIABLE) {
        return Some(path.into());
    }
    let folder = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(folder.join("hulse").join("profiles.toml"))
}

/// As [`path`], for a command that cannot do without.
///
/// # Errors
/// The user has no home.
pub(crate) fn path_or_failure() -> Result<PathBuf, Failure> {
    path().ok_or_else(|| {
        Failure::new(Code::File, "there is no place for profiles")
            .why("neither HULSE_PROFILES nor XDG_CONFIG_HOME nor HOME is set")
            .object("the environment")
            .next("set HULSE_PROFILES to a file")
    })
}

/// Reads the file; a missing one has no profiles.
///
/// # Errors
/// It cannot be read or understood.
pub(crate) fn read(path: &Path) -> Result<Profiles, Failure> {
    let text = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Profiles::default());
        }
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
            return Err(wrong(path, "it is longer than 1 MiB"));
        }
        _ => std::fs::read_to_string(path).map_err(|error| cannot("read", path, &error))?,
    };
    parse(&text).map_err(|why| wrong(path, &why))
}

/// Understands the text of the file.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(text: &str) -> Result<Profiles, String> {
    let profiles: Result<Profiles, _> = Figment::from(Toml::string(text)).extract();
    let profiles = profiles.map_err(|error| error.to_string())?;
    match profiles.profile.keys().find(|name| !is_name(name)) {
        Some(name) => Err(format!("{name:?} is no name of a profile")),
        None => Ok(profiles),
    }
}

/// Writes the file: a new one beside it, then the rename.
///
/// # Errors
/// It cannot be written; the old one stays.
pub(crate) fn write(path: &Path, profiles: &Profiles) -> Result<(), Failure> {
    write_text(path, &profiles.text())
}

/// As [`write()`], of text that was checked.
///
/// # Errors
/// Likewise.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("toml.new");
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&new, text))
        .and_then(|()| std::fs::rename(&new, path))
        .map_err(|error| cannot("write", path, &error))
}

/// True for what can be a name: it stands bare in the file and in the shell.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
}

impl Profiles {
    /// The named profile, else the current one, else none.
    ///
    /// # Errors
    /// There is none of that name.
    pub(crate) fn chosen(self, named: Option<&str>) -> Result<Option<Chosen>, Failure> {
        let Some(name) = named.map(str::to_owned).or_else(|| self.current.clone()) else {
            return Ok(None);
        };
        match self.profile.get(&name) {
            None => Err(missing(&name, &self)),
            Some(profile) => Ok(Some(Chosen {
                profile: profile.clone(),
                name,
            })),
        }
    }

    /// As the file has it.
    pub(crate) fn text(&self) -> String {
        // JSON's strings are TOML's basic strings.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut out = String::from("# Profiles of the hulse command line.\n");
        for (key, name) in [("current", &self.current), ("previous", &self.previous)] {
            if let Some(name) = name {
                out.push_str(&format!("{key} = {}\n", quoted(name)));
            }
        }
        for (name, profile) in &self.profile {
            out.push_str(&format!("\n[profile.{name}]\n"));
            if let Some(server) = &profile.server {
                out.push_str(&format!("server = {}\n", quoted(server)));
            }
            if let Some(timeout) = profile.timeout {
                out.push_str(&format!("timeout = \"{timeout}\"\n"));
            }
        }
        out
    }
}

/// There is no profile of this name.
pub(crate) fn missing(name: &str, profiles: &Profiles) -> Failure {
    let names: Vec<&str> = profiles.profile.keys().map(String::as_str).collect();
    let why = match names.is_empty() {
        true => "there are no profiles yet".to_owned(),
        false => format!("there are: {}", names.join(", ")),
    };
    Failure::new(Code::ProfileMissing, "there is no such profile")
        .why(why)
        .object(name)
        .next("hulse profile list; hulse profile create NAME --server HOST:PORT")
}

fn wrong(path: &Path, why: &str) -> Failure {
    Failure::new(Code::Config, "the profiles cannot be understood")
        .why(why)
        .object(path.display())
        .next("hulse profile edit corrects the file; a command that names --server HOST:PORT needs none")
}

fn cannot(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::File, format!("cannot {doing} the profiles"))
        .why(error)
        .object(path.display())
        .next("set HULSE_PROFILES to another file")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Profiles {
        let profile = |server: &str| Profile {
            server: Some(server.to_owned()),
            timeout: Some("5s".parse().unwrap()),
        };
        Profiles {
            current: Some("prod".to_owned()),
            previous: None,
            profile: BTreeMap::from([
                ("local".to_owned(), Profile::default()),
                ("prod".to_owned(), profile("a:7400,\"b\":7400")),
            ]),
        }
    }

    #[test]
    fn file_is_read_back_as_it_was_written() {
        assert_eq!(parse(&two().text()), Ok(two()));
        assert_eq!(parse(""), Ok(Profiles::default()));
    }

    #[test]
    fn file_with_an_unknown_key_or_name_is_refused() {
        for text in [
            "curent = \"a\"",
            "[profile.a]\nserve = \"x\"",
            "[profile.a]\ntimeout = 5",
            "[profile.\"a b\"]\n",
            "not toml",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn named_profile_goes_before_the_current_one() {
        let name = |named| two().chosen(named).unwrap().unwrap().name;
        assert_eq!(
            (name(None), name(Some("local"))),
            ("prod".into(), "local".into())
        );
        let told = two().chosen(Some("staging")).unwrap_err();
        assert_eq!(told.exit() as i32, 3);
        assert!(told.to_string().contains("local, prod"), "{told}");
        assert_eq!(Profiles::default().chosen(None).unwrap(), None);
    }
}
