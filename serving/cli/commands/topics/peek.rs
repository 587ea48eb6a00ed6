//! `hulse topics peek`: some records as a table, for a look.

use hulse_sdk::{Admin, Client, Offset, ReadRecord, Start};
use serde::{Serialize, Serializer};

use crate::arguments::Peek;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::format::{HeaderView, RECORD_FIELDS, RecordView, date_and_time, json_record};
use crate::output::{Field, Table, View, grouped};
use crate::position::{Place, Position};
use crate::roles::SystemClock;
use hulse_proto::time::WallClock as _;

/// Longest cell.
const CELL_CHARS_MAX: usize = 60;

/// A record as it is shown.
pub(crate) struct PeekView {
    topic: String,
    record: ReadRecord,
}

impl PeekView {
    fn with<T>(&self, shown: impl FnOnce(&RecordView<'_>) -> T) -> T {
        let record = &self.record;
        let headers: Vec<HeaderView<'_>> = record
            .headers
            .iter()
            .map(|header| (&header.key[..], header.value.as_deref()))
            .collect();
        shown(&RecordView {
            topic: &self.topic,
            partition: record.partition,
            offset: record.offset.0,
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        })
    }
}

impl Serialize for PeekView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with(json_record).serialize(serializer)
    }
}

impl View for PeekView {
    const FIELDS: &'static [Field] = RECORD_FIELDS;

    fn name(&self) -> String {
        let record = &self.record;
        format!("{}/{}@{}", self.topic, record.partition, record.offset.0)
    }

    fn text(rows: &[Self], wide: bool) -> String {
        let narrow = ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE"];
        let broad = ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE", "HEADERS"];
        let mut table = Table::new(if wide { &broad } else { &narrow });
        for row in rows {
            let record = &row.record;
            let mut cells = vec![
                record.partition.to_string(),
                grouped(record.offset.0),
                date_and_time(record.timestamp),
                cell(record.key.as_deref()),
                value(record),
            ];
            if wide {
                let headers = record.headers.iter().map(|header| {
                    let value = cell(header.value.as_deref());
                    format!("{}={value}", cell(Some(&header.key)))
                });
                cells.push(headers.collect::<Vec<_>>().join(" "));
            }
            table.row(cells);
        }
        table.render()
    }
}

/// A value for a cell. None at all is not the same as a key that is missing: with a key it says that the key is deleted.
fn value(record: &ReadRecord) -> String {
    match (&record.key, &record.value) {
        (_, Some(value)) => cell(Some(value)),
        (Some(_), None) => "(tombstone)".to_owned(),
        (None, None) => "(null)".to_owned(),
    }
}

/// Bytes for a cell: text with its control characters escaped, other bytes in hexadecimal, both cut.
fn cell(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "-".to_owned();
    };
    let head = &bytes[..bytes.len().min(4 * CELL_CHARS_MAX)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // Cut in the middle of a character.
        Err(error) if error.error_len().is_none() && head.len() < bytes.len() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let shown: String = match text {
        Some(text) => text
            .chars()
            .flat_map(|c| match c.is_control() {
                true => c.escape_default().collect::<Vec<_>>(),
                false => vec![c],
            })
            .collect(),
        None => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{hex}")
        }
    };
    if shown.chars().count() <= CELL_CHARS_MAX && head.len() == bytes.len() {
        return shown;
    }
    let cut: String = shown.chars().take(CELL_CHARS_MAX - 1).collect();
    format!("{cut}…")
}

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(session: Session<'_>, client: &Client, peek: &Peek) -> Result<(), Stop> {
    let failed = |error: hulse_sdk::Error| Failure::from_sdk("cannot peek", &peek.topic, &error);
    let starts = starts(&client.admin(), peek).await?;
    let mut rows = Vec::new();
    if !starts.is_empty() {
        let mut builder = client.reader(&peek.topic).follow(false);
        for (partition, offset) in &starts {
            builder = builder.start_at(*partition, Start::Offset(Offset(*offset)));
        }
        let partitions = starts.iter().map(|(partition, _)| *partition);
        let mut reader = builder
            .partitions(partitions)
            .build()
            .await
            .map_err(failed)?;
        let mut left: std::collections::BTreeMap<u32, u32> = starts
            .iter()
            .map(|(partition, _)| (*partition, peek.count))
            .collect();
        while left.values().any(|left| *left > 0) {
            let Some(record) = reader.next().await.map_err(failed)? else {
                break;
            };
            let Some(left) = left.get_mut(&record.partition).filter(|left| **left > 0) else {
                continue;
            };
            *left -= 1;
            rows.push(PeekView {
                topic: reader.topic().to_owned(),
                record,
            });
        }
    }
    rows.sort_by_key(|row| {
        (
            row.record.timestamp,
            row.record.partition,
            row.record.offset.0,
        )
    });
    let surplus = rows.len().saturating_sub(peek.count as usize);
    match peek.offset {
        Some(_) => rows.truncate(peek.count as usize),
        None => drop(rows.drain(..surplus)),
    }
    session.output.list(&rows)
}

/// Where to begin in each partition that has records there.
async fn starts(admin: &Admin, peek: &Peek) -> Result<Vec<(u32, u64)>, Failure> {
    let failed = |error: hulse_sdk::Error| Failure::from_sdk("cannot peek", &peek.topic, &error);
    let count = admin
        .describe_topic(&peek.topic)
        .await
        .map_err(failed)?
        .partitions;
    let partitions = match peek.partitions.is_empty() {
        true => (0..count).collect(),
        false => peek.partitions.clone(),
    };
    if let Some(wrong) = partitions.iter().find(|partition| **partition >= count) {
        return Err(Failure::new(Code::Usage, "there is no such partition")
            .why(format!("the topic has {count}, from 0"))
            .object(format!("{}, partition {wrong}", peek.topic))
            .next(format!("hulse topics describe {}", peek.topic)));
    }
    let from = peek.offset.unwrap_or(Position {
        from: Place::BeforeEnd(u64::from(peek.count)),
        until: None,
    });
    let time = from.from.time(SystemClock.now_ms());
    let mut starts = Vec::new();
    for partition in partitions {
        let bounds = admin
            .offsets(&peek.topic, partition, time)
            .await
            .map_err(failed)?;
        let found = bounds.at_time.map(|offset| offset.0);
        let start = from.from.offset(bounds.start.0, bounds.end.0, found);
        if start < bounds.end.0 {
            starts.push((partition, start));
        }
    }
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_text_as_it_is_and_other_bytes_in_hexadecimal() {
        assert_eq!(cell(None), "-");
        assert_eq!(cell(Some(b"a\tb")), "a\\tb");
        assert_eq!(cell(Some(&[0xff, 1])), "0xff01");
        let long = "ä".repeat(200);
        let shown = cell(Some(long.as_bytes()));
        assert_eq!(shown.chars().count(), CELL_CHARS_MAX);
        assert!(shown.ends_with('…'), "{shown}");
    }
}
