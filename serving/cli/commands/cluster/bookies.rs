//! Bookies as they are shown.

use hulse_proto::error::{Fault, Reason};
use hulse_sdk::{Bookie, Cluster};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Field, Table, View, bytes, grouped};

/// A bookie that is or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct BookieView {
    pub(super) bookie: String,
    pub(super) state: String,
    pub(super) running: bool,
    mode: Option<String>,
    zone: String,
    endpoint: Option<String>,
    http: Option<String>,
    pub(super) ledgers: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) seconds_left: Option<u64>,
    /// Why copies cannot be moved from it now, or made on it.
    pub(super) blocked: Vec<String>,
}

impl BookieView {
    pub(super) fn of(bookie: &Bookie, info: &Cluster) -> Self {
        let live = bookie.live.as_ref();
        let told = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let blocked = info.upkeep.iter().flat_map(|upkeep| &upkeep.blocked);
        let blocked = blocked
            .filter(|blocked| blocked.bookie == bookie.name)
            .map(|blocked| {
                let (ledger, entry) = (blocked.ledger, blocked.first_entry);
                let (kind, why) = (&blocked.kind, &blocked.why);
                format!("ledger {ledger} from entry {entry} on ({kind}): {why}")
            });
        Self {
            bookie: bookie.name.clone(),
            state: bookie.state.clone(),
            running: live.is_some(),
            mode: live.map(|live| live.mode.clone()),
            zone: bookie.zone.clone(),
            endpoint: live.and_then(|live| told(&live.endpoint)),
            http: live.and_then(|live| told(&live.http)),
            ledgers: bookie.holds.map(|(ledgers, _)| ledgers),
            bytes: bookie.holds.map(|(_, bytes)| bytes),
            seconds_left: bookie.time_left.map(|left| left.as_secs()),
            blocked: blocked.collect(),
        }
    }
}

#[cfg(test)]
impl BookieView {
    /// One that is told about in a test.
    pub(super) fn told(name: &str, state: &str, ledgers: Option<u64>) -> Self {
        Self {
            bookie: name.to_owned(),
            state: state.to_owned(),
            running: true,
            mode: Some("normal".to_owned()),
            zone: String::new(),
            endpoint: None,
            http: None,
            ledgers,
            bytes: None,
            seconds_left: None,
            blocked: Vec::new(),
        }
    }
}

/// All of them.
pub(super) fn all(info: &Cluster) -> Vec<BookieView> {
    let all = info.bookies.iter();
    all.map(|bookie| BookieView::of(bookie, info)).collect()
}

/// The one of this name.
pub(super) fn find(info: &Cluster, name: &str) -> Result<BookieView, Failure> {
    let all = all(info);
    let known: Vec<String> = all.iter().map(|bookie| bookie.bookie.clone()).collect();
    let found = all.into_iter().find(|bookie| bookie.bookie == name);
    found.ok_or_else(|| {
        let why = format!("there is no bookie {name}; there are {}", known.join(", "));
        Failure::from_fault(
            "cannot describe the bookie",
            &Fault::new(Reason::BookieNotFound, why),
        )
        .object(name)
    })
}

impl View for BookieView {
    const FIELDS: &'static [Field] = &[
        Field::text("bookie", "its name"),
        Field::text("state", "active, read-only, draining, retired or lost"),
        Field::boolean("running", "its lease stands"),
        Field::text(
            "mode",
            "while it runs: normal, low, readonly, reserve, failed or starting",
        )
        .or_null(),
        Field::text("zone", "what fails together with it"),
        Field::text("endpoint", "where brokers reach it").or_null(),
        Field::text("http", "host:port of its metrics and health").or_null(),
        Field::integer("ledgers", "that name it, as upkeep saw last").or_null(),
        Field::integer("bytes", "of them, about").or_null(),
        Field::integer(
            "seconds_left",
            "while it drains: how long that takes yet, about",
        )
        .or_null(),
        Field::text("blocked[]", "why copies cannot be moved or made now"),
    ];

    fn name(&self) -> String {
        self.bookie.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let narrow = ["BOOKIE", "STATE", "MODE", "ENDPOINT", "LEDGERS", "BYTES"];
        let broad = [
            "BOOKIE", "STATE", "MODE", "ENDPOINT", "LEDGERS", "BYTES", "ZONE", "HTTP",
        ];
        let mut table = Table::new(if wide { &broad } else { &narrow });
        let told = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        for row in rows {
            let mut cells = vec![
                row.bookie.clone(),
                row.state.clone(),
                row.mode.clone().unwrap_or_else(|| "not running".to_owned()),
                told(&row.endpoint),
                row.ledgers.map_or_else(|| "-".to_owned(), grouped),
                row.bytes.map_or_else(|| "-".to_owned(), bytes),
            ];
            if wide {
                cells.push(match row.zone.as_str() {
                    "" => "-".to_owned(),
                    zone => zone.to_owned(),
                });
                cells.push(told(&row.http));
            }
            table.row(cells);
        }
        let mut text = table.render();
        for row in rows {
            for why in &row.blocked {
                text.push_str(&format!("{}: {why}\n", row.bookie));
            }
        }
        text
    }
}
