//! How many copies a topic's records have.

use hulse_proto::wire::v1;

/// How many bookies store the records of a topic. In what is asked for, `None` means: not said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replication {
    /// Bookies of a ledger, over which its entries are spread (E). Not said: as it is.
    pub ensemble: Option<u32>,
    /// Copies of each record (Qw). Not said: as it is.
    pub write_quorum: Option<u32>,
    /// Copies that are durable before a record is acknowledged (Qa). Not said: most of the copies, or as it is if these are not said
    /// either.
    pub ack_quorum: Option<u32>,
}

/// How the ledgers of a topic stand to that, as far as metadata know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopicCopies {
    /// Ledgers that were looked at.
    pub ledgers: u64,
    /// Those are all.
    pub all: bool,
    /// Made with fewer copies than new ones get.
    pub made_with_fewer: u64,
    /// Closed, with copies on bookies that are gone, or that were never made.
    pub lacking: u64,
}

impl Replication {
    /// Each record on so many bookies, and acknowledged when most of them have it.
    pub fn factor(copies: u32) -> Self {
        Self {
            ensemble: Some(copies),
            write_quorum: Some(copies),
            ack_quorum: None,
        }
    }

    pub(super) fn from_wire(wire: v1::Replication) -> Self {
        let said = |count: u32| (count > 0).then_some(count);
        Self {
            ensemble: said(wire.ensemble),
            write_quorum: said(wire.write_quorum),
            ack_quorum: said(wire.ack_quorum),
        }
    }

    pub(super) fn to_wire(self) -> v1::Replication {
        v1::Replication {
            ensemble: self.ensemble.unwrap_or(0),
            write_quorum: self.write_quorum.unwrap_or(0),
            ack_quorum: self.ack_quorum.unwrap_or(0),
        }
    }
}

impl TopicCopies {
    pub(super) fn from_wire(wire: v1::TopicCopies) -> Self {
        Self {
            ledgers: wire.ledgers,
            all: wire.all,
            made_with_fewer: wire.made_with_fewer,
            lacking: wire.lacking,
        }
    }
}
