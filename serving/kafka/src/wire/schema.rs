//! Walks a request's bytes before they are decoded, so that no length or count in it is believed.
//!
//! The message decoders allocate as many elements as an array's length names, before one of them is read: a frame of twenty bytes
//! asks for gigabytes. A walk reads the same bytes by a table of the request's fields and allocates nothing. It refuses a length
//! that the remaining bytes cannot hold, and more elements than [`ELEMENTS_MAX`], which bounds what the decoded form takes. Where it
//! says where the request ends, the decoder must end there too (`wire::request` compares), else the table is wrong.
//!
//! # Invariant
//! The walk goes the decoder's way exactly. Its laxness counts too: a variable-length number is at most five bytes of which the
//! last one's upper bits are dropped, and the content of a known tagged field is read wherever it ends, so such a field must have
//! the size that it names.

use hulse_proto::limits::TOPIC_NAME_BYTES_MAX;

/// Elements of all arrays, and tagged fields, of one request. The largest element takes about 200 bytes decoded.
pub(crate) const ELEMENTS_MAX: usize = 100_000;

/// Longest name of a topic in what is asked of its partitions. What is a little longer than a name may be has an answer that says so.
pub(crate) const NAME_BYTES_MAX: usize = TOPIC_NAME_BYTES_MAX + 64;

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// So many bytes.
    Fixed(usize),
    /// Text, perhaps null; compact where the request is flexible.
    Text,
    /// Text as [`Kind::Text`] that names a topic and is repeated for each of its partitions; see [`NAME_BYTES_MAX`].
    Name,
    /// Bytes, perhaps null; compact where the request is flexible.
    Bytes,
    /// Several, perhaps null; compact where the request is flexible.
    Array(&'static Kind),
    /// Fields one after the other, then tagged fields where the request is flexible.
    Struct(&'static Schema),
    /// One byte, and the struct where that is 1.
    Optional(&'static Schema),
}

/// A field and the versions that have it, both included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) from: i16,
    pub(crate) to: i16,
    pub(crate) kind: Kind,
}

/// A tagged field that the decoder knows, and the first version in which it takes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag {
    pub(crate) tag: u32,
    pub(crate) from: i16,
    pub(crate) kind: Kind,
}

/// The fields of a struct in order.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) fields: &'static [Field],
    pub(crate) tags: &'static [Tag],
}

/// A field that every version has.
pub(crate) const fn always(kind: Kind) -> Field {
    since(0, kind)
}

/// A field from a version on.
pub(crate) const fn since(from: i16, kind: Kind) -> Field {
    between(from, i16::MAX, kind)
}

/// A field of the versions `from..=to`.
pub(crate) const fn between(from: i16, to: i16, kind: Kind) -> Field {
    Field { from, to, kind }
}

/// Why a request is not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A length or count names more than is there.
    CutOff,
    /// A length below −1.
    Negative,
    /// More elements than [`ELEMENTS_MAX`].
    TooMany,
    /// A topic's name of more than [`NAME_BYTES_MAX`].
    LongName,
    /// A known tagged field of another size than its content has, or of a version that does not know it.
    Tag,
}

/// What a walk found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Bytes of the request.
    pub(crate) bytes: usize,
    /// Elements and tagged fields in it.
    pub(crate) elements: usize,
}

/// Walks one request of `version`, of which tagged fields may follow the walk's end.
///
/// # Errors
/// [`Refusal`]. Nothing is allocated.
pub(crate) fn walk(
    schema: &Schema,
    input: &[u8],
    version: i16,
    flexible: bool,
) -> Result<Walked, Refusal> {
    let mut walk = Walk {
        input,
        at: 0,
        version,
        flexible,
        elements: 0,
    };
    walk.schema(schema)?;
    Ok(Walked {
        bytes: walk.at,
        elements: walk.elements,
    })
}

/// Skips the tagged fields of a flexible header; answers how many bytes they take.
pub(crate) fn skip_tags(input: &[u8]) -> Result<usize, Refusal> {
    const NONE: Schema = Schema {
        fields: &[],
        tags: &[],
    };
    walk(&NONE, input, 0, true).map(|walked| walked.bytes)
}

