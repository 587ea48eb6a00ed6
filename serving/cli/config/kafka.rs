//! `[[listen.kafka]]`: the listeners of the Kafka wire, as tables of a file or as one line of a flag or variable.

use std::net::SocketAddr;

use figment::value::{Dict, Value};
use serde::{Deserialize, Serialize};

use super::keys::{host_and_port, nearest, shown};

/// Keys of one listener.
const KEYS: [&str; 3] = ["name", "bind", "advertise"];
/// What a line says to have none.
const OFF: &str = "off";

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KafkaListen {
    /// In logs.
    #[serde(default = "default_name")]
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) bind: SocketAddr,
    /// "auto", or host:port that its clients are told to dial.
    #[serde(default = "auto")]
    pub(crate) advertise: String,
}

impl Default for KafkaListen {
    fn default() -> Self {
        Self {
            name: default_name(),
            bind: SocketAddr::from(([127, 0, 0, 1], 9092)),
            advertise: auto(),
        }
    }
}

fn default_name() -> String {
    "kafka".to_owned()
}

fn auto() -> String {
    "auto".to_owned()
}

/// Says what is wrong with a list of listeners.
///
/// # Errors
/// The first fault.
pub(super) fn check(value: &Value) -> Result<(), String> {
    let expected = "expects a list of tables, e.g. [{ bind = \"127.0.0.1:9092\" }]";
    let Some(listeners) = value.as_array() else {
        return Err(match value.as_str() {
            Some(text) => format!("{text:?} is neither {OFF:?} nor a list of ip:port"),
            None => format!("{expected}; found {}", shown(value)),
        });
    };
    for listener in listeners {
        let listener = listener.as_dict().ok_or(expected)?;
        check_one(listener)?;
    }
    Ok(())
}

fn check_one(listener: &Dict) -> Result<(), String> {
    for (key, value) in listener {
        let text = value
            .as_str()
            .filter(|text| !text.is_empty())
            .ok_or_else(|| format!("{key} expects text in quotes, found {}", shown(value)));
        match key.as_str() {
            "name" => text.map(drop)?,
            "bind" => text?
                .parse::<SocketAddr>()
                .map(drop)
                .map_err(|_| format!("bind is {}, not ip:port", shown(value)))?,
            "advertise" => match text? {
                "auto" => {}
                address => host_and_port(address)?,
            },
            other => {
                let right = nearest(other, KEYS);
                let right =
                    right.map_or(String::new(), |right| format!("; did you mean {right:?}?"));
                return Err(format!("a listener has no key {other:?}{right}"));
            }
        }
    }
    match listener.contains_key("bind") {
        true => Ok(()),
        false => Err("a listener needs bind = \"ip:port\"".to_owned()),
    }
}

/// What a line means: `off`, or `ip:port` for each listener, separated by commas; `ip:port=host:port` also says what to advertise.
/// What it does not mean is kept as it is, for [`check`] to refuse.
pub(super) fn of_line(line: &str) -> Value {
    if line == OFF {
        return Value::from(Vec::<Value>::new());
    }
    let mut listeners = Vec::new();
    for (index, part) in line.split(',').enumerate() {
        let (bind, advertise) = part.split_once('=').unwrap_or((part, "auto"));
        if bind.parse::<SocketAddr>().is_err() {
            return line.into();
        }
        let name = match index {
            0 => default_name(),
            _ => format!("{}-{}", default_name(), index + 1),
        };
        let keys = [
            ("name", name.as_str()),
            ("bind", bind),
            ("advertise", advertise),
        ];
        let listener: Dict = keys
            .into_iter()
            .map(|(key, text)| (key.to_owned(), text.into()))
            .collect();
        listeners.push(Value::from(listener));
    }
    Value::from(listeners)
}

/// The list as a file has it on one line.
pub(super) fn toml(value: &Value) -> String {
    let one = |listener: &Value| {
        let keys = KEYS.iter().filter_map(|key| {
            let text = listener.as_dict()?.get(*key)?;
            Some(format!("{key} = {}", shown(text)))
        });
        format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
    };
    let listeners = value.as_array().unwrap_or_default();
    format!(
        "[{}]",
        listeners.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, load};

    fn listeners(line: &str) -> Result<Vec<KafkaListen>, String> {
        let flags = vec![("listen.kafka", "--kafka", line.to_owned())];
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        match load(sources) {
            Ok(loaded) => Ok(loaded.config.listen.kafka),
            Err(faults) => Err(faults.0[0].why.clone()),
        }
    }

    fn in_a_file(text: &str) -> Result<Vec<KafkaListen>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hulse.toml");
        std::fs::write(&file, text).unwrap();
        let sources = Sources {
            file: Some(file),
            ..Sources::default()
        };
        match load(sources) {
            Ok(loaded) => Ok(loaded.config.listen.kafka),
            Err(faults) => Err(faults.0[0].why.clone()),
        }
    }

    fn listener(name: &str, bind: &str, advertise: &str) -> KafkaListen {
        KafkaListen {
            name: name.to_owned(),
            bind: bind.parse().unwrap(),
            advertise: advertise.to_owned(),
        }
    }

    #[test]
    fn line_names_no_listener_one_or_several() {
        assert_eq!(listeners("off"), Ok(vec![]));
        let one = listener("kafka", "127.0.0.1:9100", "auto");
        assert_eq!(listeners("127.0.0.1:9100"), Ok(vec![one.clone()]));
        let two = listener("kafka-2", "[::1]:9101", "kafka.example:19092");
        let line = "127.0.0.1:9100,[::1]:9101=kafka.example:19092";
        assert_eq!(listeners(line), Ok(vec![one, two]));
        assert!(listeners("nowhere").unwrap_err().contains("neither"));
        assert!(
            listeners("127.0.0.1:1=x")
                .unwrap_err()
                .contains("host:port")
        );
        assert!(
            listeners("0.0.0.0:9100")
                .unwrap_err()
                .contains("no authentication")
        );
        assert!(
            listeners("127.0.0.1:7400")
                .unwrap_err()
                .contains("listen.grpc")
        );
    }

    #[test]
    fn file_has_a_table_for_each_listener_and_knows_their_keys() {
        let two = "[[listen.kafka]]\nbind = \"127.0.0.1:9100\"\n[[listen.kafka]]\nname = \"b\"\nbind = \"127.0.0.1:9101\"\nadvertise = \"h:1\"\n";
        let expected = vec![
            listener("kafka", "127.0.0.1:9100", "auto"),
            listener("b", "127.0.0.1:9101", "h:1"),
        ];
        assert_eq!(in_a_file(two), Ok(expected));
        for (text, words) in [
            (
                "[[listen.kafka]]\nbnd = \"127.0.0.1:9100\"\n",
                "did you mean \"bind\"",
            ),
            ("[[listen.kafka]]\nname = \"a\"\n", "needs bind"),
            ("[[listen.kafka]]\nbind = 9100\n", "text in quotes"),
            ("[listen]\nkafka = 9100\n", "list of tables"),
            ("[listen]\nkafka = [\"127.0.0.1:9100\"]\n", "list of tables"),
        ] {
            let why = in_a_file(text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
