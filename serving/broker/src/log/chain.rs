//! The list of a partition's ledgers, in metadata (storage.md Z2, P1–P6).
//!
//! Links stand in chunks; only the last chunk grows. Every change is a compare on the chunk's version, joined by the caller with
//! the compare on the owner epoch, so that a former owner can never link.

use std::time::Duration;

use bookie_metadata::{Compare, MetadataError, MetadataStore, Op, Revision, Txn, list_all};
use hulse_proto::id::{LedgerId, PartitionId};
use hulse_proto::ledger::LedgerKind;
use hulse_proto::wire::metadata::{ChainChunk, ChainLink};
use prost::Message;

use crate::keys::{chain_key, chain_prefix};

/// Links per chunk; about 4 KiB encoded.
const CHUNK_LINKS_MAX: usize = 128;

/// A silent metadata store is asked again this often …
const RELOAD_TRIES: u32 = 50;
/// … with this pause.
const RELOAD_WAIT: Duration = Duration::from_millis(100);

/// One chain as last read or written.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    partition: PartitionId,
    kind: LedgerKind,
    chunks: Vec<Chunk>,
}

#[derive(Debug, Clone)]
struct Chunk {
    number: u64,
    version: Revision,
    links: Vec<ChainLink>,
}

/// Why a chain could not be read or is no longer ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChainError {
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("chain {key} cannot be decoded: {why}")]
    Corrupt { key: String, why: String },
    #[error("chain {key} was changed by another owner")]
    Changed { key: String },
}

impl Chain {
    /// Reads it.
    pub(crate) async fn load(
        store: &dyn MetadataStore,
        partition: PartitionId,
        kind: LedgerKind,
    ) -> Result<Self, ChainError> {
        let items = list_all(store, &chain_prefix(partition, kind)).await?;
        let chunks = items.into_iter().map(|item| {
            let corrupt = |why: String| ChainError::Corrupt {
                key: item.key.clone(),
                why,
            };
            let chunk =
                ChainChunk::decode(&item.value[..]).map_err(|error| corrupt(error.to_string()))?;
            let number = item
                .key
                .rsplit('/')
                .next()
                .and_then(|number| number.parse().ok());
            let number = number.ok_or_else(|| corrupt("the key has no number".to_owned()))?;
            Ok(Chunk {
                number,
                version: item.version,
                links: chunk.links,
            })
        });
        Ok(Self {
            partition,
            kind,
            chunks: chunks.collect::<Result<_, ChainError>>()?,
        })
    }

    /// All ledgers, oldest first.
    pub(crate) fn links(&self) -> impl DoubleEndedIterator<Item = &ChainLink> {
        self.chunks.iter().flat_map(|chunk| &chunk.links)
    }

    fn key(&self, number: u64) -> String {
        chain_key(self.partition, self.kind, number)
    }

    /// The compare and the write that link one more ledger.
    pub(crate) fn append(&self, link: ChainLink) -> Txn {
        match self.chunks.last() {
            Some(last) if last.links.len() < CHUNK_LINKS_MAX => {
                let links = last.links.iter().copied().chain([link]).collect();
                self.write(
                    Compare::Version(self.key(last.number), last.version),
                    last.number,
                    links,
                )
            }
            last => {
                let number = last.map_or(0, |last| last.number + 1);
                self.write(Compare::Absent(self.key(number)), number, vec![link])
            }
        }
    }

    fn write(&self, compare: Compare, number: u64, links: Vec<ChainLink>) -> Txn {
        let value = ChainChunk { links }.encode_to_vec();
        Txn {
            compares: vec![compare],
            ops: vec![Op::put(self.key(number), value)],
        }
    }

