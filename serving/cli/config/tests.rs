//! Tests of the layers: precedence, unknown keys, units, places.

use std::collections::BTreeSet;

use figment::providers::Serialized;
use figment::{Profile, Provider as _};

use super::faults::{ConfigFault, ConfigFaults, Place};
use super::keys::{self, KEYS};
use super::load::{Defaults, Loaded, Sources, leaves, load};
use super::model::Config;
use super::reference::{reference, show};

fn from_text(text: &str) -> Result<Loaded, ConfigFaults> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hulse.toml");
    std::fs::write(&file, text).unwrap();
    load(Sources {
        file: Some(file),
        ..Sources::default()
    })
}

fn faults(text: &str) -> Vec<ConfigFault> {
    from_text(text).unwrap_err().0
}

/// Each key with its default, as `path = value` lines.
fn defaults_by_key() -> Vec<(String, String)> {
    let mut table = String::new();
    let mut lines = Vec::new();
    for line in reference()
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        match line.strip_prefix('[') {
            Some(name) => table = name.trim_end_matches(']').to_owned(),
            None => {
                let (name, value) = line.split_once(" = ").unwrap();
                lines.push((format!("{table}.{name}"), value.to_owned()));
            }
        }
    }
    lines
}

/// Drops, doubles or swaps one letter of the last name of a path.
fn misspellings(path: &str) -> Vec<String> {
    let (table, name) = path.rsplit_once('.').unwrap();
    let middle = name.len() / 2;
    let (head, tail) = name.split_at(middle);
    vec![
        format!("{table}.{head}{}", &tail[1..]),
        format!("{table}.{head}{}{tail}", &tail[..1]),
        format!("{table}.{head}x{}", &tail[1..]),
        format!("x{table}.{name}"),
    ]
}

#[test]
fn table_of_keys_names_every_field_and_no_other() {
    let of_table: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    let data = Serialized::defaults(Config::default()).data().unwrap();
    let of_struct: BTreeSet<String> = leaves(&data[&Profile::Default]).into_iter().collect();
    assert_eq!(of_table, of_struct);
}

#[test]
fn reference_parses_back_to_the_defaults() {
    assert_eq!(from_text(&reference()).unwrap().config, Config::default());
}

#[test]
fn misspelt_key_in_a_file_is_refused_with_the_right_one() {
    for (path, value) in defaults_by_key() {
        for wrong in misspellings(&path) {
            let found = faults(&format!("{wrong} = {value}\n"));
            assert_eq!(found.len(), 1, "{wrong}");
            assert_eq!(found[0].nearest.as_deref(), Some(path.as_str()), "{wrong}");
            assert_eq!(found[0].name, wrong);
            assert!(matches!(found[0].place, Place::File(_, Some(1))), "{wrong}");
        }
    }
}

#[test]
fn misspelt_variable_is_refused_with_the_right_one() {
    for (path, value) in defaults_by_key() {
        for wrong in misspellings(&path) {
            let found = from_variable(&keys::variable(&wrong), &value)
                .unwrap_err()
                .0;
            assert_eq!(found[0].nearest, Some(keys::variable(&path)), "{wrong}");
        }
    }
}

/// Loads variables over an empty file, so that no `hulse.toml` of the working directory is read.
fn from_variable(name: &str, text: &str) -> Result<Loaded, ConfigFaults> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hulse.toml");
    std::fs::write(&file, "").unwrap();
    load(Sources {
        file: Some(file),
        variables: vec![(name.to_owned(), text.to_owned())],
        ..Sources::default()
    })
}

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    let text = "[broker]\nmax_batch_size = 5\ndefault_partitons = 3\n\n[bookie]\nsync = \"never\"\n\
                [colour]\nred = 1\ngreen = 2\n";
    let told: Vec<String> = faults(text).iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 5, "{told:#?}");
    for (line, words) in [
        (":2: broker.max_batch_size", "with a unit"),
        (":6: bookie.sync", "none of: always"),
        (
            ":3: broker.default_partitons",
            "did you mean broker.default_partitions?",
        ),
        (":8: colour.red", "no such key"),
        (":9: colour.green", "no such key"),
    ] {
        assert!(
            told.iter()
                .any(|told| told.contains(line) && told.contains(words)),
            "{line}"
        );
    }
}

