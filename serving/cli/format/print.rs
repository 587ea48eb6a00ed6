//! Prints records by a format.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::compile::{Form, FormatError, Token, Verb, compile};
use super::date;
use crate::output::{Field, Shape, yaml};

/// Name and value of a header.
pub(crate) type HeaderView<'a> = (&'a [u8], Option<&'a [u8]>);

/// A record as it is printed. Borrowed, so that printing copies nothing but into the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordView<'a> {
    /// Full name.
    pub(crate) topic: &'a str,
    /// From 0.
    pub(crate) partition: u32,
    /// In the partition.
    pub(crate) offset: u64,
    /// ms since 1970.
    pub(crate) timestamp: i64,
    /// `None`: null.
    pub(crate) key: Option<&'a [u8]>,
    /// `None`: null.
    pub(crate) value: Option<&'a [u8]>,
    /// In order; names may repeat.
    pub(crate) headers: &'a [HeaderView<'a>],
}

/// A compiled format and the number of records printed.
#[derive(Debug)]
pub(crate) struct Printer {
    tokens: Vec<Token>,
    count: u64,
}

impl Printer {
    /// Compiles a format.
    ///
    /// # Errors
    /// What is wrong with it and where.
    pub(crate) fn new(format: &str) -> Result<Self, FormatError> {
        Ok(Self {
            tokens: compile(format)?,
            count: 0,
        })
    }

    /// Appends one record to `out`.
    pub(crate) fn print(&mut self, record: &RecordView<'_>, out: &mut Vec<u8>) {
        self.count += 1;
        for token in &self.tokens {
            match token {
                Token::Literal(bytes) => out.extend_from_slice(bytes),
                Token::Field(verb, form) => self.field(verb, form, record, out),
            }
        }
    }

    fn field(&self, verb: &Verb, form: &Form, record: &RecordView<'_>, out: &mut Vec<u8>) {
        let number = match verb {
            Verb::Topic => return bytes(Some(record.topic.as_bytes()), form, out),
            Verb::Key => return bytes(record.key, form, out),
            Verb::Value => return bytes(record.value, form, out),
            Verb::Headers => return headers(record.headers, form, out),
            Verb::Header(name) => {
                let found = record
                    .headers
                    .iter()
                    .rev()
                    .find(|(found, _)| *found == name.as_bytes());
                return bytes(found.and_then(|(_, value)| *value), form, out);
            }
            Verb::Partition => i64::from(record.partition),
            Verb::Offset => record.offset.cast_signed(),
            Verb::Timestamp => record.timestamp,
            Verb::Count => self.count.cast_signed(),
            Verb::KeyLength => length(record.key),
            Verb::ValueLength => length(record.value),
        };
        write_number(number, form, out);
    }
}

fn length(bytes: Option<&[u8]>) -> i64 {
    bytes.map_or(-1, |bytes| bytes.len() as i64)
}

fn write_number(number: i64, form: &Form, out: &mut Vec<u8>) {
    match form {
        Form::Hex => write!(out, "{number:x}").expect("a vector takes every byte"),
        // Cut on purpose: the reader asked for four bytes.
        Form::Big32 => out.extend_from_slice(&number.to_be_bytes()[4..]),
        Form::Big64 => out.extend_from_slice(&number.to_be_bytes()),
        Form::Date(pattern) => {
            let mut text = String::new();
            date::strftime(number, pattern, &mut text);
            out.extend_from_slice(text.as_bytes());
        }
        _ => write!(out, "{number}").expect("a vector takes every byte"),
    }
}

fn bytes(bytes: Option<&[u8]>, form: &Form, out: &mut Vec<u8>) {
    let plain = bytes.unwrap_or_default();
    match form {
        Form::Hex => hex(plain, out),
        Form::Base64 => out.extend_from_slice(STANDARD.encode(plain).as_bytes()),
        Form::Json => out.extend_from_slice(json_of(bytes).to_string().as_bytes()),
        Form::Length => write_number(length(bytes), &Form::Plain, out),
        _ => out.extend_from_slice(plain),
    }
}

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Text as a JSON string, other bytes as an object that says how they are written, null as null.
pub(crate) fn json_of(bytes: Option<&[u8]>) -> Value {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => Value::Null,
        Some((Ok(text), _)) => Value::from(text),
        Some((Err(_), bytes)) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// `a=1,b=2`, or a JSON list of `{"name", "value"}`.
fn headers(headers: &[HeaderView<'_>], form: &Form, out: &mut Vec<u8>) {
    if *form == Form::Json {
        return out.extend_from_slice(json_headers(headers).to_string().as_bytes());
    }
    for (index, (name, value)) in headers.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value.unwrap_or_default());
    }
}

/// A list, because names may repeat and their order counts.
pub(crate) fn json_headers(headers: &[HeaderView<'_>]) -> Value {
    let one = |(name, value): &HeaderView<'_>| json!({ "name": json_of(Some(name)), "value": json_of(*value) });
    headers.iter().map(one).collect()
}

/// One record as a JSON object, for `--output json`.
pub(crate) fn json_record(record: &RecordView<'_>) -> Value {
    json!({
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_of(record.key),
        "value": json_of(record.value),
        "headers": json_headers(record.headers),
    })
}

/// The fields of a record as JSON.
pub(crate) const RECORD_FIELDS: &[Field] = &[
    Field::text("topic", "full name of its topic"),
    Field::integer("partition", "from 0"),
    Field::integer("offset", "its number in the partition"),
    Field::integer("timestamp", "ms since 1970"),
    Field::text("key", "null: it has none").or_null(),
    Field::text("key.base64", "instead, where the key is no text"),
    Field::text("value", "null: it deletes its key").or_null(),
    Field::text("value.base64", "instead, where the value is no text"),
    Field::text("headers[].name", "names may repeat, their order counts"),
    Field::text("headers[].value", "of the header").or_null(),
    Field::text("headers[].value.base64", "instead, where it is no text"),
];

/// Appends one record of a stream to `out`: by the format for a person, as one object a line or a document for a program.
pub(crate) fn write_record(
    shape: Shape,
    printer: &mut Printer,
    record: &RecordView<'_>,
    out: &mut Vec<u8>,
) {
    let text = match shape {
        Shape::Table | Shape::Wide | Shape::Help => return printer.print(record, out),
        Shape::Json | Shape::Jsonl => format!("{}\n", json_record(record)),
        Shape::Yaml => format!("---\n{}", yaml(&json_record(record))),
        Shape::Name => format!("{}/{}@{}\n", record.topic, record.partition, record.offset),
    };
    out.extend_from_slice(text.as_bytes());
}
