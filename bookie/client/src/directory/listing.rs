//! What metadata says of bookies: the registrations `bookie/{name}` joined with the live keys `node/bookie/{name}`.

use std::collections::BTreeMap;

use bookie_metadata::{MetadataError, MetadataStore, list_all};
use bytes::Bytes;
use hulse_proto::id::{Incarnation, NodeName};
use hulse_proto::ledger::Member;
use hulse_proto::wire::{Message, metadata as wire};

use super::seam::Candidate;

const BOOKIES: &str = "bookie/";
/// Prefix of the keys that are bound to the leases of running bookies.
pub(super) const LIVE: &str = "node/bookie/";

/// A bookie that may be placed, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Whether it may become a member.
    pub candidate: Candidate,
    /// `host:port`; `None` while its lease does not stand.
    pub endpoint: Option<String>,
}

/// The ACTIVE bookies of the cell. Both listings are linearizable, and not of one moment: a bookie that comes or goes meanwhile may be
/// seen live or not.
///
/// # Errors
/// Those of the store; `Corrupt` for a record that cannot be read.
pub async fn list_bookies(metadata: &dyn MetadataStore) -> Result<Vec<Listed>, MetadataError> {
    let bookies = list_all(metadata, BOOKIES).await?;
    let mut live = BTreeMap::new();
    for row in list_all(metadata, LIVE).await? {
        let node: wire::Node = decode(&row.key, row.value)?;
        live.insert(row.key[LIVE.len()..].to_owned(), node);
    }
    let mut listed = Vec::new();
    for row in bookies {
        let bookie: wire::Bookie = decode(&row.key, row.value)?;
        let name = &row.key[BOOKIES.len()..];
        listed.extend(one(name, &bookie, live.remove(name)));
    }
    Ok(listed)
}

pub(super) fn decode<T: Message + Default>(key: &str, value: Bytes) -> Result<T, MetadataError> {
    T::decode(value).map_err(|error| MetadataError::Corrupt {
        why: format!("{key}: {error}"),
    })
}

/// An ACTIVE bookie; `None` for one that takes no new ledgers or whose record is not one.
fn one(name: &str, bookie: &wire::Bookie, node: Option<wire::Node>) -> Option<Listed> {
    if bookie.state() != wire::bookie::State::Active {
        return None;
    }
    let member = Member {
        bookie: NodeName::new(name).ok()?,
        incarnation: Incarnation::from_slice(&bookie.incarnation)?,
    };
    let mode = node.as_ref().map(|node| node.mode.as_str());
    Some(Listed {
        candidate: Candidate {
            member,
            live: mode.is_some(),
            writable: matches!(mode, Some("normal" | "low" | "")),
            zone: bookie.zone.clone(),
        },
        endpoint: node.map(|node| node.endpoint),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookie_is_a_candidate_while_active_and_writable_while_live() {
        let mut bookie = wire::Bookie {
            incarnation: Bytes::from_static(&[7; 16]),
            state: wire::bookie::State::Active as i32,
            ..wire::Bookie::default()
        };
        let seen = |bookie: &wire::Bookie, mode: Option<&str>| {
            let node = mode.map(|mode| wire::Node {
                mode: mode.to_owned(),
                ..wire::Node::default()
            });
            let listed = one("a", bookie, node)?;
            Some((listed.candidate.live, listed.candidate.writable))
        };
        assert_eq!(seen(&bookie, Some("normal")), Some((true, true)));
        assert_eq!(seen(&bookie, Some("readonly")), Some((true, false)));
        assert_eq!(seen(&bookie, None), Some((false, false)));
        bookie.state = wire::bookie::State::Lost as i32;
        assert_eq!(seen(&bookie, Some("normal")), None);
    }
}
