//! A subscription with its cursors and consumers as it is shown.

use hulse_sdk::{AttachedConsumer, Cursor, Subscription};
use serde::Serialize;

use super::pace::{Pace, Stock, age, blocked, or_dash, rate, rounded};
use super::view::{HEAD, SubscriptionRow};
use crate::output::{Field, Table, View, grouped};

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
    ready_records: Option<u64>,
    delayed_records: Option<u64>,
    dead_records: Option<u64>,
    dead_letters: Option<u64>,
    expired_records: Option<u64>,
    in_per_s: Option<f64>,
    out_per_s: Option<f64>,
    in_before_per_s: Option<f64>,
    out_before_per_s: Option<f64>,
    drain_ms: Option<u64>,
    most_tried_offset: Option<u64>,
    most_tried_times: Option<u32>,
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
    silent_ms: u64,
    blocked: Option<String>,
    attached_at_ms: i64,
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
        let pace = Pace::of(cursor.state.iter());
        let stock = cursor.state.as_ref().ok().map(Stock::of);
        let (known, fault) = match cursor.state {
            Ok(known) => (Some(known), None),
            Err(fault) => (None, Some(fault.to_string())),
        };
        let of = known.as_ref();
        let before = of.and_then(|known| known.rates?.before);
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
            ready_records: stock.map(|stock| stock.ready_records),
            delayed_records: stock.map(|stock| stock.delayed_records),
            dead_records: stock.map(|stock| stock.dead_records),
            dead_letters: stock.map(|stock| stock.dead_letters),
            expired_records: stock.map(|stock| stock.expired_records),
            in_per_s: pace.in_per_s,
            out_per_s: pace.out_per_s,
            in_before_per_s: before.map(|(incoming, _)| rounded(incoming)),
            out_before_per_s: before.map(|(_, outgoing)| rounded(outgoing)),
            drain_ms: pace.drain_ms,
            most_tried_offset: of.and_then(|known| Some(known.most_tried?.0.0)),
            most_tried_times: of.and_then(|known| Some(known.most_tried?.1)),
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
            silent_ms: consumer.silent_ms,
            blocked: (!consumer.blocked.is_empty()).then(|| consumer.blocked.clone()),
            attached_at_ms: consumer.attached_at_ms,
        }
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
        HEAD[12],
        HEAD[13],
        HEAD[14],
        HEAD[15],
        HEAD[16],
        HEAD[17],
        HEAD[18],
        HEAD[19],
        HEAD[20],
        HEAD[21],
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
            "cursor[].ready_records",
            "not acknowledged, and nobody has them",
        )
        .or_null(),
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
        Field::integer(
            "cursor[].dead_letters",
            "QUEUE and KEYED: went to the dead-letter topic since the last seek",
        )
        .or_null(),
        Field::integer(
            "cursor[].expired_records",
            "grew too old, since the owner opened the partition",
        )
        .or_null(),
        Field::number(
            "cursor[].in_per_s",
            "records that come, in the last seconds",
        )
        .or_null(),
        Field::number("cursor[].out_per_s", "records that leave the backlog").or_null(),
        Field::number(
            "cursor[].in_before_per_s",
            "the same in the minutes before; null: it has not been watched for so long",
        )
        .or_null(),
        Field::number("cursor[].out_before_per_s", "likewise").or_null(),
        Field::integer(
            "cursor[].drain_ms",
            "until the backlog is empty, if it goes on so; null: it does not shrink",
        )
        .or_null(),
        Field::integer(
            "cursor[].most_tried_offset",
            "QUEUE and KEYED: of the record that was tried most often, three times at least",
        )
        .or_null(),
        Field::integer("cursor[].most_tried_times", "how often that was").or_null(),
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
        Field::integer(
            "cursor[].consumer[].silent_ms",
            "QUEUE and KEYED: it has held records for so long without an answer; 0: it holds none",
        ),
        Field::text(
            "cursor[].consumer[].blocked",
            "QUEUE and KEYED: what holds it up",
        )
        .or_null(),
        Field::integer("cursor[].consumer[].attached_at_ms", "ms since 1970"),
        Field::text("cursor[].fault", "why its partition does not answer").or_null(),
    ];

    fn name(&self) -> String {
        self.head.subscription.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let mut text = String::new();
        for row in rows {
            match row.is_shared() {
                true => {
                    text.push_str(&row.shared(wide));
                    text.push_str(&row.sharers());
                }
                false => text.push_str(&row.single(wide)),
            }
        }
        text
    }
}

