//! A configuration as text: the reference with a comment per key, and the values in force with their origins.

use std::fmt::Write as _;

use figment::Figment;
use figment::providers::Serialized;
use figment::value::Value;

use super::kafka;
use super::keys::{self, KEYS};
use super::load::Loaded;
use super::model::Config;

/// A value as TOML writes it.
fn toml(config: &Config, path: &str) -> String {
    let value = Figment::from(Serialized::defaults(config)).find_value(path);
    match value.expect("the table of keys names fields; a test compares them") {
        Value::String(_, text) => format!("{text:?}"),
        value @ Value::Array(..) => list(&value),
        value => keys::shown(&value),
    }
}

/// A list, as TOML writes it on one line.
fn list(value: &Value) -> String {
    let items = value.as_array().unwrap_or_default();
    if items.iter().any(|item| item.as_dict().is_some()) {
        return kafka::toml(value);
    }
    let items: Vec<String> = items.iter().map(keys::shown).collect();
    format!("[{}]", items.join(", "))
}

/// `hulse.toml` with every key at its default and what it does; parses back to the defaults.
pub(crate) fn reference() -> String {
    let config = Config::default();
    let mut text = String::from("# Every key of hulse.toml at its default.\n");
    by_table(&mut text, |text, name, key| {
        let value = toml(&config, key.path);
        let _ = writeln!(text, "# {}\n{name} = {value}", key.doc);
    });
    text
}

/// The values in force.
pub(crate) fn show(loaded: &Loaded, origin: bool) -> String {
    let mut text = String::new();
    by_table(&mut text, |text, name, key| {
        let value = format!("{name} = {}", toml(&loaded.config, key.path));
        let _ = match origin {
            true => writeln!(text, "{value:<44} # {}", loaded.origin(key.path)),
            false => writeln!(text, "{value}"),
        };
    });
    text
}

/// The values in force and where each comes from, by key.
pub(crate) fn show_json(loaded: &Loaded) -> serde_json::Value {
    let values = Figment::from(Serialized::defaults(&loaded.config));
    let one = |key: &keys::Key| {
        let value = values.find_value(key.path);
        let value = value.expect("the table of keys names fields; a test compares them");
        let origin = loaded.origin(key.path).to_string();
        (
            key.path.to_owned(),
            serde_json::json!({ "value": value, "origin": origin }),
        )
    };
    KEYS.iter()
        .map(one)
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn by_table(text: &mut String, mut write: impl FnMut(&mut String, &str, &keys::Key)) {
    let mut table = "";
    for key in KEYS {
        let (of, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if of != table {
            table = of;
            let _ = writeln!(text, "{}[{table}]", if text.is_empty() { "" } else { "\n" });
        }
        write(text, name, key);
    }
}
