//! Subscriptions as they are shown.

use hulse_sdk::{Cursor, Subscription};
use serde::Serialize;

use super::pace::{Pace, Stock, age, blocked, or_dash, rate};
use crate::format::date_and_time;
use crate::output::{Field, Table, View, bytes, grouped};

/// A subscription in a list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SubscriptionRow {
    pub(super) subscription: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    topics: Vec<String>,
    consumers: usize,
    backlog_records: u64,
    backlog_bytes: u64,
    backlog_age_ms: u64,
    unacked_records: u64,
    #[serde(flatten)]
    stock: Stock,
    #[serde(flatten)]
    pace: Pace,
    hold: bool,
    ttl_ms: Option<u64>,
    paused_until_ms: Option<i64>,
    pub(super) id: String,
    created_at_ms: i64,
    pub(super) state: String,
}

impl SubscriptionRow {
    /// Of what its cursors say.
    pub(crate) fn new(subscription: &Subscription, cursors: &[Cursor]) -> Self {
        let known: Vec<_> = cursors
            .iter()
            .filter_map(|cursor| cursor.state.as_ref().ok())
            .collect();
        let names: std::collections::BTreeSet<&str> = known
            .iter()
            .flat_map(|cursor| &cursor.consumers)
            .map(|consumer| &*consumer.name)
            .collect();
        Self {
            subscription: subscription.name.clone(),
            kind: subscription.kind.to_string(),
            topics: subscription.topics.clone(),
            consumers: names.len(),
            backlog_records: known.iter().map(|cursor| cursor.backlog_records).sum(),
            backlog_bytes: known.iter().map(|cursor| cursor.backlog_bytes).sum(),
            backlog_age_ms: known
                .iter()
                .map(|cursor| cursor.backlog_age_ms)
                .max()
                .unwrap_or(0),
            unacked_records: known.iter().map(|cursor| cursor.unacked_records).sum(),
            stock: Stock::sum(known.iter().map(|cursor| Stock::of(cursor))),
            pace: Pace::of(known.iter().copied()),
            ttl_ms: subscription
                .ttl
                .and_then(|ttl| u64::try_from(ttl.as_millis()).ok()),
            paused_until_ms: paused(subscription, cursors),
            hold: subscription.hold,
            id: subscription.id.to_string(),
            created_at_ms: subscription.created_at_ms,
            state: state(subscription, cursors, names.len()),
        }
    }

    /// "3 records".
    pub(crate) fn backlog(&self) -> String {
        match self.backlog_records {
            1 => "1 record".to_owned(),
            records => format!("{} records", grouped(records)),
        }
    }
}

/// Until when it is paused, if it is: so its owners say.
fn paused(subscription: &Subscription, cursors: &[Cursor]) -> Option<i64> {
    let is_paused = |cursor: &Cursor| {
        let state = cursor.state.as_ref();
        state.is_ok_and(|state| state.blocked.iter().any(|why| blocked(why) == "paused"))
    };
    let any = cursors.iter().any(is_paused);
    any.then_some(subscription.paused_until_ms)
}

fn state(subscription: &Subscription, cursors: &[Cursor], consumers: usize) -> String {
    if subscription.state != "active" {
        return subscription.state.clone();
    }
    match paused(subscription, cursors) {
        Some(i64::MAX) => return "paused".to_owned(),
        Some(until) => return format!("paused until {}", date_and_time(until)),
        None => {}
    }
    for cursor in cursors {
        match &cursor.state {
            Err(fault) => return format!("partition {}: {fault}", cursor.partition),
            Ok(state) => {
                if let Some(why) = state.blocked.first() {
                    return format!("BLOCKED: {}", blocked(why));
                }
            }
        }
    }
    if subscription.topics.is_empty() {
        return "outlived its topics".to_owned();
    }
    match consumers {
        0 => "no consumers".to_owned(),
        _ => "ok".to_owned(),
    }
}

pub(super) const HEAD: [Field; 22] = [
    Field::text("subscription", "tenant/namespace/subscription"),
    Field::text("type", "exclusive, failover, queue or keyed"),
    Field::text("topics[]", "tenant/namespace/topic of each"),
    Field::integer("consumers", "attached, by name"),
    Field::integer("backlog_records", "not acknowledged"),
    Field::integer("backlog_bytes", "of these, about"),
    Field::integer("backlog_age_ms", "of the oldest of these"),
    Field::integer("unacked_records", "delivered and not acknowledged"),
    Field::integer("ready_records", "not acknowledged, and nobody has them"),
    Field::integer(
        "delayed_records",
        "came back, and are delivered again later",
    ),
    Field::integer("dead_records", "failed too often, and stay where they are"),
    Field::integer(
        "dead_letters",
        "went to the dead-letter topic since the last seek",
    ),
    Field::integer(
        "expired_records",
        "grew too old, since the owners opened the partitions",
    ),
    Field::number("in_per_s", "records that come, in the last seconds").or_null(),
    Field::number("out_per_s", "records that leave the backlog").or_null(),
    Field::integer(
        "drain_ms",
        "until the backlog is empty, if it goes on so; null: it does not shrink",
    )
    .or_null(),
    Field::boolean("hold", "records are kept until they are acknowledged"),
    Field::integer(
        "ttl_ms",
        "older records count as processed; null: none does",
    )
    .or_null(),
    Field::integer("paused_until_ms", "ms since 1970; null: it is not paused").or_null(),
    Field::text("id", "its identity; one that is made anew has another one"),
    Field::integer("created_at_ms", "ms since 1970"),
    Field::text("state", "ok, or what is the matter"),
];

impl View for SubscriptionRow {
    const FIELDS: &'static [Field] = &HEAD;

    fn name(&self) -> String {
        self.subscription.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let headings = [
            "SUBSCRIPTION",
            "TYPE",
            "CONSUMERS",
            "BACKLOG",
            "AGE",
            "UNACKED",
            "STATE",
            "IN/S",
            "OUT/S",
            "DRAIN",
            "DEAD",
            "BYTES",
            "TOPICS",
        ];
        let mut table = Table::new(&headings[..if wide { 13 } else { 7 }]);
        for row in rows {
            let mut cells = vec![
                row.subscription.clone(),
                row.kind.clone(),
                row.consumers.to_string(),
                grouped(row.backlog_records),
                age(row.backlog_age_ms),
                grouped(row.unacked_records),
                row.state.clone(),
            ];
            if wide {
                cells.push(rate(row.pace.in_per_s));
                cells.push(rate(row.pace.out_per_s));
                cells.push(or_dash(row.pace.drain_ms, age));
                cells.push(grouped(row.stock.dead_records + row.stock.dead_letters));
                cells.push(bytes(row.backlog_bytes));
                cells.push(row.topics.join(","));
            }
            table.row(cells);
        }
        table.render()
    }
}
