//! Who can be called in this process: the one bookie, directly, and what metadata says of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bookie_client::{BookieDirectory, Candidate};
use bookie_metadata::{BoxFuture, MetadataError, MetadataStore, list_all};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::{Incarnation, NodeName};
use hulse_proto::ledger::Member;
use hulse_proto::wire::metadata as wire;

const BOOKIES: &str = "bookie/";
const LIVE: &str = "node/bookie/";

/// Bookies of this process by name.
pub(crate) struct LocalBookies {
    metadata: Arc<dyn MetadataStore>,
    calls: BTreeMap<NodeName, Arc<dyn BookieCalls>>,
}

impl LocalBookies {
    /// One bookie.
    pub(crate) fn new(
        metadata: Arc<dyn MetadataStore>,
        name: NodeName,
        calls: Arc<dyn BookieCalls>,
    ) -> Self {
        Self {
            metadata,
            calls: BTreeMap::from([(name, calls)]),
        }
    }
}

impl BookieDirectory for LocalBookies {
    fn calls(&self, member: &Member) -> Option<Arc<dyn BookieCalls>> {
        self.calls.get(&member.bookie).cloned()
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        Box::pin(async move {
            let bookies = list_all(&*self.metadata, BOOKIES).await?;
            let live = list_all(&*self.metadata, LIVE).await?;
            let mut modes = BTreeMap::new();
            for row in live {
                let node: wire::Node = decode(&row.key, row.value)?;
                modes.insert(row.key[LIVE.len()..].to_owned(), node.mode);
            }
            let mut candidates = Vec::new();
            for row in bookies {
                let bookie: wire::Bookie = decode(&row.key, row.value)?;
                let name = row.key[BOOKIES.len()..].to_owned();
                let mode = modes.get(&name).map(String::as_str);
                candidates.extend(candidate(&name, &bookie, mode));
            }
            Ok(candidates)
        })
    }
}

fn decode<T: hulse_proto::wire::Message + Default>(
    key: &str,
    value: bytes::Bytes,
) -> Result<T, MetadataError> {
    T::decode(value).map_err(|error| MetadataError::Corrupt {
        why: format!("{key}: {error}"),
    })
}

/// An ACTIVE bookie; `None` for one that takes no new ledgers or whose record is not one.
fn candidate(name: &str, bookie: &wire::Bookie, mode: Option<&str>) -> Option<Candidate> {
    if bookie.state() != wire::bookie::State::Active {
        return None;
    }
    let member = Member {
        bookie: NodeName::new(name).ok()?,
        incarnation: Incarnation::from_slice(&bookie.incarnation)?,
    };
    Some(Candidate {
        member,
        live: mode.is_some(),
        writable: matches!(mode, Some("normal" | "low" | "")),
        zone: bookie.zone.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookie_is_a_candidate_while_active_and_writable_while_live() {
        let mut bookie = wire::Bookie {
            incarnation: bytes::Bytes::from_static(&[7; 16]),
            state: wire::bookie::State::Active as i32,
            ..wire::Bookie::default()
        };
        let seen = |bookie: &wire::Bookie, mode| {
            candidate("a", bookie, mode).map(|found| (found.live, found.writable))
        };
        assert_eq!(seen(&bookie, Some("normal")), Some((true, true)));
        assert_eq!(seen(&bookie, Some("readonly")), Some((true, false)));
        assert_eq!(seen(&bookie, None), Some((false, false)));
        bookie.state = wire::bookie::State::Lost as i32;
        assert_eq!(seen(&bookie, Some("normal")), None);
    }
}
