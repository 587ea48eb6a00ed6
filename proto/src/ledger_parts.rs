//! The parts of a ledger's metadata as the wire has them.

use bytes::Bytes;

use crate::id::{EntryId, Incarnation, NodeName};
use crate::ledger::{
    Degraded, Fragment, Intent, LedgerMetadataError, Loss, LossKind, Member, bad, nonce,
};
use crate::wire::metadata as wire;

impl Member {
    pub(crate) fn to_wire(&self) -> wire::Member {
        wire::Member {
            bookie: self.bookie.to_string(),
            incarnation: self.incarnation.to_bytes(),
        }
    }

    pub(crate) fn from_wire(value: &wire::Member) -> Result<Self, LedgerMetadataError> {
        Ok(Self {
            bookie: NodeName::new(&value.bookie)
                .map_err(|error| bad("bookie", error.to_string()))?,
            incarnation: Incarnation::from_slice(&value.incarnation)
                .ok_or_else(|| bad("incarnation", "not 16 bytes"))?,
        })
    }
}

impl Intent {
    pub(crate) fn to_wire(&self) -> wire::Intent {
        wire::Intent {
            first_entry: self.first.0,
            old: Some(self.old.to_wire()),
            new: Some(self.new.to_wire()),
            task: Bytes::copy_from_slice(&self.task),
        }
    }

    pub(crate) fn from_wire(value: &wire::Intent) -> Result<Self, LedgerMetadataError> {
        let member = |found: &Option<wire::Member>| match found {
            Some(found) => Member::from_wire(found),
            None => Err(bad("intents", "an intent without a member")),
        };
        Ok(Self {
            first: EntryId(value.first_entry),
            old: member(&value.old)?,
            new: member(&value.new)?,
            task: nonce("intents.task", &value.task)?,
        })
    }
}

impl Fragment {
    pub(crate) fn to_wire(&self) -> wire::Fragment {
        let ensemble = self.ensemble.iter().map(Member::to_wire);
        wire::Fragment {
            first_entry: self.first.0,
            ensemble: ensemble.collect(),
        }
    }

    pub(crate) fn from_wire(value: &wire::Fragment) -> Result<Self, LedgerMetadataError> {
        let ensemble = value.ensemble.iter().map(Member::from_wire);
        Ok(Self {
            first: EntryId(value.first_entry),
            ensemble: ensemble.collect::<Result<_, LedgerMetadataError>>()?,
        })
    }
}

impl Degraded {
    pub(crate) fn to_wire(&self) -> wire::Degraded {
        wire::Degraded {
            first_entry: self.first.0,
            end_entry: self.end.0,
            bookies: self.bookies.iter().map(ToString::to_string).collect(),
        }
    }

    pub(crate) fn from_wire(value: &wire::Degraded) -> Result<Self, LedgerMetadataError> {
        let bookies = value.bookies.iter().map(|name| {
            NodeName::new(name).map_err(|error| bad("degraded.bookies", error.to_string()))
        });
        Ok(Self {
            first: EntryId(value.first_entry),
            end: EntryId(value.end_entry),
            bookies: bookies.collect::<Result<_, _>>()?,
        })
    }
}

impl Loss {
    pub(crate) fn from_wire(value: &wire::Loss) -> Result<Self, LedgerMetadataError> {
        let kind = match value.kind() {
            wire::loss::Kind::TailLost => LossKind::TailLost,
            wire::loss::Kind::Accepted => LossKind::Accepted,
            wire::loss::Kind::Unspecified => return Err(bad("loss.kind", "unspecified")),
        };
        Ok(Self {
            kind,
            from: EntryId(value.from_entry),
            at: value.at_ms,
        })
    }
}
