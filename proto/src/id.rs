//! Identities: what each number and name in the system refers to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use crate::limits::TOPIC_NAME_BYTES_MAX;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! unique {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// Reads 16 bytes; anything else is `None`.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self)
            }

            /// The 16 bytes of the wire.
            pub fn to_bytes(self) -> bytes::Bytes {
                bytes::Bytes::copy_from_slice(self.0.as_bytes())
            }
        }
    };
}

number! {
    /// A ledger of the cell. Numbers are never given twice.
    LedgerId(u64)
}
number! {
    /// Number of an entry in its ledger, from 0; as an `end` it is exclusive.
    EntryId(u64)
}
number! {
    /// Dense number of a record in its partition, from 0; as an `end` it is exclusive.
    Offset(u64)
}
number! {
    /// Grows with each take-over of a partition; equals Kafka's leader epoch.
    OwnerEpoch(u32)
}
number! {
    /// Grows with each recovery attempt of a ledger; 0: never fenced.
    FenceToken(u64)
}
number! {
    /// Identity of an idempotent producer (serving.md C1). Numbers are never given twice.
    ProducerId(i64)
}
unique! {
    /// One cluster: one metadata namespace.
    CellId
}
unique! {
    /// A topic's identity: a recreated topic of the same name has another one.
    TopicId
}
unique! {
    /// A subscription's identity: one that was made again under the same name has another one.
    SubscriptionId
}
unique! {
    /// One try to make a segment; two tries never have the same, whatever became of the first (storage.md O2).
    SegmentId
}
unique! {
    /// One life of a bookie's disk (storage.md C1): a reformatted disk has another one.
    Incarnation
}

impl EntryId {
    /// The entry after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl ProducerId {
    /// "No producer id" on the Kafka wire and in record batches.
    pub const NONE: Self = Self(-1);
}

/// One partition of one topic, by identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// From 0.
    pub index: u32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// Name of a node: a bookie or a broker. Never an address (storage.md C6).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Takes 1 to 64 bytes of `[A-Za-z0-9._-]`.
    ///
    /// # Errors
    /// [`NameError`] that says what is wrong.
    pub fn new(name: &str) -> Result<Self, NameError> {
        check_part("node name", name)?;
        if name.len() > 64 {
            return Err(NameError::TooLong {
                bytes: name.len(),
                max: 64,
            });
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Full name of a topic: `tenant/namespace/topic`; a short name means `public/default/topic`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    full: Arc<str>,
    tenant_end: usize,
    namespace_end: usize,
}

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Neither one part nor three.
    #[error("topic name {name:?} has {parts} parts; write `topic` or `tenant/namespace/topic`")]
    Parts {
        /// As given, cut to 64 characters.
        name: String,
        /// How many were found.
        parts: usize,
    },
    /// A part is empty.
    #[error("{what} is empty; use 1 or more of [A-Za-z0-9._-]")]
    Empty {
        /// Which part.
        what: &'static str,
    },
    /// A character outside the set.
    #[error("{what} contains {found:?}; only [A-Za-z0-9._-] are allowed")]
    Character {
        /// Which part.
        what: &'static str,
        /// The first wrong one.
        found: char,
    },
    /// Too long.
    #[error("name of {bytes} bytes is longer than {max}")]
    TooLong {
        /// Found.
        bytes: usize,
        /// Allowed.
        max: usize,
    },
    /// `.` or `..`.
    #[error("{what} must not be `.` or `..`")]
    Dots {
        /// Which part.
        what: &'static str,
    },
}

fn check_part(what: &'static str, part: &str) -> Result<(), NameError> {
    if part.is_empty() {
        return Err(NameError::Empty { what });
    }
    if part == "." || part == ".." {
        return Err(NameError::Dots { what });
    }
    match part
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
    {
        Some(found) => Err(NameError::Character { what, found }),
        None => Ok(()),
    }
}

impl TopicName {
    /// `tenant/namespace/topic`.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// The first part.
    pub fn tenant(&self) -> &str {
        &self.full[..self.tenant_end]
    }

    /// The second part.
    pub fn namespace(&self) -> &str {
        &self.full[self.tenant_end + 1..self.namespace_end]
    }

    /// The third part.
    pub fn topic(&self) -> &str {
        &self.full[self.namespace_end + 1..]
    }
}

impl FromStr for TopicName {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        if name.len() > TOPIC_NAME_BYTES_MAX {
            return Err(NameError::TooLong {
                bytes: name.len(),
                max: TOPIC_NAME_BYTES_MAX,
            });
        }
        let parts: Vec<&str> = name.split('/').collect();
        let (tenant, namespace, topic) = match parts[..] {
            [topic] => ("public", "default", topic),
            [tenant, namespace, topic] => (tenant, namespace, topic),
            _ => {
                let name = name.chars().take(64).collect();
                return Err(NameError::Parts {
                    name,
                    parts: parts.len(),
                });
            }
        };
        check_part("tenant", tenant)?;
        check_part("namespace", namespace)?;
        check_part("topic", topic)?;
        let full: Arc<str> = format!("{tenant}/{namespace}/{topic}").into();
        if full.len() > TOPIC_NAME_BYTES_MAX {
            return Err(NameError::TooLong {
                bytes: full.len(),
                max: TOPIC_NAME_BYTES_MAX,
            });
        }
        let tenant_end = tenant.len();
        Ok(Self {
            full,
            tenant_end,
            namespace_end: tenant_end + 1 + namespace.len(),
        })
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_name_gets_the_default_namespace() {
        let name: TopicName = "greetings".parse().unwrap();
        assert_eq!(name.as_str(), "public/default/greetings");
        assert_eq!(
            (name.tenant(), name.namespace(), name.topic()),
            ("public", "default", "greetings")
        );
    }

    #[test]
    fn wrong_names_are_refused_with_the_reason() {
        for (name, part) in [
            ("", "empty"),
            ("a/b", "2 parts"),
            ("a//c", "namespace is empty"),
            ("a\0b", "contains"),
            ("..", "must not be"),
            (&"x".repeat(300), "longer than"),
            (&"x".repeat(240), "longer than"),
        ] {
            let error = name.parse::<TopicName>().unwrap_err().to_string();
            assert!(error.contains(part), "{name:?}: {error}");
        }
    }
}
