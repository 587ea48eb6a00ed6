//! Topics as tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, DataType as SqlType, ExactNumberInfo, TimezoneInfo,
};

use crate::refusal::PlanError;

/// How records are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The value is one JSON object; unknown fields are ignored, missing ones are null.
    Json,
    /// Columns `key` and `value`, both `BYTEA`.
    Raw,
}

/// What `CREATE TABLE` says of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicTable {
    /// The table's name.
    pub name: String,
    /// The topic's name.
    pub topic: String,
    /// How its records are read and written.
    pub format: Format,
    /// Its columns.
    pub schema: SchemaRef,
    /// The column that is the time of a row.
    pub event_time: Option<String>,
    /// Rows may come out of order by this much.
    pub watermark_delay: Duration,
    /// Columns that become the key of a record.
    pub key: Vec<String>,
}

/// Event times, and all others: milliseconds of UTC.
pub const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

const OPTIONS: [&str; 5] = ["topic", "format", "event_time", "watermark_delay", "key"];

impl TopicTable {
    pub(crate) fn new(
        name: String,
        columns: &[ColumnDef],
        mut options: BTreeMap<String, String>,
    ) -> Result<Self, PlanError> {
        if let Some(unknown) = options.keys().find(|key| !OPTIONS.contains(&key.as_str())) {
            return Err(PlanError::invalid(format!(
                "option {unknown} of table {name} is unknown; there are {OPTIONS:?}"
            )));
        }
        let fields: Result<Vec<_>, _> = columns.iter().map(field).collect();
        let schema = Arc::new(Schema::new(fields?));
        let format = match options.remove("format").as_deref() {
            Some("json") | None => Format::Json,
            Some("raw") => Format::Raw,
            Some(other) => {
                return Err(PlanError::invalid(format!(
                    "format {other} of table {name} is unknown; there are json and raw"
                )));
            }
        };
        let delay = options
            .remove("watermark_delay")
            .map(|text| duration(&text))
            .transpose()?;
        let key = options.remove("key").unwrap_or_default();
        let key = key
            .split(',')
            .map(|column| column.trim().to_owned())
            .filter(|column| !column.is_empty());
        let table = Self {
            topic: options.remove("topic").unwrap_or_else(|| name.clone()),
            name,
            format,
            schema,
            event_time: options.remove("event_time"),
            watermark_delay: delay.unwrap_or_default(),
            key: key.collect(),
        };
        table.validated()
    }

    fn validated(self) -> Result<Self, PlanError> {
        let name = &self.name;
        for column in self.event_time.iter().chain(&self.key) {
            if self.schema.field_with_name(column).is_err() {
                return Err(PlanError::invalid(format!(
                    "table {name} has no column {column}"
                )));
            }
        }
        if let Some(time) = &self.event_time {
            let field = self.schema.field_with_name(time);
            if field.is_ok_and(|field| field.data_type() != &TIMESTAMP) {
                return Err(PlanError::invalid(format!(
                    "event time {time} of table {name} is not a TIMESTAMP"
                )));
            }
        }
        let raw = |field: &Arc<Field>| {
            matches!(field.name().as_str(), "key" | "value")
                && field.data_type() == &DataType::Binary
        };
        if self.format == Format::Raw && !self.schema.fields().iter().all(raw) {
            return Err(PlanError::invalid(format!(
                "table {name} of format raw has columns key BYTEA and value BYTEA only"
            )));
        }
        Ok(self)
    }
}

fn field(column: &ColumnDef) -> Result<Field, PlanError> {
    let name = crate::statement::folded(&column.name);
    let required = column
        .options
        .iter()
        .any(|option| matches!(option.option, ColumnOption::NotNull));
    let kind = arrow_type(&column.data_type).ok_or_else(|| {
        PlanError::invalid(format!(
            "type {} of column {name} is not supported",
            column.data_type
        ))
    })?;
    Ok(Field::new(name, kind, !required))
}

/// The Arrow type of a column.
fn arrow_type(kind: &SqlType) -> Option<DataType> {
    Some(match kind {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::SmallInt(_) => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) => DataType::Int32,
        SqlType::BigInt(_) => DataType::Int64,
        SqlType::Real => DataType::Float32,
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float(_) => DataType::Float64,
        SqlType::Varchar(_) | SqlType::Text | SqlType::String(_) | SqlType::Char(_) => {
            DataType::Utf8
        }
        SqlType::Bytea => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Timestamp(precision, TimezoneInfo::None)
            if precision.is_none_or(|digits| digits == 3) =>
        {
            TIMESTAMP
        }
        SqlType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, scale))
        | SqlType::Numeric(ExactNumberInfo::PrecisionAndScale(precision, scale)) => {
            let fits = (1..=38).contains(precision) && (0..=*precision as i64).contains(scale);
            fits.then_some(DataType::Decimal128(*precision as u8, *scale as i8))?
        }
        _ => return None,
    })
}

/// `5s`, `200ms`, `1m`, `2h`, `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, PlanError> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => 0,
    };
    let millis = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(scale));
    let millis = millis.filter(|_| scale > 0);
    millis.map(Duration::from_millis).ok_or_else(|| {
        PlanError::invalid(format!(
            "{text:?} is no duration; write 5s, 200ms, 1m, 2h or 1d"
        ))
    })
}