    /// The compares and writes that drop every link before that of `keep_from`. By place, not by number: owners take their
    /// ledgers' numbers from blocks of their own, so a later link may have a lower one.
    pub(crate) fn unlink_before(&self, keep_from: LedgerId) -> Txn {
        let mut txn = Txn::default();
        if !self.links().any(|link| link.ledger == keep_from.0) {
            return txn;
        }
        let mut reached = false;
        for chunk in &self.chunks {
            let mut kept = Vec::with_capacity(chunk.links.len());
            for link in &chunk.links {
                reached |= link.ledger == keep_from.0;
                if reached {
                    kept.push(*link);
                }
            }
            if kept.len() == chunk.links.len() {
                continue;
            }
            let compare = Compare::Version(self.key(chunk.number), chunk.version);
            if kept.is_empty() {
                txn.extend(Txn {
                    compares: vec![compare],
                    ops: vec![Op::Delete {
                        key: self.key(chunk.number),
                    }],
                });
            } else {
                txn.extend(self.write(compare, chunk.number, kept));
            }
        }
        txn
    }

    /// Reads it again after a change of ours was committed, and checks that the newest link is `expected`.
    pub(crate) async fn reload(
        &mut self,
        store: &dyn MetadataStore,
        expected: LedgerId,
    ) -> Result<(), ChainError> {
        let mut tries = 0;
        let fresh = loop {
            match Self::load(store, self.partition, self.kind).await {
                // The change is made; only its version is asked for, so a short silence is waited out.
                Err(ChainError::Metadata(_)) if tries < RELOAD_TRIES => {
                    tries += 1;
                    tokio::time::sleep(RELOAD_WAIT).await;
                }
                other => break other?,
            }
        };
        if fresh
            .links()
            .next_back()
            .is_none_or(|link| link.ledger != expected.0)
        {
            return Err(ChainError::Changed {
                key: chain_prefix(self.partition, self.kind),
            });
        }
        *self = fresh;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;

    use super::*;

    fn chain(chunks: Vec<Vec<u64>>) -> Chain {
        let partition = PartitionId {
            topic: TopicId::default(),
            index: 0,
        };
        let chunks = chunks
            .into_iter()
            .enumerate()
            .map(|(number, ledgers)| Chunk {
                number: number as u64,
                version: Revision(number as u64 + 1),
                links: ledgers
                    .into_iter()
                    .map(|ledger| ChainLink {
                        ledger,
                        ..ChainLink::default()
                    })
                    .collect(),
            });
        Chain {
            partition,
            kind: LedgerKind::Log,
            chunks: chunks.collect(),
        }
    }

    #[test]
    fn append_to_a_full_chunk_opens_the_next_one() {
        let full = chain(vec![(0..CHUNK_LINKS_MAX as u64).collect()]);
        let txn = full.append(ChainLink {
            ledger: 999,
            ..ChainLink::default()
        });
        assert!(matches!(&txn.compares[..], [Compare::Absent(key)] if key.ends_with("0000000001")));
        let room = chain(vec![vec![1, 2]]);
        let txn = room.append(ChainLink {
            ledger: 3,
            ..ChainLink::default()
        });
        assert!(matches!(
            &txn.compares[..],
            [Compare::Version(_, Revision(1))]
        ));
    }

    #[test]
    fn unlink_before_touches_only_chunks_that_hold_older_ledgers() {
        let txn = chain(vec![vec![1, 2], vec![3, 4], vec![5]]).unlink_before(LedgerId(4));
        assert_eq!(txn.compares.len(), 2);
        assert!(matches!(txn.ops[..], [Op::Delete { .. }, Op::Put { .. }]));
    }

    #[test]
    fn unlink_before_goes_by_place_and_not_by_number() {
        let txn = chain(vec![vec![9, 17, 8]]).unlink_before(LedgerId(17));
        let [Op::Put { value, .. }] = &txn.ops[..] else {
            panic!("{txn:?}");
        };
        let kept = ChainChunk::decode(&value[..]).unwrap().links;
        let kept: Vec<u64> = kept.iter().map(|link| link.ledger).collect();
        assert_eq!(kept, [17, 8]);
        assert!(
            chain(vec![vec![17, 8]])
                .unlink_before(LedgerId(17))
                .ops
                .is_empty()
        );
    }
}
