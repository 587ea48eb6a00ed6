//! Reads records by a format.
//!
//! The literal at the end of the format ends a record (a newline where it has none); the literal after a letter ends its field, and the
//! last field takes what is left. So two letters need a literal between them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::compile::{Form, FormatError, Token, Verb, compile, error};

/// A record as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// `None`: null, or not in the format.
    pub(crate) key: Option<Bytes>,
    /// `None`: null, or not in the format.
    pub(crate) value: Option<Bytes>,
    /// In order.
    pub(crate) headers: Vec<(String, Bytes)>,
    /// Of the format, else the producer's clock.
    pub(crate) timestamp: Option<i64>,
    /// Of the format, else by key.
    pub(crate) partition: Option<u32>,
}

/// A compiled format for input.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// What stands before the first letter.
    head: Vec<u8>,
    /// Each letter and the literal after it; empty after the last.
    fields: Vec<(Verb, Form, Vec<u8>)>,
    end: Vec<u8>,
}

impl Scanner {
    /// Compiles a format.
    ///
    /// # Errors
    /// What is wrong with it and where, also letters that only an output has.
    pub(crate) fn new(format: &str) -> Result<Self, FormatError> {
        let mut tokens = compile(format)?;
        let end = match tokens.last() {
            Some(Token::Literal(_)) => match tokens.pop() {
                Some(Token::Literal(end)) => end,
                _ => Vec::new(),
            },
            _ => b"\n".to_vec(),
        };
        let mut scanner = Self {
            head: Vec::new(),
            fields: Vec::new(),
            end,
        };
        for token in tokens {
            scanner.take(token)?;
        }
        if scanner.fields.is_empty() {
            return error(0, "the format has no letter; write e.g. '%k\\t%v\\n'");
        }
        Ok(scanner)
    }

    fn take(&mut self, token: Token) -> Result<(), FormatError> {
        let (verb, form) = match token {
            Token::Literal(bytes) => {
                match self.fields.last_mut() {
                    Some((_, _, after)) => *after = bytes,
                    None => self.head = bytes,
                }
                return Ok(());
            }
            Token::Field(verb, form) => (verb, form),
        };
        if let Some((before, ..)) = self.fields.last().filter(|(_, _, after)| after.is_empty()) {
            let why =
                format!("nothing stands between {before} and {verb}: where would {before} end?");
            return error(0, why);
        }
        let allowed = match verb {
            Verb::Key | Verb::Value => {
                matches!(form, Form::Plain | Form::Hex | Form::Base64 | Form::Json)
            }
            Verb::Headers | Verb::Timestamp | Verb::Partition => form == Form::Plain,
            _ => false,
        };
        if !allowed {
            let why = format!(
                "{verb}{form} cannot be read; input knows %k %v %s with {{hex}} {{base64}} {{json}}, and %h %T %p"
            );
            return error(0, why);
        }
        if self.fields.iter().any(|(seen, ..)| *seen == verb) {
            return error(0, format!("{verb} stands twice"));
        }
        self.fields.push((verb, form, Vec::new()));
        Ok(())
    }

    /// What ends a record; never empty.
    pub(crate) fn end(&self) -> &[u8] {
        &self.end
    }

    /// Reads one record, without its end.
    ///
    /// # Errors
    /// Words that say what is missing or wrong.
    pub(crate) fn record(&self, input: &Bytes) -> Result<Scanned, String> {
        let mut rest = input.clone();
        if !rest.starts_with(&self.head) {
            return Err(format!("does not begin with {:?}", lossy(&self.head)));
        }
        rest = rest.slice(self.head.len()..);
        let mut record = Scanned::default();
        for (verb, form, after) in &self.fields {
            let field = match after.is_empty() {
                true => std::mem::take(&mut rest),
                false => {
                    let at = find(&rest, after)
                        .ok_or_else(|| format!("has no {:?} after {verb}", lossy(after)))?;
                    let field = rest.slice(..at);
                    rest = rest.slice(at + after.len()..);
                    field
                }
            };
            set(&mut record, verb, form, &field)?;
        }
        Ok(record)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// First place of `needle`, which is not empty.
pub(crate) fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| byte == first) {
        if bytes[from + at + 1..].starts_with(rest) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn set(record: &mut Scanned, verb: &Verb, form: &Form, field: &Bytes) -> Result<(), String> {
    match verb {
        Verb::Key => record.key = decoded(form, field)?,
        Verb::Value => record.value = decoded(form, field)?,
        Verb::Headers => {
            for header in field
                .split(|byte| *byte == b',')
                .filter(|header| !header.is_empty())
            {
                let (name, value) = split_header(header)?;
                record.headers.push((name, field.slice_ref(value)));
            }
        }
        Verb::Timestamp => record.timestamp = Some(whole(field, "timestamp")?),
        Verb::Partition => record.partition = Some(whole(field, "partition")?),
        _ => return Err(format!("{verb} cannot be read")),
    }
    Ok(())
}

fn whole<T: std::str::FromStr>(field: &[u8], what: &str) -> Result<T, String> {
    let text = lossy(field);
    text.trim()
        .parse()
        .map_err(|_| format!("{text:?} is no {what}"))
}

/// Name and value of `name=value`.
pub(crate) fn split_header(header: &[u8]) -> Result<(String, &[u8]), String> {
    let at = header
        .iter()
        .position(|byte| *byte == b'=')
        .filter(|at| *at > 0);
    let at = at.ok_or_else(|| format!("{:?} is no header; write name=value", lossy(header)))?;
    let name = std::str::from_utf8(&header[..at]).map_err(|_| "a header's name is not UTF-8")?;
    Ok((name.to_owned(), &header[at + 1..]))
}

fn decoded(form: &Form, field: &Bytes) -> Result<Option<Bytes>, String> {
    match form {
        Form::Hex => hex(field).map(Some),
        Form::Base64 => STANDARD
            .decode(field)
            .map(|bytes| Some(bytes.into()))
            .map_err(|error| format!("is not base64: {error}")),
        Form::Json => json(field),
        _ => Ok(Some(field.clone())),
    }
}

/// One JSON value: null is none and a string the text it stands for; anything else is kept as it was written, because members may stand
/// twice or in an order, and numbers may have more digits than any type of ours.
fn json(field: &Bytes) -> Result<Option<Bytes>, String> {
    let refused = |why: &dyn std::fmt::Display| format!("is not JSON: {why}");
    let text = std::str::from_utf8(field).map_err(|error| refused(&error))?;
    let start = text.len() - text.trim_start().len();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => {}
        Some(Err(error)) => return Err(refused(&error)),
        None => return Err(refused(&"there is no value")),
    }
    let end = values.byte_offset();
    if !text[end..].trim().is_empty() {
        return Err(refused(&format!(
            "more stands behind the value, at byte {end}"
        )));
    }
    match &text[start..end] {
        "null" => Ok(None),
        quoted if quoted.starts_with('"') => serde_json::from_str::<String>(quoted)
            .map(|text| Some(text.into()))
            .map_err(|error| refused(&error)),
        _ => Ok(Some(field.slice(start..end))),
    }
}

fn hex(field: &[u8]) -> Result<Bytes, String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    if !field.len().is_multiple_of(2) {
        return Err("is not hexadecimal: an odd number of digits".to_owned());
    }
    field
        .chunks(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect::<Option<Vec<u8>>>()
        .map(Bytes::from)
        .ok_or_else(|| "is not hexadecimal".to_owned())
}
