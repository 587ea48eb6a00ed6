//! What metadata says of a ledger (storage.md M1), as typed values, and where it is kept.
//!
//! The ledger client writes these, the storage node reads them (B2), and both must agree; hence here.

use bytes::Bytes;
use prost::Message;

use crate::id::{
    EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId, TopicId,
};
use crate::tier::Tier;
use crate::time::TimestampMs;
use crate::wire::metadata as wire;

/// Longest encoded value that a reader believes.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The version that is written, and the only one that is read.
const FORMAT_VERSION: u32 = 1;

/// Prefix of the metadata keys of ledgers.
pub const LEDGER_PREFIX: &str = "ledger/";
/// The metadata key of the counter that numbers ledgers.
pub const LEDGER_IDS_KEY: &str = "id/ledger";

/// The metadata key of a ledger. Zero-padded, so that keys sort by number.
pub fn ledger_key(ledger: LedgerId) -> String {
    format!("{LEDGER_PREFIX}{:020}", ledger.0)
}

/// What a ledger is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LedgerKind {
    /// Records of a partition: offsets and P3 apply.
    Log,
    /// Deltas and snapshots of a partition's state; never tiered.
    State,
}

/// Where a ledger's life stands (storage.md M2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LedgerState {
    /// Its writer may append.
    Open,
    /// A recoverer decides its end.
    InRecovery,
    /// Its end is known for ever.
    Closed,
    /// Its data are being removed.
    Deleting,
}

/// One bookie as a member of an ensemble: a name and a life of its disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// The bookie.
    pub bookie: NodeName,
    /// Its disk.
    pub incarnation: Incarnation,
}

/// The bookies that store the entries from `first` to the next fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// First entry.
    pub first: EntryId,
    /// E members; entry e goes to positions e mod E, … (Qw of them).
    pub ensemble: Vec<Member>,
}

/// A copy that repair makes (storage.md X4): while it stands, `new` counts as a member for deletion and removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Where the fragment begins.
    pub first: EntryId,
    /// Who is to be replaced in it.
    pub old: Member,
    /// By whom.
    pub new: Member,
    /// The repair that made it.
    pub task: [u8; 16],
}

/// Totals of a closed ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedTotals {
    /// Exclusive.
    pub end: EntryId,
    /// Last offset + 1 − base offset.
    pub offset_span: u64,
    /// Records.
    pub record_count: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Order-free digest (storage.md 4.2).
    pub digest: u64,
}

/// Quorums (storage.md 2.0): 1 <= ack <= write <= ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quorums {
    /// E.
    pub ensemble: u32,
    /// Qw.
    pub write: u32,
    /// Qa.
    pub ack: u32,
}

impl Quorums {
    /// True for 1 <= Qa <= Qw <= E.
    pub fn valid(&self) -> bool {
        1 <= self.ack && self.ack <= self.write && self.write <= self.ensemble
    }
}

/// Entries that hold fewer copies than Qw (storage.md W11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degraded {
    /// First entry.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// Who lacks them.
    pub bookies: Vec<NodeName>,
}

/// A loss that was recorded, never silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub kind: LossKind,
    /// Entries from here on may have been lost.
    pub from: EntryId,
    /// When it was recorded.
    pub at: TimestampMs,
}

/// Why something was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossKind {
    /// Amendment to B5: a bookie that does not sync lost its tail.
    TailLost,
    /// R14: an operator accepted it.
    Accepted,
}

/// A ledger's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerMetadata {
    /// What it is for.
    pub kind: LedgerKind,
    /// Whose it is.
    pub partition: PartitionId,
    /// Which owner made it.
    pub owner_epoch: OwnerEpoch,
    /// Its quorums.
    pub quorums: Quorums,
    /// Its state.
    pub state: LedgerState,
    /// Highest recovery token given.
    pub recovery_token: FenceToken,
    /// In order of `first`; never empty.
    pub fragments: Vec<Fragment>,
    /// Offset of the first record (0 in state ledgers).
    pub base_offset: Offset,
    /// Set by the writer's own changes only (amendment to M3).
    pub writer_nonce: [u8; 16],
    /// Set by recovery's own changes only.
    pub recovery_nonce: [u8; 16],
    /// Present when closed; kept while deleting.
    pub closed: Option<ClosedTotals>,
    /// Under-replicated ranges.
    pub degraded: Vec<Degraded>,
    /// A recorded loss.
    pub loss: Option<Loss>,
    /// When it was made.
    pub created_at: TimestampMs,
    /// Copies under way.
    pub intents: Vec<Intent>,
    /// Set by repair's own changes only.
    pub repair_nonce: [u8; 16],
    /// What its owner said of it once it was settled, and where it is in object storage.
    pub tier: Option<Box<Tier>>,
}