struct Walk<'a> {
    input: &'a [u8],
    at: usize,
    version: i16,
    flexible: bool,
    elements: usize,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Schema) -> Result<(), Refusal> {
        for field in schema.fields {
            if (field.from..=field.to).contains(&self.version) {
                self.kind(field.kind)?;
            }
        }
        match self.flexible {
            true => self.tags(schema.tags),
            false => Ok(()),
        }
    }

    fn kind(&mut self, kind: Kind) -> Result<(), Refusal> {
        match kind {
            Kind::Fixed(bytes) => self.skip(bytes),
            Kind::Text if self.flexible => self.compact_run(),
            Kind::Text => {
                let length = i16::from_be_bytes(self.take()?);
                self.run(i32::from(length))
            }
            Kind::Name => {
                let begin = self.at;
                self.kind(Kind::Text)?;
                match self.at - begin > NAME_BYTES_MAX {
                    true => Err(Refusal::LongName),
                    false => Ok(()),
                }
            }
            Kind::Bytes if self.flexible => self.compact_run(),
            Kind::Bytes => {
                let length = i32::from_be_bytes(self.take()?);
                self.run(length)
            }
            Kind::Array(of) => {
                let count = self.count()?;
                for _ in 0..count {
                    self.kind(*of)?;
                }
                Ok(())
            }
            Kind::Struct(schema) => self.schema(schema),
            Kind::Optional(schema) => match self.take::<1>()?[0] {
                1 => self.schema(schema),
                _ => Ok(()),
            },
        }
    }

    /// Each element takes a byte at least, so no more of them can be there than bytes.
    fn count(&mut self) -> Result<usize, Refusal> {
        let count = match self.flexible {
            true => (self.varint()? as usize).saturating_sub(1),
            false => match i32::from_be_bytes(self.take()?) {
                -1 => 0,
                count => usize::try_from(count).map_err(|_| Refusal::Negative)?,
            },
        };
        if count > self.left() {
            return Err(Refusal::CutOff);
        }
        self.elements(count)?;
        Ok(count)
    }

    fn elements(&mut self, more: usize) -> Result<(), Refusal> {
        self.elements += more;
        match self.elements > ELEMENTS_MAX {
            true => Err(Refusal::TooMany),
            false => Ok(()),
        }
    }

    fn tags(&mut self, known: &[Tag]) -> Result<(), Refusal> {
        let count = self.varint()? as usize;
        // Two bytes each at least.
        if count > self.left() / 2 {
            return Err(Refusal::CutOff);
        }
        self.elements(count)?;
        for _ in 0..count {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            let Some(known) = known.iter().find(|known| known.tag == tag) else {
                self.skip(size)?;
                continue;
            };
            let begin = self.at;
            if self.version < known.from {
                return Err(Refusal::Tag);
            }
            self.kind(known.kind)?;
            if self.at - begin != size {
                return Err(Refusal::Tag);
            }
        }
        Ok(())
    }

    fn compact_run(&mut self) -> Result<(), Refusal> {
        let length = self.varint()? as usize;
        self.skip(length.saturating_sub(1))
    }

    fn run(&mut self, length: i32) -> Result<(), Refusal> {
        match length {
            -1 => Ok(()),
            length => self.skip(usize::try_from(length).map_err(|_| Refusal::Negative)?),
        }
    }

    fn varint(&mut self) -> Result<u32, Refusal> {
        let mut value = 0;
        for index in 0..5 {
            let byte = u32::from(self.take::<1>()?[0]);
            value |= (byte & 0x7f) << (index * 7);
            if byte < 0x80 {
                break;
            }
        }
        Ok(value)
    }

    fn left(&self) -> usize {
        self.input.len() - self.at
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Refusal> {
        if bytes > self.left() {
            return Err(Refusal::CutOff);
        }
        self.at += bytes;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let begin = self.at;
        self.skip(N)?;
        let taken = self.input[begin..self.at].try_into();
        Ok(taken.expect("as many bytes were skipped"))
    }
}
