//! The layers: reads each one, judges it alone so that a fault names its place, then merges them.

use std::path::{Path, PathBuf};

use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::{Deserialize, Deserializer};

use super::faults::{ConfigFault, ConfigFaults, Place};
use super::keys::{self, KEYS};
use super::model::Config;

/// File that is read when no other is named and this one exists.
const FILE: &str = "hulse.toml";
/// Directory beside the file; its `*.toml` are read in order of their names.
const DIRECTORY: &str = "conf.d";
/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Prefix of variables that are keys.
const PREFIX: &str = "HULSE_";
/// Variables with the prefix that are not keys: the globals of the command line, and what the tests of Hulse use.
const OTHER_VARIABLES: [&str; 8] = [
    "HULSE_SERVER",
    "HULSE_CONFIG",
    "HULSE_PROFILE",
    "HULSE_PROFILES",
    "HULSE_OUTPUT",
    "HULSE_TIMEOUT",
    "HULSE_LONG",
    "HULSE_SEED",
];
/// Prefixes of the variables of tests and measurements.
const TEST_PREFIXES: [&str; 3] = ["HULSE_TEST_", "HULSE_FUZZ_", "HULSE_BENCH_"];

/// For what kind of server a configuration is: how many copies it keeps unless told otherwise (ARCHITECTURE D4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Defaults {
    /// One bookie, in the process of its broker.
    #[default]
    Standalone,
    /// So many bookies in one process.
    Folded(u32),
    /// A node of a cluster.
    Cluster,
}

impl Defaults {
    /// Values that differ from those of [`Config::default`].
    fn values(self) -> Vec<(&'static str, u32)> {
        let (copies, ack) = match self {
            Self::Standalone | Self::Folded(0 | 1) => return Vec::new(),
            Self::Folded(bookies) => (bookies.min(3), bookies.min(3) / 2 + 1),
            Self::Cluster => (3, 2),
        };
        vec![
            ("broker.replication.ensemble", copies),
            ("broker.replication.write_quorum", copies),
            ("broker.replication.ack_quorum", ack),
        ]
    }
}

/// Where a configuration comes from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Named by the user: must exist. `None`: `hulse.toml` of the working directory, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The environment.
    pub(crate) variables: Vec<(String, String)>,
    /// Flags as (key, flag, text).
    pub(crate) flags: Vec<(&'static str, &'static str, String)>,
    /// Some defaults depend on what kind of server it is for.
    pub(crate) defaults: Defaults,
}

/// A configuration and the place of each value.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Valid.
    pub(crate) config: Config,
    layers: Vec<Layer>,
}

/// One source of values.
#[derive(Debug)]
struct Layer {
    /// Line of the place is filled in per key.
    place: Place,
    values: Dict,
    text: String,
}

impl Layer {
    /// The place of one key.
    fn place_of(&self, path: &str) -> Place {
        match &self.place {
            Place::File(file, _) => Place::File(file.clone(), line_of(&self.text, path)),
            other => other.clone(),
        }
    }

    fn fault(&self, path: &str, why: String, nearest: Option<String>) -> ConfigFault {
        ConfigFault {
            place: self.place_of(path),
            name: path.to_owned(),
            why,
            nearest,
        }
    }
}

impl Provider for &Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.place.to_string())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

impl Loaded {
    /// Where the value of this key comes from.
    pub(crate) fn origin(&self, path: &str) -> Place {
        self.layers
            .iter()
            .rev()
            .find(|layer| value_at(&layer.values, path).is_some())
            .map_or(Place::Default, |layer| layer.place_of(path))
    }

    /// Judges whether a standalone server of so many bookies can be what is asked.
    ///
    /// # Errors
    /// Every value it cannot meet, each with its place.
    pub(crate) fn check_standalone(&self, bookies: u32) -> Result<(), ConfigFaults> {
        self.refuse(self.config.validate_standalone(bookies))
    }

    /// Judges whether a broker of a cluster can be what is asked.
    ///
    /// # Errors
    /// As [`Loaded::check_standalone`].
    pub(crate) fn check_in_cluster(&self) -> Result<(), ConfigFaults> {
        self.refuse(self.config.validate_in_cluster())
    }

    /// Judges whether a bookie of a cluster can be what is asked.
    ///
    /// # Errors
    /// As [`Loaded::check_standalone`].
    pub(crate) fn check_bookie(&self) -> Result<(), ConfigFaults> {
        self.refuse(self.config.validate_bookie())
    }