/// Why a metadata value is not a ledger's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerMetadataError {
    /// Larger than any real one.
    #[error("value of {0} bytes is longer than {VALUE_BYTES_MAX}")]
    TooLong(usize),
    /// Not the wire format.
    #[error("value is not a ledger: {0}")]
    Decode(#[from] prost::DecodeError),
    /// Another version.
    #[error("value has format version {0}; this build reads version {FORMAT_VERSION}")]
    Version(u32),
    /// A field that cannot be.
    #[error("field {field} is missing or cannot be: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// Why.
        why: String,
    },
}

pub(crate) fn bad(field: &'static str, why: impl Into<String>) -> LedgerMetadataError {
    LedgerMetadataError::Field {
        field,
        why: why.into(),
    }
}

pub(crate) fn nonce(field: &'static str, bytes: &[u8]) -> Result<[u8; 16], LedgerMetadataError> {
    if bytes.is_empty() {
        return Ok([0; 16]);
    }
    bytes.try_into().map_err(|_| bad(field, "not 16 bytes"))
}

impl LedgerMetadata {
    /// The last fragment: where the writer writes and recovery asks (R3).
    ///
    /// # Panics
    /// Never: a decoded or created value has at least one.
    pub fn last_fragment(&self) -> &Fragment {
        self.fragments
            .last()
            .expect("a ledger has at least one fragment; decode checks it")
    }

    /// The fragment that stores `entry`.
    pub fn fragment_of(&self, entry: EntryId) -> &Fragment {
        let after = self
            .fragments
            .partition_point(|fragment| fragment.first <= entry);
        &self.fragments[after.saturating_sub(1)]
    }

    /// Where the fragment at `place` ends, as far as that is decided for ever (storage.md X2): `None` for the last fragment of a ledger
    /// that is not closed. What lies beyond a closed ledger's end belongs to nobody.
    pub fn settled_end(&self, place: usize) -> Option<EntryId> {
        let first = self.fragments.get(place)?.first;
        let next = self.fragments.get(place + 1).map(|next| next.first);
        let closed = match self.state {
            LedgerState::Closed | LedgerState::Deleting => self.closed.map(|closed| closed.end),
            LedgerState::Open | LedgerState::InRecovery => None,
        };
        match (next, closed) {
            (Some(next), Some(end)) => Some(next.min(end).max(first)),
            (next, closed) => next.or(closed.map(|end| end.max(first))),
        }
    }

    /// True when a member of some fragment, or the target of an intent.
    pub fn names(&self, member: &Member) -> bool {
        let mut ensembles = self
            .fragments
            .iter()
            .flat_map(|fragment| &fragment.ensemble);
        ensembles.any(|found| found == member)
            || self.intents.iter().any(|intent| intent.new == *member)
    }

