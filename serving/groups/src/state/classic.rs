//! A group of the classic protocol at a completed generation (serving.md B6).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::request::{Client, Protocol};

/// A generation and its members. A coordinator that moves goes on with it, so that a move costs no rebalance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassicGroup {
    /// Which.
    pub generation: i32,
    /// Such as `consumer`; empty: none.
    pub protocol_type: Arc<str>,
    /// The one that was chosen; empty: none.
    pub protocol: Arc<str>,
    /// Who assigned; empty: nobody.
    pub leader: Arc<str>,
    /// By id.
    pub members: BTreeMap<Arc<str>, ClassicMember>,
}

/// A member of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassicMember {
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Who.
    pub client: Client,
    /// Session, ms.
    pub session_ms: u32,
    /// How long it may take to join again, ms.
    pub rebalance_ms: u32,
    /// In order of preference.
    pub protocols: Vec<Protocol>,
    /// The leader's bytes for it.
    pub assignment: Bytes,
}

impl ClassicMember {
    /// Its bytes of a protocol.
    pub fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        let mut known = self.protocols.iter();
        known
            .find(|known| &*known.name == protocol)
            .map(|known| &known.metadata)
    }

    /// What it takes in the group's record, without ids of fixed bound.
    pub(crate) fn size(&self) -> usize {
        let protocols = self.protocols.iter();
        let protocols = protocols.map(|known| known.name.len() + known.metadata.len());
        self.assignment.len() + protocols.sum::<usize>()
    }
}
