//! Cursors that were moved, and records that are tried anew, as they are shown.

use hulse_sdk::MovedCursor;
use serde::Serialize;

use super::pace::or_dash;
use crate::output::{Field, Table, View, grouped};

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

/// Records that are tried anew, or would be.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RedrivenView {
    pub(super) topic: String,
    /// `None`: a dead-letter topic is not of one partition.
    pub(super) partition: Option<u32>,
    pub(super) from: String,
    pub(super) records: Option<u64>,
    pub(super) left: u64,
    pub(super) fault: Option<String>,
}

impl From<&MovedCursor> for RedrivenView {
    fn from(moved: &MovedCursor) -> Self {
        Self {
            topic: moved.topic.clone(),
            partition: Some(moved.partition),
            from: "parked".to_owned(),
            records: moved.fault.is_none().then_some(moved.redriven_records),
            left: 0,
            fault: moved.fault.as_ref().map(ToString::to_string),
        }
    }
}

impl View for RedrivenView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic that they go back to"),
        Field::integer("partition", "from 0; null: of a dead-letter topic").or_null(),
        Field::text("from", "parked, or the dead-letter topic"),
        Field::integer("records", "tried anew, or would be; null: see fault").or_null(),
        Field::integer("left", "were redriven as often as they may be, and stay"),
        Field::text("fault", "why its partition does not do it").or_null(),
    ];

    fn name(&self) -> String {
        match self.partition {
            Some(partition) => format!("{}/{partition}", self.topic),
            None => self.topic.clone(),
        }
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let headings = ["PARTITION", "FROM", "RECORDS", "LEFT", "STATE", "TOPIC"];
        let mut table = Table::new(&headings[..if wide { 6 } else { 5 }]);
        for row in rows {
            let mut cells = vec![
                or_dash(row.partition, |partition| partition.to_string()),
                row.from.clone(),
                or_dash(row.records, grouped),
                grouped(row.left),
                row.fault.clone().unwrap_or_else(|| "ok".to_owned()),
            ];
            cells.extend(wide.then(|| row.topic.clone()));
            table.row(cells);
        }
        table.render()
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
