//! Rows of state: in memory as bytes of Arrow's row format, written down as Arrow IPC. The row format promises nothing to another
//! version; IPC does (compute.md B6).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{RowConverter, SortField};
use bytes::Bytes;
use functions_runtime::codec::{CodecError, Reader};
use functions_runtime::state::{RowChange, RowCodec};
use hulse_proto::time::TimestampMs;

/// Between rows of a batch and rows of a state table. The key is the end of the pane, so that expiry is a range from the start, then
/// the groups; the value is the partial aggregates.
#[derive(Debug)]
pub struct StateRows {
    schema: SchemaRef,
    groups: usize,
    keys: RowConverter,
    values: RowConverter,
}

/// Bytes of a key before the groups.
const END_BYTES: usize = 8;

/// The order of the bytes is that of the numbers.
pub fn end_key(end: TimestampMs) -> [u8; END_BYTES] {
    (end as u64 ^ 1 << 63).to_be_bytes()
}

/// The end in a key.
pub fn end_of(key: &[u8]) -> Option<TimestampMs> {
    let end = key.get(..END_BYTES)?.try_into().ok()?;
    Some((u64::from_be_bytes(end) ^ 1 << 63) as i64)
}

impl StateRows {
    /// For rows of this schema, the first `groups` columns of which are the groups.
    ///
    /// # Errors
    /// A type that the row format does not know.
    pub fn new(schema: SchemaRef, groups: usize) -> Result<Self, ArrowError> {
        let converter = |fields: &[Arc<Field>]| {
            RowConverter::new(
                fields
                    .iter()
                    .map(|field| SortField::new(field.data_type().clone()))
                    .collect(),
            )
        };
        let (keys, values) = schema.fields().split_at(groups);
        Ok(Self {
            keys: converter(keys)?,
            values: converter(values)?,
            groups,
            schema,
        })
    }

    /// Keys of the rows of a batch whose panes end at `ends`.
    ///
    /// # Errors
    /// Of Arrow.
    pub fn keys(
        &self,
        batch: &RecordBatch,
        ends: &[TimestampMs],
    ) -> Result<Vec<Bytes>, ArrowError> {
        let rows = self.keys.convert_columns(&batch.columns()[..self.groups])?;
        let keys = rows
            .iter()
            .zip(ends)
            .map(|(row, end)| [&end_key(*end), row.as_ref()].concat().into());
        Ok(keys.collect())
    }

    /// Values of the rows of a batch.
    ///
    /// # Errors
    /// Of Arrow.
    pub fn values(&self, batch: &RecordBatch) -> Result<Vec<Bytes>, ArrowError> {
        if self.schema.fields().len() == self.groups {
            return Ok(vec![Bytes::new(); batch.num_rows()]);
        }
        let rows = self
            .values
            .convert_columns(&batch.columns()[self.groups..])?;
        Ok(rows
            .iter()
            .map(|row| Bytes::copy_from_slice(row.as_ref()))
            .collect())
    }

    /// A batch of rows as they stand in the table.
    ///
    /// # Errors
    /// Of Arrow.
    pub fn batch<'a>(
        &self,
        rows: impl Iterator<Item = (&'a Bytes, &'a Bytes)> + Clone,
    ) -> Result<RecordBatch, ArrowError> {
        let mut columns = self.groups(rows.clone().map(|(key, _)| key))?;
        if self.schema.fields().len() == self.groups {
            return RecordBatch::try_new(self.schema.clone(), columns);
        }
        let parser = self.values.parser();
        columns.extend(
            self.values
                .convert_rows(rows.map(|(_, value)| parser.parse(value)))?,
        );
        RecordBatch::try_new(self.schema.clone(), columns)
    }

    fn groups<'a>(
        &self,
        keys: impl Iterator<Item = &'a Bytes>,
    ) -> Result<Vec<ArrayRef>, ArrowError> {
        let parser = self.keys.parser();
        self.keys
            .convert_rows(keys.map(|key| parser.parse(key.get(END_BYTES..).unwrap_or_default())))
    }

    /// Schema of the batch of `ends`, groups and, if so, values.
    fn written(&self, values: bool) -> SchemaRef {
        let columns = if values {
            self.schema.fields().len()
        } else {
            self.groups
        };
        let end = Arc::new(Field::new("__end", DataType::Int64, false));
        let fields = std::iter::once(end).chain(self.schema.fields()[..columns].iter().cloned());
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn write(&self, schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<Vec<u8>, ArrowError> {
        let batch = RecordBatch::try_new(schema.clone(), columns)?;
        let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
        writer.write(&batch)?;
        writer.into_inner()
    }

    fn encode_rows(&self, rows: &[RowChange]) -> Result<Bytes, ArrowError> {
        let kept = rows
            .iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let gone = rows
            .iter()
            .filter(|(_, value)| value.is_none())
            .map(|(key, _)| key);
        let mut upserts = vec![ends(kept.clone().map(|(key, _)| key))];
        upserts.extend(self.batch(kept)?.columns().iter().cloned());
        let mut deletes = vec![ends(gone.clone())];
        deletes.extend(self.groups(gone)?);
        let mut out = Vec::new();
        for part in [
            self.write(self.written(true), upserts)?,
            self.write(self.written(false), deletes)?,
        ] {
            out.extend((part.len() as u32).to_le_bytes());
            out.extend(part);
        }
        Ok(out.into())
    }

    fn decode_part(&self, part: &Bytes, values: bool) -> Result<Vec<RowChange>, CodecError> {
        let mut rows = Vec::new();
        let reader = StreamReader::try_new(std::io::Cursor::new(part), None).map_err(refused)?;
        if reader.schema() != self.written(values) {
            return Err(CodecError::Rows {
                what: format!("schema {:?} is not the table's", reader.schema()),
            });
        }
        for batch in reader {
            let batch = batch.map_err(refused)?;
            let ends = batch
                .column(0)
                .as_any()
                .downcast_ref::<Int64Array>()
                .map(|ends| ends.values().to_vec());
            let rest = batch
                .project(&(1..batch.num_columns()).collect::<Vec<_>>())
                .map_err(refused)?;
            let keys = self
                .keys(&rest, &ends.unwrap_or_default())
                .map_err(refused)?;
            match values {
                true => {
                    let values = self.values(&rest).map_err(refused)?;
                    rows.extend(keys.into_iter().zip(values.into_iter().map(Some)));
                }
                false => rows.extend(keys.into_iter().map(|key| (key, None))),
            }
        }
        Ok(rows)
    }
}

fn ends<'a>(keys: impl Iterator<Item = &'a Bytes>) -> ArrayRef {
    Arc::new(
        keys.map(|key| end_of(key).unwrap_or_default())
            .collect::<Int64Array>(),
    )
}

fn refused(error: ArrowError) -> CodecError {
    CodecError::Rows {
        what: error.to_string(),
    }
}

impl RowCodec for StateRows {
    fn encode(&self, rows: &[RowChange]) -> Result<Bytes, CodecError> {
        self.encode_rows(rows).map_err(refused)
    }

    fn decode(&self, bytes: &Bytes) -> Result<Vec<RowChange>, CodecError> {
        let mut reader = Reader::new(bytes);
        let mut rows = Vec::new();
        for values in [true, false] {
            let length = reader.u32()? as usize;
            let part = reader.bytes(length)?;
            rows.extend(self.decode_part(&part, values)?);
        }
        reader.end()?;
        Ok(rows)
    }
}