    /// Encodes the value.
    pub fn encode(&self) -> Bytes {
        let to_nonce = |nonce: [u8; 16]| Bytes::copy_from_slice(&nonce);
        let value = wire::Ledger {
            format_version: FORMAT_VERSION,
            kind: match self.kind {
                LedgerKind::Log => wire::ledger::Kind::Log,
                LedgerKind::State => wire::ledger::Kind::State,
            } as i32,
            topic_uuid: self.partition.topic.to_bytes(),
            partition: self.partition.index,
            owner_epoch: self.owner_epoch.0,
            ensemble_size: self.quorums.ensemble,
            write_quorum: self.quorums.write,
            ack_quorum: self.quorums.ack,
            state: match self.state {
                LedgerState::Open => wire::ledger::State::Open,
                LedgerState::InRecovery => wire::ledger::State::InRecovery,
                LedgerState::Closed => wire::ledger::State::Closed,
                LedgerState::Deleting => wire::ledger::State::Deleting,
            } as i32,
            recovery_token: self.recovery_token.0,
            fragments: self.fragments.iter().map(Fragment::to_wire).collect(),
            base_offset: self.base_offset.0,
            writer_nonce: to_nonce(self.writer_nonce),
            recovery_nonce: to_nonce(self.recovery_nonce),
            closed: self.closed.map(|closed| wire::Closed {
                end: closed.end.0,
                offset_span: closed.offset_span,
                record_count: closed.record_count,
                bytes: closed.bytes,
                digest: closed.digest,
            }),
            degraded: self.degraded.iter().map(Degraded::to_wire).collect(),
            loss: self.loss.map(|loss| wire::Loss {
                kind: match loss.kind {
                    LossKind::TailLost => wire::loss::Kind::TailLost,
                    LossKind::Accepted => wire::loss::Kind::Accepted,
                } as i32,
                from_entry: loss.from.0,
                at_ms: loss.at,
            }),
            created_at_ms: self.created_at,
            intents: self.intents.iter().map(Intent::to_wire).collect(),
            repair_nonce: match self.repair_nonce {
                [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => Bytes::new(),
                nonce => to_nonce(nonce),
            },
            tier: self.tier.as_deref().map(Tier::to_wire),
        };
        value.encode_to_vec().into()
    }

    /// Decodes and checks a value.
    ///
    /// # Errors
    /// [`LedgerMetadataError`] that names the field.
    pub fn decode(bytes: &[u8]) -> Result<Self, LedgerMetadataError> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(LedgerMetadataError::TooLong(bytes.len()));
        }
        let value = wire::Ledger::decode(bytes)?;
        if value.format_version != FORMAT_VERSION {
            return Err(LedgerMetadataError::Version(value.format_version));
        }
        let topic = TopicId::from_slice(&value.topic_uuid)
            .ok_or_else(|| bad("topic_uuid", "not 16 bytes"))?;
        let kind = match value.kind() {
            wire::ledger::Kind::Log => LedgerKind::Log,
            wire::ledger::Kind::State => LedgerKind::State,
            wire::ledger::Kind::Unspecified => return Err(bad("kind", "unspecified")),
        };
        let state = match value.state() {
            wire::ledger::State::Open => LedgerState::Open,
            wire::ledger::State::InRecovery => LedgerState::InRecovery,
            wire::ledger::State::Closed => LedgerState::Closed,
            wire::ledger::State::Deleting => LedgerState::Deleting,
            wire::ledger::State::Unspecified => return Err(bad("state", "unspecified")),
        };
        let quorums = Quorums {
            ensemble: value.ensemble_size,
            write: value.write_quorum,
            ack: value.ack_quorum,
        };
        if !quorums.valid() {
            return Err(bad("quorums", format!("{quorums:?}")));
        }
        let closed = value.closed.map(|closed| ClosedTotals {
            end: EntryId(closed.end),
            offset_span: closed.offset_span,
            record_count: closed.record_count,
            bytes: closed.bytes,
            digest: closed.digest,
        });
        if state == LedgerState::Closed && closed.is_none() {
            return Err(bad("closed", "a closed ledger without totals"));
        }
        Ok(Self {
            kind,
            partition: PartitionId {
                topic,
                index: value.partition,
            },
            owner_epoch: OwnerEpoch(value.owner_epoch),
            quorums,
            state,
            recovery_token: FenceToken(value.recovery_token),
            fragments: decode_fragments(&value.fragments, quorums)?,
            base_offset: Offset(value.base_offset),
            writer_nonce: nonce("writer_nonce", &value.writer_nonce)?,
            recovery_nonce: nonce("recovery_nonce", &value.recovery_nonce)?,
            closed,
            degraded: value
                .degraded
                .iter()
                .map(Degraded::from_wire)
                .collect::<Result<_, _>>()?,
            loss: value.loss.as_ref().map(Loss::from_wire).transpose()?,
            created_at: value.created_at_ms,
            intents: value
                .intents
                .iter()
                .map(Intent::from_wire)
                .collect::<Result<_, _>>()?,
            repair_nonce: nonce("repair_nonce", &value.repair_nonce)?,
            tier: decode_tier(value.tier.as_ref(), kind, closed)?,
        })
    }
}

fn decode_tier(
    found: Option<&wire::Tier>,
    kind: LedgerKind,
    closed: Option<ClosedTotals>,
) -> Result<Option<Box<Tier>>, LedgerMetadataError> {
    let tier = found.map(|tier| Tier::from_wire(tier, kind, closed));
    Ok(tier.transpose()?.map(Box::new))
}

fn decode_fragments(
    found: &[wire::Fragment],
    quorums: Quorums,
) -> Result<Vec<Fragment>, LedgerMetadataError> {
    let fragments: Vec<Fragment> = found
        .iter()
        .map(Fragment::from_wire)
        .collect::<Result<_, _>>()?;
    if fragments
        .first()
        .is_none_or(|fragment| fragment.first != EntryId(0))
    {
        return Err(bad("fragments", "the first fragment must begin at entry 0"));
    }
    if !fragments.is_sorted_by(|a, b| a.first < b.first) {
        return Err(bad("fragments", "first entries must grow (storage.md M4)"));
    }
    if fragments
        .iter()
        .any(|fragment| fragment.ensemble.len() != quorums.ensemble as usize)
    {
        return Err(bad("fragments", "an ensemble of the wrong size"));
    }
    Ok(fragments)
}
