//! Topics and their partitions as they are shown.

use hulse_sdk::{BacklogQuota, Keep, KeptBacklog, Partition, Topic};
use serde::Serialize;

use super::copied::CopiesView;
use super::damaged::DamageView;
use crate::format::date;
use crate::output::{Field, Table, View, bytes, grouped};
use crate::retained::{shown_size, shown_time};

/// What is shown of a limit that is none.
const OFF: &str = "off";
/// Percent of a quota.
const FULL: u32 = 100;

/// A topic in a list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TopicRow {
    topic: String,
    id: String,
    partitions: u32,
    state: String,
    created_at_ms: i64,
}

/// A topic with its partitions.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TopicView {
    #[serde(flatten)]
    head: TopicRow,
    /// Records kept in partitions that are open; `None` where none is.
    records: Option<u64>,
    stored_bytes: Option<u64>,
    /// How long records stay in the end, as text with units.
    retention: String,
    retention_size: String,
    /// How much each subscription may keep in the end, and what happens to one that keeps more.
    backlog_size: String,
    backlog_age: String,
    backlog_policy: String,
    #[serde(flatten)]
    copies: CopiesView,
    /// While it is being deleted.
    partitions_left: Option<u32>,
    partition: Vec<PartitionView>,
}

/// A partition.
#[derive(Debug, Clone, Serialize)]
struct PartitionView {
    partition: u32,
    owner: String,
    leader_epoch: u32,
    log_start: Option<u64>,
    high_watermark: Option<u64>,
    stored_bytes: Option<u64>,
    /// Why it does not serve.
    fault: Option<String>,
    /// The subscription that is nearest to the backlog quota, and how much of it it keeps.
    backlog_subscription: Option<String>,
    backlog_percent: Option<u32>,
    /// Producers are refused because of it.
    refusing: bool,
    /// Records that cannot be read.
    damage: Vec<DamageView>,
}

impl From<&Topic> for TopicRow {
    fn from(topic: &Topic) -> Self {
        Self {
            topic: topic.name.clone(),
            id: topic.id.to_string(),
            partitions: topic.partitions,
            state: topic.state.clone(),
            created_at_ms: topic.created_at_ms,
        }
    }
}

impl From<Partition> for PartitionView {
    fn from(partition: Partition) -> Self {
        let open = partition.high_watermark.is_some();
        let kept: Option<&KeptBacklog> = partition.backlog.as_ref();
        Self {
            backlog_subscription: kept.map(|kept| kept.subscription.clone()),
            backlog_percent: kept.map(|kept| kept.used_percent),
            refusing: kept.is_some_and(|kept| kept.refusing),
            damage: partition.damage.into_iter().map(Into::into).collect(),
            partition: partition.index,
            owner: partition.owner.unwrap_or_default(),
            leader_epoch: partition.leader_epoch,
            // Both are known once it is open; before, 0 would say more than anybody knows.
            log_start: partition.log_start.filter(|_| open).map(|offset| offset.0),
            high_watermark: partition.high_watermark.map(|offset| offset.0),
            stored_bytes: partition.stored_bytes,
            fault: partition.fault.map(|fault| fault.to_string()),
        }
    }
}

impl From<Topic> for TopicView {
    fn from(topic: Topic) -> Self {
        let head = TopicRow::from(&topic);
        let kept = topic.effective_retention;
        let quota = topic.effective_backlog_quota;
        let copies = CopiesView::new(topic.effective_replication, topic.copies);
        let partition: Vec<PartitionView> = topic.partition.into_iter().map(Into::into).collect();
        Self {
            head,
            records: sum(partition.iter().map(PartitionView::records)),
            stored_bytes: sum(partition.iter().map(|partition| partition.stored_bytes)),
            retention: shown_time(kept.time),
            retention_size: shown_size(kept.bytes),
            backlog_size: shown_size(quota.bytes),
            backlog_age: shown_time(quota.time),
            backlog_policy: policy(&quota).to_owned(),
            copies,
            partitions_left: topic.partitions_left,
            partition,
        }
    }
}

impl TopicView {
    /// Full name.
    pub(crate) fn topic(&self) -> &str {
        &self.head.topic
    }

    /// "8 partitions".
    pub(crate) fn partitions(&self) -> String {
        match self.head.partitions {
            1 => "1 partition".to_owned(),
            count => format!("{count} partitions"),
        }
    }

    /// "8 partitions, 3 copies, 2 before an acknowledgement".
    pub(crate) fn made_of(&self) -> String {
        format!("{}, {}", self.partitions(), self.copies.words())
    }

    /// How many copies it has.
    pub(crate) fn copies(&self) -> &CopiesView {
        &self.copies
    }

