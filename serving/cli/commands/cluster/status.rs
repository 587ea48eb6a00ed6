//! The cell in one look.

use std::time::Duration;

use hulse_sdk::{Bookie, Cluster};
use serde::Serialize;
use uuid::Uuid;

use super::brokers::rate;
use super::health::findings;
use crate::commands::doctor::Weight;
use crate::config::Period;
use crate::output::{Field, View, bytes, grouped};

/// The cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StatusView {
    pub(super) state: String,
    cell: String,
    ensemble: u32,
    write_quorum: u32,
    ack_quorum: u32,
    brokers: u64,
    bookies: u64,
    bookies_running: u64,
    bookies_writable: u64,
    ledgers: Option<u64>,
    lacking_ledgers: Option<u64>,
    lacking_for_s: Option<u64>,
    bytes_to_copy: Option<u64>,
    blocked: Option<u64>,
    load_bytes_per_s: Option<u64>,
    balancer: Option<String>,
    spread_percent: Option<u64>,
    balance: Option<String>,
    moves_done: Option<u64>,
    moves_failed: Option<u64>,
    answered_by: String,
}

/// True for a bookie that is to be there.
pub(super) fn counts(bookie: &Bookie) -> bool {
    bookie.state != "retired" && bookie.state != "lost"
}

/// True for one that takes records.
pub(super) fn writable(bookie: &Bookie) -> bool {
    let mode = bookie.live.as_ref().map(|live| live.mode.as_str());
    bookie.state == "active" && matches!(mode, Some("normal" | "low"))
}

/// Since when ledgers lack copies.
pub(super) fn lacking_for(info: &Cluster) -> Option<Duration> {
    let since = info.upkeep.as_ref()?.lacking_since_ms?;
    let ms = info.now_ms.saturating_sub(since);
    Some(Duration::from_secs(u64::try_from(ms / 1_000).unwrap_or(0)))
}

impl StatusView {
    pub(super) fn of(info: &Cluster) -> Self {
        let worst = findings(info).iter().map(|found| found.weight).max();
        let state = match worst {
            None | Some(Weight::Note) => "healthy",
            Some(Weight::Problem) => "degraded",
            Some(Weight::Damage | Weight::Unreachable) => "damaged",
        };
        let bookies: Vec<&Bookie> = info.bookies.iter().filter(|one| counts(one)).collect();
        let count = |wanted: &dyn Fn(&Bookie) -> bool| {
            let wanted = bookies.iter().filter(|bookie| wanted(bookie));
            wanted.count() as u64
        };
        let upkeep = info.upkeep.as_ref();
        let balance = info.balance.as_ref();
        let cell = Uuid::from_slice(&info.cell).unwrap_or_default();
        let (ensemble, write_quorum, ack_quorum) = info.quorums;
        Self {
            state: state.to_owned(),
            cell: cell.to_string(),
            ensemble,
            write_quorum,
            ack_quorum,
            brokers: info.brokers.len() as u64,
            bookies: bookies.len() as u64,
            bookies_running: count(&|bookie| bookie.live.is_some()),
            bookies_writable: count(&writable),
            ledgers: upkeep.map(|upkeep| upkeep.ledgers),
            lacking_ledgers: upkeep.map(|upkeep| upkeep.lacking_ledgers),
            lacking_for_s: lacking_for(info).map(|time| time.as_secs()),
            bytes_to_copy: upkeep.map(|upkeep| upkeep.bytes_to_copy),
            blocked: upkeep.map(|upkeep| upkeep.blocked_count),
            load_bytes_per_s: info
                .brokers
                .iter()
                .filter_map(|broker| broker.load)
                .reduce(u64::saturating_add),
            balancer: balance
                .filter(|of| of.elected)
                .map(|of| of.balancer.clone()),
            spread_percent: balance.map(|of| u64::from(of.spread_percent)),
            balance: balance.map(|of| of.verdict.clone()),
            moves_done: balance.map(|of| of.done),
            moves_failed: balance.map(|of| of.failed),
            answered_by: info.answered_by.clone(),
        }
    }

