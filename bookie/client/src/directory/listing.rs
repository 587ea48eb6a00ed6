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

/// What is meant to become of a bookie (storage.md C1, C7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegistrationState {
    /// It takes ledgers.
    Active,
    /// It takes no more records and keeps what it has.
    ReadOnly,
    /// It takes no more ledgers, and repair moves its copies away.
    Draining,
    /// No ledger names it any more; its disk never serves again.
    Retired,
    /// Its disk is gone for good.
    Lost,
}

/// A bookie that is or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Who, and the life of its disk that counts.
    pub member: Member,
    /// What is meant to become of it.
    pub state: RegistrationState,
    /// Failure domain; may be empty.
    pub zone: String,
    /// While its lease stands: what it says of itself (`normal`, `low`, `readonly`, …) and where it is called.
    pub live: Option<LiveBookie>,
}

/// A bookie that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBookie {
    /// `normal`, `low`, `readonly`, `reserve`, `failed` or `starting`.
    pub mode: String,
    /// `host:port`
    pub endpoint: String,
    /// `host:port` of its metrics and health; empty: not told.
    pub http: String,
}

impl Registration {
    /// What placement may do with it; `None`: nothing. One that is read-only only fills up where nobody else is left.
    pub fn candidate(&self) -> Option<Candidate> {
        let takes = match self.state {
            RegistrationState::Active => true,
            RegistrationState::ReadOnly => false,
            RegistrationState::Draining | RegistrationState::Retired | RegistrationState::Lost => {
                return None;
            }
        };
        let mode = self.live.as_ref().map(|live| live.mode.as_str());
        Some(Candidate {
            member: self.member.clone(),
            live: mode.is_some(),
            writable: takes && matches!(mode, Some("normal" | "low" | "")),
            zone: self.zone.clone(),
        })
    }
}

/// All bookies that were ever registered, by name. Both listings are linearizable, and not of one moment: a bookie that comes or goes
/// meanwhile may be seen live or not.
///
/// # Errors
/// Those of the store; `Corrupt` for a record that cannot be read.
pub async fn list_registrations(
    metadata: &dyn MetadataStore,
) -> Result<Vec<Registration>, MetadataError> {
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

/// The bookies of the cell that may be placed; as [`list_registrations`].
///
/// # Errors
/// As [`list_registrations`].
pub async fn list_bookies(metadata: &dyn MetadataStore) -> Result<Vec<Listed>, MetadataError> {
    let registered = list_registrations(metadata).await?;
    let listed = registered.into_iter().filter_map(|found| {
        Some(Listed {
            candidate: found.candidate()?,
            endpoint: found.live.map(|live| live.endpoint),
        })
    });
    Ok(listed.collect())
}

/// The key of a bookie's registration.
pub(super) fn registration_key(name: &NodeName) -> String {
    format!("{BOOKIES}{name}")
}

pub(super) fn decode<T: Message + Default>(key: &str, value: Bytes) -> Result<T, MetadataError> {
    T::decode(value).map_err(|error| MetadataError::Corrupt {
        why: format!("{key}: {error}"),
    })
}

/// `None` for a record that is not one.
fn one(name: &str, bookie: &wire::Bookie, node: Option<wire::Node>) -> Option<Registration> {
    use wire::bookie::State;
    let state = match bookie.state() {
        State::Active => RegistrationState::Active,
        State::ReadOnly => RegistrationState::ReadOnly,
        State::Draining => RegistrationState::Draining,
        State::Retired => RegistrationState::Retired,
        State::Lost => RegistrationState::Lost,
        State::Unspecified => return None,
    };
    Some(Registration {
        member: Member {
            bookie: NodeName::new(name).ok()?,
            incarnation: Incarnation::from_slice(&bookie.incarnation)?,
        },
        state,
        zone: bookie.zone.clone(),
        live: node.map(|node| LiveBookie {
            mode: node.mode,
            endpoint: node.endpoint,
            http: node.http,
        }),
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
            let candidate = one("a", bookie, node)?.candidate()?;
            Some((candidate.live, candidate.writable))
        };
        assert_eq!(seen(&bookie, Some("normal")), Some((true, true)));
        assert_eq!(seen(&bookie, Some("readonly")), Some((true, false)));
        assert_eq!(seen(&bookie, None), Some((false, false)));
        bookie.state = wire::bookie::State::ReadOnly as i32;
        assert_eq!(seen(&bookie, Some("normal")), Some((true, false)));
        for gone in [wire::bookie::State::Lost, wire::bookie::State::Draining] {
            bookie.state = gone as i32;
            assert_eq!(seen(&bookie, Some("normal")), None);
        }
    }
}