    /// How long its records stay, in a sentence.
    pub(crate) fn kept(&self) -> String {
        format!(
            "{} keeps records by time: {}, by size of each partition: {}; {}; new ledgers: {}",
            self.head.topic,
            self.retention,
            self.retention_size,
            self.quota(),
            self.copies.words()
        )
    }

    /// How much its subscriptions may keep, in a sentence.
    fn quota(&self) -> String {
        let limits = match (&*self.backlog_size, &*self.backlog_age) {
            (OFF, OFF) => return "backlogs have no limit".to_owned(),
            (size, OFF) => size.to_owned(),
            (OFF, age) => age.to_owned(),
            (size, age) => format!("{size} or {age}"),
        };
        format!(
            "a subscription may keep {limits} of each partition, then: {}",
            self.backlog_policy
        )
    }

    /// The line above the partitions.
    pub(crate) fn headline(&self) -> String {
        let left = self.partitions_left.map_or_else(String::new, |left| {
            format!(" ({} left)", grouped(left.into()))
        });
        format!(
            "{}  {}{left}  {}  retention {}, size {}  {}  id {}",
            self.head.topic,
            self.head.state,
            self.made_of(),
            self.retention,
            self.retention_size,
            self.quota(),
            self.head.id
        )
    }
}

impl PartitionView {
    fn records(&self) -> Option<u64> {
        Some(self.high_watermark?.saturating_sub(self.log_start?))
    }

    fn state(&self) -> String {
        match &self.fault {
            Some(fault) => fault.clone(),
            None if !self.damage.is_empty() => {
                let words: Vec<String> = self.damage.iter().map(DamageView::words).collect();
                words.join("; ")
            }
            None if self.high_watermark.is_none() => "not opened yet".to_owned(),
            None => match (&self.backlog_subscription, self.backlog_percent) {
                (Some(subscription), Some(percent)) if percent > FULL => {
                    let refused = match self.refusing {
                        true => "; producers are refused",
                        false => "",
                    };
                    format!("{subscription} uses {percent} % of the backlog quota{refused}")
                }
                _ => "ok".to_owned(),
            },
        }
    }
}

/// What happens to a subscription that keeps too much.
fn policy(quota: &BacklogQuota) -> &'static str {
    match (quota.bytes, quota.time, quota.action) {
        (Keep::All, Keep::All, _) => OFF,
        (_, _, action) => action.map_or("hold", hulse_sdk::BacklogAction::as_str),
    }
}

/// Of what is known; `None` when nothing is.
fn sum(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values
        .flatten()
        .fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
}

fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

impl View for TopicRow {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic"),
        Field::text(
            "id",
            "its identity; a topic that is made anew has another one",
        ),
        Field::integer("partitions", "how many"),
        Field::text("state", "active or deleting"),
        Field::integer("created_at_ms", "ms since 1970"),
    ];

    fn name(&self) -> String {
        self.topic.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let headings = ["TOPIC", "PARTS", "CREATED", "STATE", "ID"];
        let mut table = Table::new(&headings[..if wide { 5 } else { 4 }]);
        for row in rows {
            let mut cells = vec![
                row.topic.clone(),
                grouped(u64::from(row.partitions)),
                date(row.created_at_ms),
                row.state.clone(),
            ];
            cells.extend(wide.then(|| row.id.clone()));
            table.row(cells);
        }
        table.render()
    }
}