#[test]
fn value_outside_its_bounds_or_of_the_wrong_kind_is_refused() {
    for (text, words) in [
        ("broker.max_batch_size = \"64MiB\"", "outside 64KiB to 4MiB"),
        ("broker.default_partitions = 0", "outside 1 to 10000"),
        ("broker.default_partitions = -1", "whole number"),
        ("broker.default_partitions = \"3\"", "whole number"),
        ("broker.auto_create_topics = \"yes\"", "true or false"),
        ("broker.producer_expiry = \"999ms\"", "below the least"),
        ("broker.producer_expiry = 30", "with a unit"),
        ("broker = 3", "is a table"),
        ("broker.max_batch_size.x = 1", "found a table"),
        ("listen.grpc = \"localhost\"", "not ip:port"),
        (
            "listen.grpc = \"0.0.0.0:7400\"",
            "reached from other machines",
        ),
        (
            "listen.http = \"127.0.0.1:7400\"",
            "listen.grpc's address too",
        ),
        ("listen.advertise = \"here\"", "not host:port"),
        (
            "log.level = \"info,hulse=loud\"",
            "\"loud\" is none of: off, error",
        ),
        ("log.format = \"xml\"", "none of: text, json"),
        ("node.name = \"a b\"", "only [A-Za-z0-9._-]"),
        ("node.data_dir = \"\"", "must not be empty"),
        ("memory.budget = \"95%\"", "1% to 90%"),
        ("broker.replication.ack_quorum = 2", "1 <= ack_quorum"),
        ("bookie.data_dir = \"/x\"", "relative"),
        ("[broker\nx = 1", "is not TOML"),
    ] {
        let told = from_text(text).expect_err(text).to_string();
        assert!(told.contains(words), "{text}: {told}");
    }
}

#[test]
fn replication_above_one_is_valid_but_not_for_a_standalone_server() {
    let loaded =
        from_text("[broker.replication]\nensemble = 3\nwrite_quorum = 2\nack_quorum = 1\n")
            .unwrap();
    let told = loaded.check_standalone(1).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].contains(":2: broker.replication.ensemble: 3 bookies"));
    assert!(lines[1].contains(":3: broker.replication.write_quorum: 2 bookies"));
    assert!(from_text("").unwrap().check_standalone(1).is_ok());
}

#[test]
fn later_layer_wins_and_the_origin_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hulse.toml");
    let more = directory.path().join("conf.d");
    std::fs::create_dir(&more).unwrap();
    std::fs::write(
        &file,
        "[broker]\ndefault_partitions = 2\nmax_batch_size = \"1MiB\"\n",
    )
    .unwrap();
    std::fs::write(more.join("20.toml"), "broker.default_partitions = 4\n").unwrap();
    std::fs::write(more.join("10.toml"), "broker.default_partitions = 3\n").unwrap();
    std::fs::write(more.join("30.txt"), "broker.default_partitions = 9\n").unwrap();
    let variables = [
        ("HULSE_NODE__NAME", "7"),
        ("HULSE_BROKER__AUTO_CREATE_TOPICS", "false"),
    ];
    let loaded = load(Sources {
        file: Some(file),
        variables: variables
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .to_vec(),
        flags: vec![("listen.grpc", "--grpc", "127.0.0.1:1".to_owned())],
        defaults: Defaults::Standalone,
    })
    .unwrap();
    let config = &loaded.config;
    assert_eq!(config.broker.default_partitions, 4);
    assert_eq!(config.broker.max_batch_size.0, 1 << 20);
    assert_eq!(
        (config.node.name.as_str(), config.broker.auto_create_topics),
        ("7", false)
    );
    let shown = show(&loaded, true);
    for (name, origin) in [
        ("max_batch_size", "hulse.toml:3"),
        ("default_partitions", "20.toml:1"),
        ("name", "environment variable HULSE_NODE__NAME"),
        ("grpc", "flag --grpc"),
        ("http", "default"),
    ] {
        let line = shown
            .lines()
            .find(|line| line.starts_with(&format!("{name} =")))
            .unwrap();
        assert!(line.ends_with(origin), "{line}");
    }
}

