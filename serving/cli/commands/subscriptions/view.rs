//! Subscriptions and their cursors as they are shown.

use hulse_sdk::{AttachedConsumer, Cursor, MovedCursor, Subscription};
use serde::Serialize;

use crate::output::{Field, Table, View, bytes, grouped};

/// A subscription in a list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SubscriptionRow {
    subscription: String,
    #[serde(rename = "type")]
    kind: String,
    topics: Vec<String>,
    consumers: usize,
    backlog_records: u64,
    backlog_bytes: u64,
    backlog_age_ms: u64,
    unacked_records: u64,
    hold: bool,
    id: String,
    created_at_ms: i64,
    state: String,
}

/// A subscription with its cursors.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SubscriptionView {
    #[serde(flatten)]
    head: SubscriptionRow,
    cursor: Vec<CursorView>,
}

#[derive(Debug, Clone, Serialize)]
struct CursorView {
    topic: String,
    partition: u32,
    base: Option<u64>,
    log_start: Option<u64>,
    high_watermark: Option<u64>,
    backlog_records: Option<u64>,
    backlog_bytes: Option<u64>,
    backlog_age_ms: Option<u64>,
    backlog_percent: Option<u32>,
    evicted_records: Option<u64>,
    unacked_records: Option<u64>,
    delayed_records: Option<u64>,
    dead_records: Option<u64>,
    acked_ranges: Option<u32>,
    acked_records: Option<u64>,
    state_epoch: Option<u32>,
    leader_epoch: Option<u32>,
    blocked: Vec<String>,
    consumer: Vec<ConsumerView>,
    fault: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct ConsumerView {
    name: String,
    client: String,
    priority: i64,
    active: bool,
    unacked_records: u64,
    sent_to: u64,
    attached_at_ms: i64,
}

/// A cursor that was moved, or would be.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MovedView {
    topic: String,
    partition: u32,
    /// `None`, as are the next three: the cursor could not be looked at or moved.
    old_base: Option<u64>,
    new_base: Option<u64>,
    old_backlog_records: Option<u64>,
    new_backlog_records: Option<u64>,
    fault: Option<String>,
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

fn state(subscription: &Subscription, cursors: &[Cursor], consumers: usize) -> String {
    if subscription.state != "active" {
        return subscription.state.clone();
    }
    for cursor in cursors {
        match &cursor.state {
            Err(fault) => return format!("partition {}: {fault}", cursor.partition),
            Ok(state) => {
                if let Some(why) = state.blocked.first() {
                    return format!("BLOCKED: {why}");
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

impl SubscriptionView {
    /// Of what its cursors say.
    pub(crate) fn new(subscription: Subscription, cursors: Vec<Cursor>) -> Self {
        let head = SubscriptionRow::new(&subscription, &cursors);
        let cursor = cursors.into_iter().map(Into::into).collect();
        Self { head, cursor }
    }

    /// The line above the cursors.
    pub(crate) fn headline(&self) -> String {
        let head = &self.head;
        format!(
            "{}  {}  {}  backlog {}  id {}",
            head.subscription,
            head.kind,
            head.state,
            head.backlog(),
            head.id
        )
    }
}

impl From<Cursor> for CursorView {
    fn from(cursor: Cursor) -> Self {
        let (known, fault) = match cursor.state {
            Ok(known) => (Some(known), None),
            Err(fault) => (None, Some(fault.to_string())),
        };
        let of = known.as_ref();
        Self {
            topic: cursor.topic,
            partition: cursor.partition,
            base: of.map(|known| known.base.0),
            log_start: of.map(|known| known.log_start.0),
            high_watermark: of.map(|known| known.high_watermark.0),
            backlog_records: of.map(|known| known.backlog_records),
            backlog_bytes: of.map(|known| known.backlog_bytes),
            backlog_age_ms: of.map(|known| known.backlog_age_ms),
            backlog_percent: of.and_then(|known| known.backlog_used_percent),
            evicted_records: of.map(|known| known.evicted_records),
            unacked_records: of.map(|known| known.unacked_records),
            delayed_records: of.map(|known| known.delayed_records),
            dead_records: of.map(|known| known.dead_records),
            acked_ranges: of.map(|known| known.acked_range_count),
            acked_records: of.map(|known| known.acked_records),
            state_epoch: of.map(|known| known.state_epoch),
            leader_epoch: of.map(|known| known.leader_epoch),
            blocked: of.map(|known| known.blocked.clone()).unwrap_or_default(),
            consumer: known
                .map(|known| known.consumers.into_iter().map(Into::into).collect())
                .unwrap_or_default(),
            fault,
        }
    }
}

impl From<AttachedConsumer> for ConsumerView {
    fn from(consumer: AttachedConsumer) -> Self {
        Self {
            name: consumer.name,
            client: consumer.client_id,
            priority: consumer.priority.into(),
            active: consumer.active,
            unacked_records: consumer.unacked_records,
            sent_to: consumer.sent_to.0,
            attached_at_ms: consumer.attached_at_ms,
        }
    }
}

impl From<&MovedCursor> for MovedView {
    fn from(moved: &MovedCursor) -> Self {
        // Beside a fault these say nothing.
        let known = |number: u64| moved.fault.is_none().then_some(number);
        Self {
            topic: moved.topic.clone(),
            partition: moved.partition,
            old_base: known(moved.old_base.0),
            new_base: known(moved.new_base.0),
            old_backlog_records: known(moved.old_backlog_records),
            new_backlog_records: known(moved.new_backlog_records),
            fault: moved.fault.as_ref().map(ToString::to_string),
        }
    }
}

/// "42s", "3m", "5h", "2d"; the age of a backlog needs no more.
fn age(ms: u64) -> String {
    match ms / 1000 {
        seconds @ ..60 => format!("{seconds}s"),
        seconds @ ..3600 => format!("{}m", seconds / 60),
        seconds @ ..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

const HEAD: [Field; 12] = [
    Field::text("subscription", "tenant/namespace/subscription"),
    Field::text("type", "exclusive or failover"),
    Field::text("topics[]", "tenant/namespace/topic of each"),
    Field::integer("consumers", "attached, by name"),
    Field::integer("backlog_records", "not acknowledged"),
    Field::integer("backlog_bytes", "of these, about"),
    Field::integer("backlog_age_ms", "of the oldest of these"),
    Field::integer("unacked_records", "delivered and not acknowledged"),
    Field::boolean("hold", "records are kept until they are acknowledged"),
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
            "BYTES",
            "TOPICS",
        ];
        let mut table = Table::new(&headings[..if wide { 9 } else { 7 }]);
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
                cells.push(bytes(row.backlog_bytes));
                cells.push(row.topics.join(","));
            }
            table.row(cells);
        }
        table.render()
    }
}

impl View for SubscriptionView {
    const FIELDS: &'static [Field] = &[
        HEAD[0],
        HEAD[1],
        HEAD[2],
        HEAD[3],
        HEAD[4],
        HEAD[5],
        HEAD[6],
        HEAD[7],
        HEAD[8],
        HEAD[9],
        HEAD[10],
        HEAD[11],
        Field::text("cursor[].topic", "tenant/namespace/topic"),
        Field::integer("cursor[].partition", "from 0"),
        Field::integer("cursor[].base", "everything below is processed").or_null(),
        Field::integer("cursor[].log_start", "oldest offset of the partition").or_null(),
        Field::integer("cursor[].high_watermark", "offset that comes next").or_null(),
        Field::integer("cursor[].backlog_records", "not acknowledged").or_null(),
        Field::integer("cursor[].backlog_bytes", "of these, about").or_null(),
        Field::integer("cursor[].backlog_age_ms", "of the oldest of these").or_null(),
        Field::integer(
            "cursor[].backlog_percent",
            "of the topic's backlog quota; null: there is none",
        )
        .or_null(),
        Field::integer(
            "cursor[].evicted_records",
            "lost to the quota since it was made on the partition",
        )
        .or_null(),
        Field::integer("cursor[].unacked_records", "delivered and not acknowledged").or_null(),
        Field::integer(
            "cursor[].delayed_records",
            "QUEUE and KEYED: came back, and are delivered again later",
        )
        .or_null(),
        Field::integer(
            "cursor[].dead_records",
            "QUEUE and KEYED: failed too often, and stay where they are",
        )
        .or_null(),
        Field::integer("cursor[].acked_ranges", "acknowledged above the base").or_null(),
        Field::integer("cursor[].acked_records", "in these").or_null(),
        Field::integer(
            "cursor[].state_epoch",
            "grows with each seek, skip and clear",
        )
        .or_null(),
        Field::integer("cursor[].leader_epoch", "grows with each take-over").or_null(),
        Field::text("cursor[].blocked[]", "what holds consumers up"),
        Field::text("cursor[].consumer[].name", "of the consumer"),
        Field::text("cursor[].consumer[].client", "id of its client"),
        Field::integer(
            "cursor[].consumer[].priority",
            "failover: the highest comes first",
        ),
        Field::boolean("cursor[].consumer[].active", "it gets the records"),
        Field::integer(
            "cursor[].consumer[].unacked_records",
            "delivered to it and not acknowledged",
        ),
        Field::integer(
            "cursor[].consumer[].sent_to",
            "it was sent records below this offset",
        ),
        Field::integer("cursor[].consumer[].attached_at_ms", "ms since 1970"),
        Field::text("cursor[].fault", "why its partition does not answer").or_null(),
    ];

    fn name(&self) -> String {
        self.head.subscription.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let headings = [
            "PARTITION",
            "BASE",
            "END",
            "BACKLOG",
            "AGE",
            "UNACKED",
            "CONSUMER",
            "ACKED",
            "RANGES",
            "EPOCH",
            "QUOTA",
            "EVICTED",
            "TOPIC",
        ];
        let mut table = Table::new(&headings[..if wide { 13 } else { 7 }]);
        for cursor in rows.iter().flat_map(|row| &row.cursor) {
            let active = cursor.consumer.iter().find(|consumer| consumer.active);
            let who = match (&cursor.fault, active) {
                (Some(fault), _) => fault.clone(),
                (None, Some(active)) => active.name.clone(),
                (None, None) => "-".to_owned(),
            };
            let mut cells = vec![
                cursor.partition.to_string(),
                or_dash(cursor.base, grouped),
                or_dash(cursor.high_watermark, grouped),
                or_dash(cursor.backlog_records, grouped),
                or_dash(cursor.backlog_age_ms, age),
                or_dash(cursor.unacked_records, grouped),
                who,
            ];
            if wide {
                cells.push(or_dash(cursor.acked_records, grouped));
                cells.push(or_dash(cursor.acked_ranges, |ranges| ranges.to_string()));
                cells.push(or_dash(cursor.state_epoch, |epoch| epoch.to_string()));
                cells.push(or_dash(cursor.backlog_percent, |used| format!("{used} %")));
                cells.push(or_dash(cursor.evicted_records, grouped));
                cells.push(cursor.topic.clone());
            }
            table.row(cells);
        }
        table.render()
    }
}

impl View for MovedView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic"),
        Field::integer("partition", "from 0"),
        Field::integer(
            "old_base",
            "everything below was processed; null, as the next three: see fault",
        )
        .or_null(),
        Field::integer("new_base", "everything below is processed now, or would be").or_null(),
        Field::integer("old_backlog_records", "not acknowledged before").or_null(),
        Field::integer("new_backlog_records", "not acknowledged now, or then").or_null(),
        Field::text("fault", "why it was not moved").or_null(),
    ];

    fn name(&self) -> String {
        format!("{}/{}", self.topic, self.partition)
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let headings = [
            "PARTITION",
            "CURRENT",
            "NEW",
            "BACKLOG",
            "NEW BACKLOG",
            "STATE",
            "TOPIC",
        ];
        let mut table = Table::new(&headings[..if wide { 7 } else { 6 }]);
        for row in rows {
            let mut cells = vec![
                row.partition.to_string(),
                or_dash(row.old_base, grouped),
                or_dash(row.new_base, grouped),
                or_dash(row.old_backlog_records, grouped),
                or_dash(row.new_backlog_records, grouped),
                row.fault.clone().unwrap_or_else(|| "ok".to_owned()),
            ];
            cells.extend(wide.then(|| row.topic.clone()));
            table.row(cells);
        }
        if rows.len() > 1 {
            let sum = |of: fn(&Self) -> Option<u64>| grouped(rows.iter().filter_map(of).sum());
            let mut cells = vec![
                "total".to_owned(),
                String::new(),
                String::new(),
                sum(|row| row.old_backlog_records),
                sum(|row| row.new_backlog_records),
                String::new(),
            ];
            cells.extend(wide.then(String::new));
            table.row(cells);
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_one_unit() {
        for (ms, text) in [
            (0, "0s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (7_200_000, "2h"),
            (200_000_000, "2d"),
        ] {
            assert_eq!(age(ms), text);
        }
    }

    #[test]
    fn moved_cursors_have_a_total() {
        let row = |partition, new_backlog_records| MovedView {
            topic: "t".to_owned(),
            partition,
            old_base: Some(9),
            new_base: Some(4),
            old_backlog_records: Some(1),
            new_backlog_records: Some(new_backlog_records),
            fault: None,
        };
        let shown = MovedView::text(&[row(0, 5), row(1, 7)], false);
        let total: Vec<&str> = shown.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(total, ["total", "2", "12"]);
    }
}
