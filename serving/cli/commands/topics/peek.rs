//! `hulse topics peek`: some records as a table, for a look.

use hulse_sdk::{Admin, Client, Offset, ReadRecord, Start};
use serde::{Serialize, Serializer};

use crate::arguments::Peek;
use crate::commands::beyond::{self, Held};
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::format::{HeaderView, RECORD_FIELDS, RecordView, cell_headings, cells, json_record};
use crate::output::{Field, Table, View};
use crate::position::{Place, Position};
use crate::roles::SystemClock;
use hulse_proto::time::WallClock as _;

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
        let mut table = Table::new(cell_headings(wide));
        for row in rows {
            table.row(row.with(|record| cells(record, wide)));
        }
        table.render()
    }
}

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(session: Session<'_>, client: &Client, peek: &Peek) -> Result<(), Stop> {
    let failed = |error: hulse_sdk::Error| Failure::from_sdk("cannot peek", &peek.topic, &error);
    let (starts, held) = starts(&client.admin(), peek).await?;
    if starts.is_empty() {
        let place = peek.offset.map_or(Place::Start, |position| position.from);
        let words = beyond::words(client, &peek.topic, place, &held).await;
        session.output.say(&words);
    }
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

/// Where to begin in each partition that has records there, and what each holds.
async fn starts(admin: &Admin, peek: &Peek) -> Result<(Vec<(u32, u64)>, Vec<Held>), Failure> {
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
    let (mut starts, mut held) = (Vec::new(), Vec::new());
    for partition in partitions {
        let bounds = admin
            .offsets(&peek.topic, partition, time)
            .await
            .map_err(failed)?;
        held.push(Held {
            partition,
            start: bounds.start.0,
            end: bounds.end.0,
        });
        let found = bounds.at_time.map(|offset| offset.0);
        let start = from.from.offset(bounds.start.0, bounds.end.0, found);
        if start < bounds.end.0 {
            starts.push((partition, start));
        }
    }
    Ok((starts, held))
}