const SINGLE: [&str; 15] = [
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
    "IN/S",
    "OUT/S",
    "TOPIC",
];
const SHARED: [&str; 17] = [
    "PARTITION",
    "BACKLOG",
    "AGE",
    "READY",
    "HELD",
    "DELAYED",
    "DEAD",
    "IN/S",
    "OUT/S",
    "DRAIN",
    "STATE",
    "BASE",
    "END",
    "LETTERS",
    "EXPIRED",
    "EVICTED",
    "TOPIC",
];

impl SubscriptionView {
    /// Consumers share the records of a partition.
    fn is_shared(&self) -> bool {
        matches!(self.head.kind.as_str(), "queue" | "keyed")
    }

    /// One consumer gets all records of a partition.
    fn single(&self, wide: bool) -> String {
        let mut table = Table::new(&SINGLE[..if wide { SINGLE.len() } else { 7 }]);
        for cursor in &self.cursor {
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
                cells.push(rate(cursor.in_per_s));
                cells.push(rate(cursor.out_per_s));
                cells.push(cursor.topic.clone());
            }
            table.row(cells);
        }
        table.render()
    }

    /// Where the records of each partition are.
    fn shared(&self, wide: bool) -> String {
        let mut table = Table::new(&SHARED[..if wide { SHARED.len() } else { 11 }]);
        for cursor in &self.cursor {
            let state = match (&cursor.fault, cursor.blocked.first()) {
                (Some(fault), _) => fault.clone(),
                (None, Some(why)) => blocked(why).to_owned(),
                (None, None) => "ok".to_owned(),
            };
            let mut cells = vec![
                cursor.partition.to_string(),
                or_dash(cursor.backlog_records, grouped),
                or_dash(cursor.backlog_age_ms, age),
                or_dash(cursor.ready_records, grouped),
                or_dash(cursor.unacked_records, grouped),
                or_dash(cursor.delayed_records, grouped),
                or_dash(cursor.dead_records, grouped),
                rate(cursor.in_per_s),
                rate(cursor.out_per_s),
                or_dash(cursor.drain_ms, age),
                state,
            ];
            if wide {
                cells.push(or_dash(cursor.base, grouped));
                cells.push(or_dash(cursor.high_watermark, grouped));
                cells.push(or_dash(cursor.dead_letters, grouped));
                cells.push(or_dash(cursor.expired_records, grouped));
                cells.push(or_dash(cursor.evicted_records, grouped));
                cells.push(cursor.topic.clone());
            }
            table.row(cells);
        }
        table.render()
    }

    /// Who holds how many; nothing where nobody is attached.
    fn sharers(&self) -> String {
        let mut table = Table::new(&["CONSUMER", "PARTITION", "HELD", "SILENT", "STATE"]);
        let all = self.cursor.iter();
        let all = all.flat_map(|cursor| cursor.consumer.iter().map(move |it| (it, cursor)));
        let mut any = false;
        for (consumer, cursor) in all {
            any = true;
            let state = consumer.blocked.as_deref().map_or("ok", blocked);
            table.row(vec![
                consumer.name.clone(),
                cursor.partition.to_string(),
                grouped(consumer.unacked_records),
                match consumer.unacked_records {
                    0 => "-".to_owned(),
                    _ => age(consumer.silent_ms),
                },
                state.to_owned(),
            ]);
        }
        match any {
            true => format!("\n{}", table.render()),
            false => String::new(),
        }
    }
}