    /// "32MiB/s; even: the furthest broker is 4 % from the mean (node-1 balances; 12 moves made, 1 failed)".
    fn load(&self) -> Option<String> {
        let load = rate(self.load_bytes_per_s?);
        let Some(verdict) = &self.balance else {
            return Some(format!(
                "{load}; nobody has looked yet whether brokers are even"
            ));
        };
        let who = self.balancer.as_deref().unwrap_or("nobody");
        let made = match (self.moves_done, self.moves_failed) {
            (Some(done), Some(failed)) if done + failed > 0 => {
                format!("; {} moves made, {} failed", grouped(done), grouped(failed))
            }
            _ => String::new(),
        };
        Some(format!("{load}; {verdict} ({who} balances{made})"))
    }

    /// "2 of 40 ledgers have fewer copies than they should, for 3m; 12MiB are to be copied".
    fn copies(&self) -> String {
        let (Some(lacking), Some(ledgers)) = (self.lacking_ledgers, self.ledgers) else {
            return "nobody has looked yet".to_owned();
        };
        if ledgers == 0 {
            return "there were no ledgers when somebody looked last".to_owned();
        }
        if lacking == 0 {
            return format!("all {} ledgers have all of theirs", grouped(ledgers));
        }
        let time = self.lacking_for_s.map_or_else(String::new, |seconds| {
            format!(", for {}", Period(Duration::from_secs(seconds)))
        });
        let copy = bytes(self.bytes_to_copy.unwrap_or(0));
        let blocked = match self.blocked {
            None | Some(0) => String::new(),
            Some(places) => format!("; {} places are blocked", grouped(places)),
        };
        format!(
            "{} of {} ledgers have fewer than they should{time}; {copy} to be copied{blocked}",
            grouped(lacking),
            grouped(ledgers)
        )
    }
}

impl View for StatusView {
    const FIELDS: &'static [Field] = &[
        Field::text("state", "healthy, degraded or damaged"),
        Field::text("cell", "its identity"),
        Field::integer("ensemble", "bookies of a ledger"),
        Field::integer("write_quorum", "copies of a record"),
        Field::integer("ack_quorum", "copies on disk before a producer is answered"),
        Field::integer("brokers", "that run"),
        Field::integer("bookies", "that are not retired or lost"),
        Field::integer("bookies_running", "of these"),
        Field::integer("bookies_writable", "of these, that take records"),
        Field::integer("ledgers", "as upkeep saw last, as are the next four").or_null(),
        Field::integer(
            "lacking_ledgers",
            "with fewer good copies than they should have",
        )
        .or_null(),
        Field::integer("lacking_for_s", "since when there have been any, seconds").or_null(),
        Field::integer("bytes_to_copy", "about, also what only moves").or_null(),
        Field::integer("blocked", "places that cannot be repaired now").or_null(),
        Field::integer(
            "load_bytes_per_s",
            "in and out over all brokers; null: one runs",
        )
        .or_null(),
        Field::text("balancer", "the broker that evens out the load of all").or_null(),
        Field::integer(
            "spread_percent",
            "how far the furthest broker is from the mean load, as the balancer saw last",
        )
        .or_null(),
        Field::text("balance", "why partitions were moved or were not").or_null(),
        Field::integer("moves_done", "since it began to balance").or_null(),
        Field::integer("moves_failed", "since then").or_null(),
        Field::text("answered_by", "the broker that was asked"),
    ];

    fn name(&self) -> String {
        self.cell.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let mut text = String::new();
        for row in rows {
            let mut lines = vec![
                (
                    "cluster",
                    format!("{}, answered by {}", row.state, row.answered_by),
                ),
                ("brokers", format!("{} run", row.brokers)),
                (
                    "bookies",
                    format!(
                        "{} of {} run, {} take records",
                        row.bookies_running, row.bookies, row.bookies_writable
                    ),
                ),
                (
                    "records",
                    format!(
                        "{} copies of each, answered when {} are on disk",
                        row.write_quorum, row.ack_quorum
                    ),
                ),
                ("copies", row.copies()),
            ];
            lines.extend(row.load().map(|load| ("load", load)));
            if wide {
                lines.push(("cell", row.cell.clone()));
                lines.push(("ensemble", row.ensemble.to_string()));
            }
            for (name, words) in lines {
                text.push_str(&format!("{name:<9} {words}\n"));
            }
        }
        text
    }
}
