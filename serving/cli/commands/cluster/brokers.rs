//! Brokers as they are shown.

use hulse_sdk::Broker;
use serde::Serialize;

use crate::failure::{Code, Failure};
use crate::output::{Field, Table, View, bytes, grouped};

/// A broker that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BrokerView {
    pub(super) broker: String,
    endpoint: String,
    http: Option<String>,
    state: &'static str,
    partitions: Option<u64>,
    open: Option<u64>,
    load_bytes_per_s: Option<u64>,
    registered_ms: i64,
}

impl BrokerView {
    pub(super) fn of(info: &Broker) -> Self {
        Self {
            broker: info.name.clone(),
            endpoint: info.endpoint.clone(),
            http: Some(info.http.clone()).filter(|http| !http.is_empty()),
            state: match info.draining {
                true => "draining",
                false => "serving",
            },
            partitions: info.partitions,
            open: info.open,
            load_bytes_per_s: info.load,
            registered_ms: info.registered_ms,
        }
    }
}

/// "12MiB/s".
pub(super) fn rate(bytes_per_second: u64) -> String {
    format!("{}/s", bytes(bytes_per_second))
}

/// The one of this name.
pub(super) fn find(all: Vec<BrokerView>, name: &str) -> Result<BrokerView, Failure> {
    let known: Vec<String> = all.iter().map(|broker| broker.broker.clone()).collect();
    let found = all.into_iter().find(|broker| broker.broker == name);
    found.ok_or_else(|| {
        Failure::new(Code::NodeMissing, "there is no such broker")
            .why(format!("those that run are {}", known.join(", ")))
            .object(name)
            .next("hulse brokers list; charts/local/up starts what does not run")
    })
}

impl View for BrokerView {
    const FIELDS: &'static [Field] = &[
        Field::text("broker", "its name"),
        Field::text("endpoint", "where clients reach it"),
        Field::text("http", "host:port of its metrics and health").or_null(),
        Field::text(
            "state",
            "serving, or draining: it gives its partitions away and gets none",
        ),
        Field::integer("partitions", "that it owns, or owned last").or_null(),
        Field::integer("open", "of these, as it told with its load").or_null(),
        Field::integer(
            "load_bytes_per_s",
            "in and out over its open partitions; null: it runs alone, or did not tell",
        )
        .or_null(),
        Field::integer(
            "registered_ms",
            "its clock when it registered, ms since 1970",
        ),
    ];

    fn name(&self) -> String {
        self.broker.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["BROKER", "ENDPOINT", "HTTP", "STATE", "PARTITIONS", "LOAD"]);
        for row in rows {
            let load = row.load_bytes_per_s;
            table.row(vec![
                row.broker.clone(),
                row.endpoint.clone(),
                row.http.clone().unwrap_or_else(|| "-".to_owned()),
                row.state.to_owned(),
                row.partitions.map_or_else(|| "-".to_owned(), grouped),
                load.map_or_else(|| "-".to_owned(), rate),
            ]);
        }
        table.render()
    }
}