#[test]
fn cluster_has_defaults_of_its_own_and_needs_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("hulse.toml");
    std::fs::write(&file, "broker.replication.ack_quorum = 3\n").unwrap();
    let sources = |endpoints: &str| Sources {
        file: Some(file.clone()),
        flags: vec![("metadata.endpoints", "--metadata", endpoints.to_owned())],
        defaults: Defaults::Cluster,
        ..Sources::default()
    };
    let loaded = load(sources("http://10.0.0.1:2379,http://etcd:2379")).unwrap();
    let replication = &loaded.config.broker.replication;
    let quorums = (
        replication.ensemble,
        replication.write_quorum,
        replication.ack_quorum,
    );
    assert_eq!(quorums, (3, 3, 3));
    assert_eq!(
        loaded.config.metadata.endpoints,
        ["http://10.0.0.1:2379", "http://etcd:2379"]
    );
    assert_eq!(loaded.check_in_cluster(), Ok(()));
    assert_eq!(loaded.check_bookie(), Ok(()));
    let shown = show(&loaded, true);
    for words in [
        "write_quorum = 3                             # default of a cluster",
        "endpoints = [\"http://10.0.0.1:2379\", \"http://etcd:2379\"]",
    ] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(loaded.check_standalone(3).is_err());
    let none = load(sources("")).unwrap();
    let told = none.check_in_cluster().unwrap_err().to_string();
    assert!(told.contains("needs etcd"), "{told}");
    for wrong in ["10.0.0.1:2379", "https://10.0.0.1:2379", "http://10.0.0.1"] {
        let told = load(sources(wrong)).unwrap_err().to_string();
        assert!(told.contains("http://host:port"), "{told}");
    }
}

#[test]
fn bookie_listens_where_nobody_else_does() {
    let bookie = |address: &str| {
        let text =
            format!("[metadata]\nendpoints = [\"http://e:1\"]\n[listen]\nbookie = \"{address}\"\n");
        from_text(&text).unwrap().check_bookie()
    };
    assert_eq!(bookie("127.0.0.1:7411"), Ok(()));
    for (address, words) in [
        ("0.0.0.0:7410", "no authentication"),
        ("127.0.0.1:7480", "listen.http"),
    ] {
        let told = bookie(address).unwrap_err().to_string();
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn named_file_that_is_missing_is_refused() {
    let sources = Sources {
        file: Some("/nonexistent/hulse.toml".into()),
        ..Sources::default()
    };
    let told = load(sources).unwrap_err().to_string();
    assert!(told.contains("/nonexistent/hulse.toml: "), "{told}");
}

#[test]
fn variables_of_tests_and_globals_are_no_keys() {
    for name in ["HULSE_TEST_REPORT", "HULSE_LONG", "HULSE_SERVER", "PATH"] {
        let loaded = from_variable(name, "x").unwrap();
        assert_eq!(loaded.config, Config::default());
    }
}

#[test]
fn variables_that_kubernetes_makes_of_a_service_are_no_keys() {
    for (name, text) in [
        ("HULSE_SERVICE_HOST", "10.0.0.1"),
        ("HULSE_SERVICE_PORT", "7400"),
        ("HULSE_SERVICE_PORT_GRPC", "7400"),
        ("HULSE_PORT", "tcp://10.0.0.1:7400"),
        ("HULSE_PORT_7400_TCP", "tcp://10.0.0.1:7400"),
        ("HULSE_SERVER_PORT_7400_TCP_ADDR", "10.0.0.1"),
    ] {
        let loaded = from_variable(name, text).unwrap();
        assert_eq!(loaded.config, Config::default());
    }
    // What a person may have meant as a key is still refused.
    for (name, text) in [
        ("HULSE_PORT", "7400"),
        ("HULSE_GRPC_PORT", "7400"),
        ("HULSE_PORT_NAME", "x"),
    ] {
        assert!(from_variable(name, text).is_err(), "{name}");
    }
}

#[test]
fn reference_in_the_tree_is_the_one_that_is_printed() {
    let text = include_str!("../config.md");
    let printed = text
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    assert_eq!(
        printed,
        Some(reference().as_str()),
        "run `hulse config default` and paste it"
    );
}
