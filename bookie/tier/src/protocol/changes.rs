//! What tiering writes into a ledger's metadata. Pure functions.
//!
//! # Invariant
//! Each returns `None` where it must not be made; the compare on the version does the rest.

use hulse_proto::id::{EntryId, SegmentId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState, Member};
use hulse_proto::tier::{Attempt, GARBAGE_MAX, LocalCopies, Segment, Tier};

/// May an attempt at this ledger begin (O1)? A ledger of which something was lost stays where it is: its digest cannot be right.
pub(super) fn may_attempt(metadata: &LedgerMetadata) -> bool {
    let tier = metadata.tier.as_deref();
    let settled = tier.is_some_and(|tier| tier.settled.is_some() && tier.segment.is_none());
    let has_entries = metadata
        .closed
        .is_some_and(|closed| closed.end > EntryId(0));
    metadata.kind == LedgerKind::Log
        && metadata.state == LedgerState::Closed
        && metadata.loss.is_none()
        && settled
        && has_entries
}

fn changed(
    metadata: &LedgerMetadata,
    nonce: [u8; 16],
    change: impl FnOnce(&mut Tier),
) -> Box<LedgerMetadata> {
    let mut metadata = Box::new(metadata.clone());
    let mut tier = metadata.tier.take().unwrap_or_default();
    change(&mut tier);
    tier.nonce = nonce;
    metadata.tier = Some(tier);
    metadata
}

/// The intent; an earlier attempt becomes garbage in the same change. `None` when there is too much of that.
pub(super) fn with_intent(
    metadata: &LedgerMetadata,
    attempt: &Attempt,
    nonce: [u8; 16],
) -> Option<Box<LedgerMetadata>> {
    let tier = metadata.tier.as_deref()?;
    let garbage = tier.garbage.len() + usize::from(tier.attempt.is_some());
    (garbage <= GARBAGE_MAX).then(|| {
        changed(metadata, nonce, |tier| {
            tier.garbage.extend(tier.attempt.replace(attempt.clone()));
        })
    })
}

/// True while this very attempt may be committed (O6, O7).
pub(super) fn holds_intent(metadata: &LedgerMetadata, id: SegmentId) -> bool {
    let tier = metadata.tier.as_deref();
    let attempt = tier.and_then(|tier| tier.attempt.as_ref());
    may_attempt(metadata) && attempt.is_some_and(|attempt| attempt.id == id)
}

/// The commit.
pub(super) fn with_segment(
    metadata: &LedgerMetadata,
    segment: Segment,
    nonce: [u8; 16],
) -> Box<LedgerMetadata> {
    changed(metadata, nonce, |tier| {
        tier.attempt = None;
        tier.segment = Some(segment);
    })
}

/// The segment of a ledger that is closed.
pub(super) fn live_segment(metadata: &LedgerMetadata) -> Option<(&Segment, LocalCopies)> {
    let tier = metadata.tier.as_deref()?;
    let segment = tier.segment.as_ref()?;
    (metadata.state == LedgerState::Closed).then_some((segment, tier.local))
}

/// What bookies have, from now on.
pub(super) fn with_local(
    metadata: &LedgerMetadata,
    local: LocalCopies,
    nonce: [u8; 16],
) -> Box<LedgerMetadata> {
    changed(metadata, nonce, |tier| tier.local = local)
}

/// The segment does not stand for the ledger any more; only while its copies are there.
pub(super) fn withdrawn(metadata: &LedgerMetadata, nonce: [u8; 16]) -> Option<Box<LedgerMetadata>> {
    let tier = metadata.tier.as_deref()?;
    let fits = tier.local == LocalCopies::Held && tier.garbage.len() < GARBAGE_MAX;
    fits.then(|| {
        changed(metadata, nonce, |tier| {
            let segment = tier.segment.take();
            tier.garbage.extend(segment.map(|segment| segment.attempt));
        })
    })
}

/// Without garbage whose objects are deleted.
pub(super) fn without_garbage(
    metadata: &LedgerMetadata,
    gone: &[Attempt],
    nonce: [u8; 16],
) -> Box<LedgerMetadata> {
    changed(metadata, nonce, |tier| {
        tier.garbage.retain(|attempt| !gone.contains(attempt));
    })
}

/// Whether a ledger can be read from this attempt's object, now or later. While it is marked as deleting nobody reads it; an attempt that
/// is not committed is not read either, and its commit needs every ledger that its name holds.
pub(super) fn is_read_from(metadata: &LedgerMetadata, id: SegmentId) -> bool {
    live_segment(metadata).is_some_and(|(segment, _)| segment.attempt.id == id)
}

/// Everybody who may have a copy: the members of all fragments and whom repair copies to (storage.md X4, G5).
pub(super) fn holders(metadata: &LedgerMetadata) -> Vec<Member> {
    let members = metadata.fragments.iter().flat_map(|found| &found.ensemble);
    let targets = metadata.intents.iter().map(|intent| &intent.new);
    let mut holders: Vec<Member> = Vec::new();
    for member in members.chain(targets) {
        if !holders.contains(member) {
            holders.push(member.clone());
        }
    }
    holders
}
