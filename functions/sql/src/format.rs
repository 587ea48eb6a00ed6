//! Records to rows and back (compute.md B9).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BinaryBuilder, RecordBatch, TimestampMillisecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::writer::LineDelimited;
use arrow::json::{ReaderBuilder, WriterBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use functions_runtime::record::{Destination, InputRecord, OutputRecord};
use hulse_proto::time::TimestampMs;

use crate::table::{Format, TopicTable};

/// Rows of records, and the records that are none.
pub struct Decoded {
    /// In the order of the records.
    pub rows: RecordBatch,
    /// Which record each row is.
    pub of: Vec<usize>,
    /// Records that cannot be read, with the reason.
    pub bad: Vec<(usize, String)>,
}

/// Decodes records as rows of a table.
///
/// # Errors
/// Of Arrow, for what is not a record's fault.
pub fn decode(table: &TopicTable, records: &[&InputRecord]) -> Result<Decoded, ArrowError> {
    match table.format {
        Format::Raw => raw(&table.schema, records),
        Format::Json => match json_together(&table.schema, records)? {
            Some(rows) => Ok(Decoded {
                rows,
                of: (0..records.len()).collect(),
                bad: Vec::new(),
            }),
            // One of them is bad: each alone.
            None => json_each(&table.schema, records),
        },
    }
}

fn json_together(
    schema: &SchemaRef,
    records: &[&InputRecord],
) -> Result<Option<RecordBatch>, ArrowError> {
    let mut decoder = ReaderBuilder::new(schema.clone())
        .with_batch_size(records.len().max(1))
        .build_decoder()?;
    for (index, record) in records.iter().enumerate() {
        let value = record.value.as_deref().unwrap_or_default();
        let read = decoder.decode(value);
        let whole = read.is_ok_and(|read| value[read..].iter().all(u8::is_ascii_whitespace));
        if !whole || decoder.has_partial_record() || decoder.len() != index + 1 {
            return Ok(None);
        }
    }
    match decoder.flush() {
        Ok(Some(rows)) => Ok(Some(rows)),
        Ok(None) => Ok(Some(RecordBatch::new_empty(schema.clone()))),
        Err(_) => Ok(None),
    }
}

fn json_each(schema: &SchemaRef, records: &[&InputRecord]) -> Result<Decoded, ArrowError> {
    let (mut rows, mut of, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        match json_one(schema, record) {
            Ok(row) => {
                rows.push(row);
                of.push(index);
            }
            Err(why) => bad.push((index, why)),
        }
    }
    Ok(Decoded {
        rows: concat_batches(schema, &rows)?,
        of,
        bad,
    })
}

fn json_one(schema: &SchemaRef, record: &InputRecord) -> Result<RecordBatch, String> {
    let value = record.value.as_deref().ok_or("the record has no value")?;
    let decoder = ReaderBuilder::new(schema.clone())
        .with_batch_size(2)
        .build_decoder();
    let mut decoder = decoder.map_err(|error| error.to_string())?;
    let read = decoder.decode(value).map_err(|error| error.to_string())?;
    let whole = value[read..].iter().all(u8::is_ascii_whitespace) && !decoder.has_partial_record();
    let row = decoder.flush().map_err(|error| error.to_string())?;
    match row {
        Some(row) if whole && row.num_rows() == 1 => Ok(row),
        _ => Err("the value is not one JSON object".to_owned()),
    }
}

fn raw(schema: &SchemaRef, records: &[&InputRecord]) -> Result<Decoded, ArrowError> {
    let columns = schema.fields().iter().map(|field| {
        let mut column = BinaryBuilder::new();
        for record in records {
            let bytes = if field.name() == "key" {
                &record.key
            } else {
                &record.value
            };
            column.append_option(bytes.as_deref());
        }
        Arc::new(column.finish()) as ArrayRef
    });
    Ok(Decoded {
        rows: RecordBatch::try_new(schema.clone(), columns.collect())?,
        of: (0..records.len()).collect(),
        bad: Vec::new(),
    })
}

/// Rows of a sink as records. The time of a record is the row's event time if the sink has one, else `now`.
///
/// # Errors
/// Of Arrow.
pub fn encode(
    table: &TopicTable,
    rows: &RecordBatch,
    now: TimestampMs,
) -> Result<Vec<OutputRecord>, ArrowError> {
    let times = table
        .event_time
        .as_ref()
        .and_then(|time| rows.column_by_name(time));
    let times = times.and_then(|times| times.as_any().downcast_ref::<TimestampMillisecondArray>());
    let time = |row: usize| {
        times
            .filter(|times| times.is_valid(row))
            .map_or(now, |times| times.value(row))
    };
    let (keys, values) = match table.format {
        Format::Raw => (bytes_of(rows, "key"), bytes_of(rows, "value")),
        Format::Json => (keys(table, rows)?, lines(rows)?),
    };
    let records = keys
        .into_iter()
        .zip(values)
        .enumerate()
        .map(|(row, (key, value))| OutputRecord {
            destination: Destination::Output(0),
            timestamp: time(row),
            key,
            value,
            headers: Vec::new(),
        });
    Ok(records.collect())
}

fn bytes_of(rows: &RecordBatch, column: &str) -> Vec<Option<Bytes>> {
    let column = rows
        .column_by_name(column)
        .and_then(|column| column.as_any().downcast_ref::<BinaryArray>());
    let row = |row: usize| {
        column
            .filter(|column| column.is_valid(row))
            .map(|column| Bytes::copy_from_slice(column.value(row)))
    };
    (0..rows.num_rows()).map(row).collect()
}

/// One column: its text. Several: a JSON object of them. A null key is none.
fn keys(table: &TopicTable, rows: &RecordBatch) -> Result<Vec<Option<Bytes>>, ArrowError> {
    let indices: Result<Vec<usize>, _> = table
        .key
        .iter()
        .map(|column| rows.schema().index_of(column))
        .collect();
    match indices?[..] {
        [] => Ok(vec![None; rows.num_rows()]),
        [one] => {
            let column = rows.column(one);
            let options = FormatOptions::default();
            let text = ArrayFormatter::try_new(column, &options)?;
            let key = |row: usize| {
                column
                    .is_valid(row)
                    .then(|| Bytes::from(text.value(row).to_string()))
            };
            Ok((0..rows.num_rows()).map(key).collect())
        }
        ref several => lines(&rows.project(several)?),
    }
}

fn lines(rows: &RecordBatch) -> Result<Vec<Option<Bytes>>, ArrowError> {
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, LineDelimited>(Vec::new());
    writer.write(rows)?;
    writer.finish()?;
    let text = Bytes::from(writer.into_inner());
    let mut lines = Vec::with_capacity(rows.num_rows());
    let mut from = 0;
    for (at, byte) in text.iter().enumerate() {
        if *byte == b'\n' {
            lines.push(Some(text.slice(from..at)));
            from = at + 1;
        }
    }
    Ok(lines)
}
