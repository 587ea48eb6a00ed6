//! Text to tokens.

use std::fmt;

use super::date;

/// Longest format that is taken, bytes.
const FORMAT_BYTES_MAX: usize = 4096;

/// What a letter stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verb {
    /// `%t`
    Topic,
    /// `%p`
    Partition,
    /// `%o`
    Offset,
    /// `%T`
    Timestamp,
    /// `%i`
    Count,
    /// `%k`
    Key,
    /// `%v`, `%s`
    Value,
    /// `%h`
    Headers,
    /// `%P{name}`
    Header(String),
    /// `%K`
    KeyLength,
    /// `%S`
    ValueLength,
}

/// How it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Bytes as they are, numbers in decimal.
    Plain,
    /// Two digits per byte; numbers without leading zeros.
    Hex,
    /// Standard alphabet with padding.
    Base64,
    /// A JSON value; null where there is none.
    Json,
    /// Number of bytes, -1: null.
    Length,
    /// Four bytes, most significant first.
    Big32,
    /// Eight bytes, most significant first.
    Big64,
    /// A date in UTC.
    Date(String),
}

impl fmt::Display for Verb {
    /// The letter as it is written in a format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "%t",
            Self::Partition => "%p",
            Self::Offset => "%o",
            Self::Timestamp => "%T",
            Self::Count => "%i",
            Self::Key => "%k",
            Self::Value => "%v",
            Self::Headers => "%h",
            Self::Header(name) => return write!(f, "%P{{{name}}}"),
            Self::KeyLength => "%K",
            Self::ValueLength => "%S",
        })
    }
}

impl fmt::Display for Form {
    /// The braces after a letter; nothing for a plain one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "",
            Self::Hex => "{hex}",
            Self::Base64 => "{base64}",
            Self::Json => "{json}",
            Self::Length => "{len}",
            Self::Big32 => "{big32}",
            Self::Big64 => "{big64}",
            Self::Date(pattern) => return write!(f, "{{strftime[{pattern}]}}"),
        })
    }
}

/// A piece of a format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// These bytes.
    Literal(Vec<u8>),
    /// A part of the record.
    Field(Verb, Form),
}

/// What is wrong with a format, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormatError {
    /// Byte in the text, from 0.
    pub(crate) at: usize,
    /// Words.
    pub(crate) why: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.why)
    }
}

impl std::error::Error for FormatError {}

pub(super) fn error<T>(at: usize, why: impl Into<String>) -> Result<T, FormatError> {
    Err(FormatError {
        at,
        why: why.into(),
    })
}

/// Compiles a format.
pub(super) fn compile(text: &str) -> Result<Vec<Token>, FormatError> {
    if text.len() > FORMAT_BYTES_MAX {
        return error(FORMAT_BYTES_MAX, "the format is too long");
    }
    let mut input = Input { text, at: 0 };
    let mut tokens = Vec::new();
    let mut literal = Vec::new();
    while let Some(c) = input.next() {
        match c {
            '\\' => literal.push(input.escape()?),
            '%' if input.peek() == Some('%') => {
                input.next();
                literal.push(b'%');
            }
            '%' => {
                if !literal.is_empty() {
                    tokens.push(Token::Literal(std::mem::take(&mut literal)));
                }
                tokens.push(input.field()?);
            }
            c => literal.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    if !literal.is_empty() {
        tokens.push(Token::Literal(literal));
    }
    Ok(tokens)
}

struct Input<'a> {
    text: &'a str,
    at: usize,
}

impl Input<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// After a backslash.
    fn escape(&mut self) -> Result<u8, FormatError> {
        let at = self.at - 1;
        match self.next() {
            Some('n') => Ok(b'\n'),
            Some('t') => Ok(b'\t'),
            Some('r') => Ok(b'\r'),
            Some('0') => Ok(0),
            Some('\\') => Ok(b'\\'),
            Some('x') => {
                let digits = self.text.get(self.at..self.at + 2);
                match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => {
                        self.at += 2;
                        Ok(byte)
                    }
                    None => error(at, "\\x needs two hexadecimal digits"),
                }
            }
            Some(c) => error(
                at,
                format!("\\{c} is not known; use \\n \\t \\r \\0 \\\\ \\xNN"),
            ),
            None => error(at, "a backslash ends the format; write \\\\ for one"),
        }
    }

    /// `{...}`, if it is next; a strftime pattern in brackets may hold braces.
    fn braces(&mut self) -> Result<Option<String>, FormatError> {
        let at = self.at;
        if self.peek() != Some('{') {
            return Ok(None);
        }
        let rest = &self.text[at + 1..];
        let end = match rest.strip_prefix("strftime[") {
            Some(pattern) => pattern.find("]}").map(|end| "strftime[".len() + end + 1),
            None => rest.find('}'),
        };
        match end {
            Some(end) => {
                self.at += end + 2;
                Ok(Some(rest[..end].to_owned()))
            }
            None => error(at, "this brace is not closed"),
        }
    }

    /// After a percent sign.
    fn field(&mut self) -> Result<Token, FormatError> {
        let at = self.at - 1;
        let verb = match self.next() {
            Some('t') => Verb::Topic,
            Some('p') => Verb::Partition,
            Some('o') => Verb::Offset,
            Some('T') => Verb::Timestamp,
            Some('i') => Verb::Count,
            Some('k') => Verb::Key,
            Some('v' | 's') => Verb::Value,
            Some('h') => Verb::Headers,
            Some('K') => Verb::KeyLength,
            Some('S') => Verb::ValueLength,
            Some('P') => match self.braces()? {
                Some(name) if !name.is_empty() => Verb::Header(name),
                _ => return error(at, "%P needs a header's name: %P{name}"),
            },
            Some(c @ ('R' | 'm')) => {
                let why = format!("%{c} needs a subscription, which this version does not have");
                return error(at, why);
            }
            Some(c) => {
                let why = format!("%{c} is not known; use %t %p %o %k %v %s %h %P %T %S %K %i %%");
                return error(at, why);
            }
            None => return error(at, "a percent sign ends the format; write %% for one"),
        };
        let braces_at = self.at;
        let form = match self.braces()? {
            None => Form::Plain,
            Some(name) => form(&verb, &name).or_else(|why| error(braces_at, why))?,
        };
        Ok(Token::Field(verb, form))
    }
}

/// Which modifiers a letter takes.
fn form(verb: &Verb, name: &str) -> Result<Form, String> {
    use Verb::{Header, Headers, Key, Timestamp, Topic, Value};
    let of_bytes = matches!(verb, Key | Value | Header(_) | Topic);
    let of_number = !of_bytes && *verb != Headers;
    let (allowed, form) = match name {
        "hex" => (of_bytes || of_number, Form::Hex),
        "base64" => (of_bytes, Form::Base64),
        "json" => (true, Form::Json),
        "len" => (of_bytes, Form::Length),
        "big32" => (of_number, Form::Big32),
        "big64" => (of_number, Form::Big64),
        _ => match name
            .strip_prefix("strftime[")
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(pattern) => {
                date::check(pattern)?;
                (*verb == Timestamp, Form::Date(pattern.to_owned()))
            }
            None => {
                return Err(format!(
                    "{{{name}}} is not known; use {{hex}} {{base64}} {{json}} {{len}} {{big32}} {{big64}} {{strftime[..]}}"
                ));
            }
        },
    };
    match allowed {
        true => Ok(form),
        false => Err(format!("{{{name}}} does not go with this letter")),
    }
}