impl View for TopicView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic"),
        Field::text(
            "id",
            "its identity; a topic that is made anew has another one",
        ),
        Field::integer("partitions", "how many"),
        Field::text("state", "active or deleting"),
        Field::integer("created_at_ms", "ms since 1970"),
        Field::integer("records", "kept in partitions that are open").or_null(),
        Field::integer("stored_bytes", "of partitions that are open").or_null(),
        Field::text(
            "retention",
            "records go this long after their append; off: never",
        ),
        Field::text(
            "retention_size",
            "of each partition so much stays; off: all",
        ),
        Field::text(
            "backlog_size",
            "each subscription may keep so much of each partition; off: all",
        ),
        Field::text(
            "backlog_age",
            "each subscription may keep a record so long; off: for ever",
        ),
        Field::text(
            "backlog_policy",
            "of one that keeps more: hold, reject (producers) or evict; off: there is no limit",
        ),
        Field::integer(
            "ensemble",
            "bookies of a new ledger, over which its records are spread",
        ),
        Field::integer("write_quorum", "copies of each new record"),
        Field::integer(
            "ack_quorum",
            "copies that are durable before a record is acknowledged",
        ),
        Field::integer("ledgers", "that were looked at; null: not told").or_null(),
        Field::integer(
            "ledgers_made_with_fewer_copies",
            "than new ones get; they keep them",
        )
        .or_null(),
        Field::integer(
            "ledgers_lacking_copies",
            "closed ones with copies on bookies that are gone, or that were never made",
        )
        .or_null(),
        Field::integer(
            "partitions_left",
            "while it is being deleted: partitions whose data are not gone yet",
        )
        .or_null(),
        Field::integer("partition[].partition", "from 0"),
        Field::text(
            "partition[].owner",
            "host:port of the broker that serves it",
        ),
        Field::integer(
            "partition[].leader_epoch",
            "grows with each take-over; 0: not opened yet",
        ),
        Field::integer(
            "partition[].log_start",
            "oldest offset; null: not opened yet",
        )
        .or_null(),
        Field::integer("partition[].high_watermark", "offset that comes next").or_null(),
        Field::integer("partition[].stored_bytes", "of its log").or_null(),
        Field::text("partition[].fault", "why it does not serve").or_null(),
        Field::text(
            "partition[].backlog_subscription",
            "the one that is nearest to the backlog quota",
        )
        .or_null(),
        Field::integer("partition[].backlog_percent", "of the quota that it keeps").or_null(),
        Field::boolean(
            "partition[].refusing",
            "producers are refused because of it",
        ),
        Field::integer("partition[].damage[].ledger", "that holds damaged records"),
        Field::text("partition[].damage[].kind", "of the ledger: log or state"),
        Field::integer("partition[].damage[].first_entry", "of the damaged ones"),
        Field::integer("partition[].damage[].end_entry", "exclusive"),
        Field::integer(
            "partition[].damage[].first_offset",
            "the damaged records lie behind it; null: of a state",
        )
        .or_null(),
        Field::integer("partition[].damage[].end_offset", "and before it").or_null(),
        Field::integer(
            "partition[].damage[].file",
            "number of the storage node's log file",
        ),
    ];

    fn name(&self) -> String {
        self.head.topic.clone()
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let narrow = ["PARTITION", "START", "END", "RECORDS", "STATE"];
        let broad = [
            "PARTITION",
            "START",
            "END",
            "RECORDS",
            "STORED",
            "EPOCH",
            "OWNER",
            "STATE",
        ];
        let mut table = Table::new(if wide { &broad } else { &narrow });
        for partition in rows.iter().flat_map(|row| &row.partition) {
            let mut cells = vec![
                partition.partition.to_string(),
                or_dash(partition.log_start, grouped),
                or_dash(partition.high_watermark, grouped),
                or_dash(partition.records(), grouped),
            ];
            if wide {
                let epoch = Some(partition.leader_epoch).filter(|epoch| *epoch > 0);
                cells.push(or_dash(partition.stored_bytes, bytes));
                cells.push(or_dash(epoch, |epoch| epoch.to_string()));
                cells.push(partition.owner.clone());
            }
            cells.push(partition.state());
            table.row(cells);
        }
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_that_is_not_open_shows_what_is_unknown_as_dashes() {
        let partition = PartitionView {
            partition: 7,
            owner: "b:1".to_owned(),
            leader_epoch: 0,
            log_start: None,
            high_watermark: None,
            stored_bytes: None,
            fault: None,
            backlog_subscription: None,
            backlog_percent: None,
            refusing: false,
            damage: Vec::new(),
        };
        let view = TopicView {
            head: TopicRow {
                topic: "t".to_owned(),
                id: String::new(),
                partitions: 1,
                state: "active".to_owned(),
                created_at_ms: 0,
            },
            records: None,
            stored_bytes: None,
            retention: "7d".to_owned(),
            retention_size: "off".to_owned(),
            backlog_size: "off".to_owned(),
            backlog_age: "off".to_owned(),
            backlog_policy: "off".to_owned(),
            copies: CopiesView::new(hulse_sdk::Replication::factor(1), None),
            partitions_left: None,
            partition: vec![partition],
        };
        let shown = TopicView::text(&[view], true);
        let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        let expected = ["7", "-", "-", "-", "-", "-", "b:1", "not", "opened", "yet"];
        assert_eq!(row, expected);
    }

    #[test]
    fn partition_over_its_quota_names_the_subscription_and_what_follows() {
        let mut partition = PartitionView {
            partition: 0,
            owner: String::new(),
            leader_epoch: 1,
            log_start: Some(0),
            high_watermark: Some(9),
            stored_bytes: Some(9),
            fault: None,
            backlog_subscription: Some("public/default/slow".to_owned()),
            backlog_percent: Some(250),
            refusing: true,
            damage: Vec::new(),
        };
        let words = "public/default/slow uses 250 % of the backlog quota; producers are refused";
        assert_eq!(partition.state(), words);
        partition.backlog_percent = Some(100);
        assert_eq!(partition.state(), "ok");
    }

    #[test]
    fn sums_are_of_what_is_known() {
        assert_eq!(sum([Some(1), None, Some(2)].into_iter()), Some(3));
        assert_eq!(sum([None, None].into_iter()), None);
    }
}
