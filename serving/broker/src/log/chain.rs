//! The list of a partition's ledgers, in metadata (storage.md Z2, P1–P6).
//!
//! Links stand in chunks; only the last chunk grows. Every change is a compare on the chunk's version, joined by the caller with
//! the compare on the owner epoch, so that a former owner can never link.
//!
//! The chain of a log also says where the log begins (P6). Each new value goes into the last chunk, which never goes while it is the
//! last: the highest value of all chunks is the log start, whatever older chunks have or had.

use std::time::Duration;

use bookie_metadata::{Compare, MetadataError, MetadataStore, Op, Revision, Txn, list_all};
use hulse_proto::id::{LedgerId, Offset, PartitionId};
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
    log_start: u64,
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
            // Kept as long as the partition is open: no more room than that.
            let mut links = chunk.links;
            links.shrink_to_fit();
            Ok(Chunk {
                number,
                version: item.version,
                links,
                log_start: chunk.log_start,
            })
        });
        let mut chunks: Vec<_> = chunks.collect::<Result<_, ChainError>>()?;
        chunks.shrink_to_fit();
        Ok(Self {
            partition,
            kind,
            chunks,
        })
    }

    /// All ledgers, oldest first.
    pub(crate) fn links(&self) -> impl DoubleEndedIterator<Item = &ChainLink> {
        self.chunks.iter().flat_map(|chunk| &chunk.links)
    }

    /// Where the log begins; 0 for a chain of the state.
    pub(crate) fn log_start(&self) -> Offset {
        let starts = self.chunks.iter().map(|chunk| chunk.log_start);
        Offset(starts.max().unwrap_or_default())
    }

    fn key(&self, number: u64) -> String {
        chain_key(self.partition, self.kind, number)
    }

    /// The compare and the write that link one more ledger.
    pub(crate) fn append(&self, link: ChainLink) -> Txn {
        match self.chunks.last() {
            Some(last) if last.links.len() < CHUNK_LINKS_MAX => {
                let links = last.links.iter().copied().chain([link]).collect();
                self.rewrite(last, links, last.log_start)
            }
            last => {
                let number = last.map_or(0, |last| last.number + 1);
                self.begin(number, vec![link], self.log_start().0)
            }
        }
    }

    /// The compare and the write that move the log start to `to`.
    pub(crate) fn move_start(&self, to: Offset) -> Txn {
        match self.chunks.last() {
            Some(last) => self.rewrite(last, last.links.clone(), to.0),
            None => self.begin(0, Vec::new(), to.0),
        }
    }

    /// A chunk that there was not.
    fn begin(&self, number: u64, links: Vec<ChainLink>, log_start: u64) -> Txn {
        let key = self.key(number);
        Txn {
            compares: vec![Compare::Absent(key.clone())],
            ops: vec![Op::put(
                key,
                ChainChunk { links, log_start }.encode_to_vec(),
            )],
        }
    }

    fn rewrite(&self, chunk: &Chunk, links: Vec<ChainLink>, log_start: u64) -> Txn {
        let key = self.key(chunk.number);
        Txn {
            compares: vec![Compare::Version(key.clone(), chunk.version)],
            ops: vec![Op::put(
                key,
                ChainChunk { links, log_start }.encode_to_vec(),
            )],
        }
    }

    /// The compares and writes that drop the oldest `count` links. The last chunk stays, be it without a link.
    pub(crate) fn unlink_first(&self, count: usize) -> Txn {
        let mut txn = Txn::default();
        let mut left = count;
        let last = self.chunks.len().saturating_sub(1);
        for (index, chunk) in self.chunks.iter().enumerate() {
            if left == 0 {
                break;
            }
            let gone = left.min(chunk.links.len());
            left -= gone;
            if gone == chunk.links.len() && index < last {
                txn.extend(self.remove(chunk));
            } else if gone > 0 {
                let kept = chunk.links[gone..].to_vec();
                txn.extend(self.rewrite(chunk, kept, chunk.log_start));
            }
        }
        txn
    }

    fn remove(&self, chunk: &Chunk) -> Txn {
        let key = self.key(chunk.number);
        Txn {
            compares: vec![Compare::Version(key.clone(), chunk.version)],
            ops: vec![Op::Delete { key }],
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
            if kept.is_empty() {
                txn.extend(self.remove(chunk));
            } else {
                txn.extend(self.rewrite(chunk, kept, chunk.log_start));
            }
        }
        txn
    }

    /// Reads it again, as it is now.
    pub(crate) async fn refresh(&mut self, store: &dyn MetadataStore) -> Result<(), ChainError> {
        *self = Self::load(store, self.partition, self.kind).await?;
        Ok(())
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
                log_start: 0,
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

    /// What stands after `txn` was committed.
    fn after(mut chain: Chain, txn: &Txn) -> Chain {
        for op in &txn.ops {
            let (Op::Put { key, .. } | Op::Delete { key }) = op;
            let number: u64 = key.rsplit('/').next().unwrap().parse().unwrap();
            chain.chunks.retain(|chunk| chunk.number != number);
            if let Op::Put { value, .. } = op {
                let chunk = ChainChunk::decode(&value[..]).unwrap();
                chain.chunks.push(Chunk {
                    number,
                    version: Revision(99),
                    links: chunk.links,
                    log_start: chunk.log_start,
                });
            }
        }
        chain.chunks.sort_by_key(|chunk| chunk.number);
        chain
    }

    #[test]
    fn log_start_outlives_every_change_of_the_chain() {
        let full: Vec<u64> = (0..CHUNK_LINKS_MAX as u64).collect();
        let begun = chain(vec![vec![500, 501], full]);
        let begun = after(begun.clone(), &begun.move_start(Offset(7)));
        let link = ChainLink {
            ledger: 999,
            ..ChainLink::default()
        };
        let grown = after(begun.clone(), &begun.append(link));
        assert_eq!((grown.chunks.len(), grown.log_start()), (3, Offset(7)));
        let moved = after(grown.clone(), &grown.move_start(Offset(9)));
        for count in [0, 1, 2, 3, 130, 131] {
            let cut = after(moved.clone(), &moved.unlink_first(count));
            assert_eq!(cut.log_start(), Offset(9), "{count} links dropped");
            assert_eq!(cut.links().count(), 131 - count);
        }
        let empty = chain(vec![]);
        let made = after(empty.clone(), &empty.move_start(Offset(3)));
        assert_eq!(made.log_start(), Offset(3));
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