    /// Places each fault of the merged values; fine when there is none.
    fn refuse(&self, faults: Vec<(&'static str, String)>) -> Result<(), ConfigFaults> {
        if faults.is_empty() {
            return Ok(());
        }
        let placed = faults.into_iter().map(|(path, why)| ConfigFault {
            place: self.origin(path),
            name: path.to_owned(),
            why,
            nearest: None,
        });
        Err(ConfigFaults(placed.collect()))
    }
}

/// Reads every layer and answers the merged configuration.
///
/// # Errors
/// Every fault of every layer, at once.
pub(crate) fn load(sources: Sources) -> Result<Loaded, ConfigFaults> {
    let mut faults = Vec::new();
    let mut layers = Vec::new();
    let others = sources.defaults.values().into_iter();
    layers.extend(others.map(|(path, value)| single(Place::Cluster, path, value.into())));
    for file in files(sources.file, &mut faults) {
        match read(&file) {
            Ok(layer) => layers.push(layer),
            Err(fault) => faults.push(fault),
        }
    }
    for (name, text) in sources.variables {
        layers.extend(from_variable(&name, &text, &mut faults));
    }
    for (path, flag, text) in sources.flags {
        let key = keys::find(path).expect("flags name keys of the table");
        layers.push(single(
            Place::Flag(flag.to_owned()),
            path,
            key.kind.value(&text),
        ));
    }
    for layer in &layers {
        judge(layer, &mut faults);
    }
    if !faults.is_empty() {
        return Err(ConfigFaults(faults));
    }
    merge(layers)
}

/// The merged values, judged together.
fn merge(layers: Vec<Layer>) -> Result<Loaded, ConfigFaults> {
    let merged = layers.iter().fold(defaults(), Figment::merge);
    let config: Config = merged.extract().map_err(|error| {
        ConfigFaults(vec![ConfigFault {
            place: Place::Default,
            name: error.path.join("."),
            why: error.kind.to_string(),
            nearest: None,
        }])
    })?;
    let loaded = Loaded { config, layers };
    loaded.refuse(loaded.config.validate())?;
    Ok(loaded)
}

fn defaults() -> Figment {
    Figment::from(Serialized::defaults(Config::default()))
}

/// The files to read, in order of precedence.
fn files(named: Option<PathBuf>, faults: &mut Vec<ConfigFault>) -> Vec<PathBuf> {
    let file = match named {
        Some(file) => file,
        None if Path::new(FILE).exists() => FILE.into(),
        None => return Vec::new(),
    };
    let directory = file.parent().unwrap_or(Path::new("")).join(DIRECTORY);
    let mut more = Vec::new();
    match std::fs::read_dir(&directory) {
        Ok(entries) => {
            more.extend(
                entries
                    .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                    .filter(|path| {
                        path.extension()
                            .is_some_and(|extension| extension == "toml")
                    }),
            );
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => faults.push(of_file(directory, None, error.to_string())),
    }
    more.sort();
    more.insert(0, file);
    more
}

fn of_file(path: PathBuf, line: Option<usize>, why: String) -> ConfigFault {
    ConfigFault {
        place: Place::File(path, line),
        name: String::new(),
        why,
        nearest: None,
    }
}

fn read(path: &Path) -> Result<Layer, ConfigFault> {
    let fault = |why: String| of_file(path.to_owned(), None, why);
    let bytes = std::fs::metadata(path)
        .map_err(|error| fault(error.to_string()))?
        .len();
    if bytes > FILE_BYTES_MAX {
        return Err(fault(format!(
            "{bytes} bytes are too many for a configuration"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
    let mut tables = Toml::string(&text).data().map_err(|error| {
        let words = error.to_string();
        let words: Vec<&str> = words
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        fault(format!("is not TOML: {}", words.join(" ")))
    })?;
    Ok(Layer {
        place: Place::File(path.to_owned(), None),
        values: tables.remove(&Profile::Default).unwrap_or_default(),
        text,
    })
}

fn single(place: Place, path: &str, value: Value) -> Layer {
    let values = figment::util::nest(path, value)
        .into_dict()
        .unwrap_or_default();
    Layer {
        place,
        values,
        text: String::new(),
    }
}

fn from_variable(name: &str, text: &str, faults: &mut Vec<ConfigFault>) -> Option<Layer> {
    if !name.starts_with(PREFIX)
        || TEST_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || OTHER_VARIABLES.contains(&name)
        || is_service_link(name, text)
    {
        return None;
    }
    let place = Place::Variable(name.to_owned());
    let Some(key) = KEYS.iter().find(|key| keys::variable(key.path) == name) else {
        let known = KEYS.iter().map(|key| keys::variable(key.path));
        faults.push(ConfigFault {
            place,
            name: String::new(),
            why: "no such key".to_owned(),
            nearest: keys::nearest(name, known),
        });
        return None;
    };
    Some(single(place, key.path, key.kind.value(text)))
}

/// True for what Kubernetes puts into every pod beside a Service whose name begins with "hulse": `HULSE_SERVICE_HOST`, `HULSE_PORT`,
/// `HULSE_PORT_7400_TCP_ADDR` and the like. A key's variable has two underscores between its parts, and none of these does.
fn is_service_link(name: &str, text: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];
    let is_url = || {
        PROTOCOLS
            .iter()
            .any(|one| text.starts_with(&format!("{one}://")))
    };
    let is_port = |rest: &str| {
        let mut words = rest.split('_');
        let number = words.next().is_some_and(|word| word.parse::<u16>().is_ok());
        number
            && words
                .next()
                .is_some_and(|word| PROTOCOLS.contains(&word.to_lowercase().as_str()))
    };
    !name.contains("__")
        && (name.ends_with("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || (name.ends_with("_PORT") && is_url())
            || name
                .split_once("_PORT_")
                .is_some_and(|(_, rest)| is_port(rest)))
}

/// Takes a configuration apart from what serde had no place for.
struct WithIgnored {
    ignored: Vec<String>,
}

impl<'de> Deserialize<'de> for WithIgnored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut ignored = Vec::new();
        let _: Config =
            serde_ignored::deserialize(deserializer, |path| ignored.push(path.to_string()))?;
        Ok(Self { ignored })
    }
}

/// Every fault of one layer.
fn judge(layer: &Layer, faults: &mut Vec<ConfigFault>) {
    let before = faults.len();
    for key in KEYS {
        if let Some(value) = value_at(&layer.values, key.path)
            && let Err(why) = key.kind.check(value)
        {
            faults.push(layer.fault(key.path, why, None));
        }
    }
    let wrong_tables = tables_that_are_none(&layer.values);
    faults.extend(wrong_tables.into_iter().map(|path| {
        let why = format!("is a table; write [{path}] above its keys");
        layer.fault(&path, why, None)
    }));
    if faults.len() > before {
        // A value of the wrong kind ends serde's walk: the unknown keys are then found by the table of keys alone.
        for path in leaves(&layer.values) {
            let known = KEYS
                .iter()
                .any(|key| inside(&path, key.path) || inside(key.path, &path));
            if !known {
                faults.push(unknown(layer, &path));
            }
        }
        return;
    }
    match defaults().merge(layer).extract::<WithIgnored>() {
        Ok(found) => {
            for path in found.ignored {
                let inner = value_at(&layer.values, &path).and_then(Value::as_dict);
                let paths = match inner {
                    Some(table) if !table.is_empty() => leaves(table)
                        .into_iter()
                        .map(|leaf| format!("{path}.{leaf}"))
                        .collect(),
                    _ => vec![path],
                };
                faults.extend(paths.iter().map(|path| unknown(layer, path)));
            }
        }
        Err(error) => {
            let path = error.path.join(".");
            faults.push(layer.fault(&path, error.kind.to_string(), None));
        }
    }
}

fn unknown(layer: &Layer, path: &str) -> ConfigFault {
    let nearest = keys::nearest(path, KEYS.iter().map(|key| key.path));
    layer.fault(path, "no such key".to_owned(), nearest)
}

/// True when `path` is `table` or lies in it.
fn inside(path: &str, table: &str) -> bool {
    path.strip_prefix(table)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Paths that ought to be tables and hold something else.
fn tables_that_are_none(values: &Dict) -> Vec<String> {
    leaves(values)
        .into_iter()
        .filter(|path| {
            let is_table = KEYS
                .iter()
                .any(|key| key.path != path && inside(key.path, path));
            is_table && value_at(values, path).is_some_and(|value| value.as_dict().is_none())
        })
        .collect()
}

/// Paths of all values that are no tables, and of empty tables.
pub(super) fn leaves(values: &Dict) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, value) in values {
        match value.as_dict() {
            Some(table) if !table.is_empty() => {
                paths.extend(
                    leaves(table)
                        .into_iter()
                        .map(|leaf| format!("{name}.{leaf}")),
                );
            }
            _ => paths.push(name.clone()),
        }
    }
    paths
}

fn value_at<'a>(values: &'a Dict, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let value = values.get(first)?;
    if rest.is_empty() {
        return Some(value);
    }
    value_at(value.as_dict()?, rest)
}

/// Line, from 1, where `path` is set: its own line, else that of the nearest table around it.
fn line_of(text: &str, path: &str) -> Option<usize> {
    let bare = |name: &str| -> String {
        let parts = name
            .split('.')
            .map(|part| part.trim().trim_matches(['"', '\'']).to_owned());
        parts.collect::<Vec<_>>().join(".")
    };
    let mut table = String::new();
    let mut best: Option<(usize, usize)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let name = if let Some(header) = line.strip_prefix('[') {
            table = bare(
                header
                    .trim_start_matches('[')
                    .split(']')
                    .next()
                    .unwrap_or(""),
            );
            table.clone()
        } else if let Some((name, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            match table.as_str() {
                "" => bare(name),
                table => format!("{table}.{}", bare(name)),
            }
        } else {
            continue;
        };
        if inside(path, &name) && best.is_none_or(|(length, _)| name.len() > length) {
            best = Some((name.len(), number + 1));
        }
    }
    best.map(|(_, line)| line)
}
