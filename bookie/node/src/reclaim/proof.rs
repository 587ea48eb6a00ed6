//! What metadata say of the ledgers that are held here: one pass over all of them.
//!
//! # Invariants
//! 1. A ledger is collectable only if a linearizable read of its own key says DELETING, or says that it is absent while its number was
//!    given (storage.md G1). A listing only names candidates.
//! 2. The store must serve this cell (G2). One that was wiped, or put back to a copy that has not given every number which is held
//!    here, proves nothing, not even of the ledgers that it knows. A copy that has given them all cannot be told from the store itself:
//!    numbers are given in blocks, and a ledger whose block was given before the copy was made, and which was created after it, counts
//!    as gone (Z6).
//! 3. A pass that would drop suspiciously much drops nothing (G3).
//! 4. A ledger that lives is let go of only while it is closed and two reads name this member nowhere, not even as the target of a
//!    repair (G6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bookie_metadata::cell::{CellError, read_cell};
use bookie_metadata::{ListRequest, MetadataError, MetadataStore, counter};
use hulse_proto::id::{CellId, EntryId, FenceToken, LedgerId};
use hulse_proto::ledger::{
    LEDGER_IDS_KEY, LEDGER_PREFIX, LedgerMetadata, LedgerState, Loss, Member, ledger_key,
};
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::time::TimestampMs;

use crate::log::DamagedRange;

/// Rows of one page of the listing.
const PAGE_ROWS: usize = 500;
/// So few ledgers may always be dropped at once (G3).
const BREAKER_LEDGERS_MIN: u64 = 100;

/// What is held here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Ledgers that are not deleted, and their bytes.
    pub ledgers: BTreeMap<LedgerId, u64>,
    /// Those of them that are in limbo.
    pub limbo: BTreeSet<LedgerId>,
    /// Those of them without entries.
    pub empty: BTreeSet<LedgerId>,
    /// Ranges of the log that were damaged, and by which something may be missing.
    pub ranges: Vec<DamagedRange>,
    /// When this boot began, by the wall: a loss that was accepted before is no word about what was found since. For people alone.
    pub since: TimestampMs,
    /// While there are any ranges: the entries that are held of each ledger, sorted and not touching.
    pub runs: BTreeMap<LedgerId, Vec<Range<u64>>>,
    /// How many copies and write-backs were taken until now, in this boot.
    pub copies: u64,
    /// For tests: a rule that is switched off.
    pub mutation: Mutation,
}

impl Held {
    /// Whether a ledger in this state is to be dropped.
    fn is_dead(&self, state: LedgerState) -> bool {
        let careless = self.mutation.is(Mutant::ClosedIsDead);
        state == LedgerState::Deleting || (careless && state == LedgerState::Closed)
    }

    /// Whether all that belongs here of a closed ledger is held. One that is not closed was in limbo, or was made later.
    fn is_whole(&self, ledger: LedgerId, value: &LedgerMetadata, me: &Member) -> bool {
        let mut fragments = value.fragments.iter();
        let ours = fragments.any(|fragment| fragment.ensemble.contains(me));
        if value.state != LedgerState::Closed || !ours {
            return true;
        }
        let runs = self.runs.get(&ledger).map_or(&[][..], Vec::as_slice);
        let holds = |first: EntryId, end: EntryId| {
            runs.iter()
                .any(|run| run.start <= first.0 && end.0 <= run.end)
        };
        let known = value.loss.filter(|loss| loss.at >= self.since);
        let ours = belonging(value, me, known);
        ours.is_some_and(|ours| ours.iter().all(|(first, end)| holds(*first, *end)))
    }

    /// Whether a ledger belongs to other members alone.
    fn is_stray(&self, ledger: LedgerId, value: &LedgerMetadata, me: &Member) -> bool {
        let careless = self.mutation.is(Mutant::IntentsForgotten);
        let mut fragments = value.fragments.iter();
        let named = match careless {
            true => fragments.any(|fragment| fragment.ensemble.contains(me)),
            false => value.names(me),
        };
        value.state == LedgerState::Closed && !named && !self.empty.contains(&ledger)
    }
}

/// A ledger whose end is decided for ever, and what of it belongs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Which.
    pub ledger: LedgerId,
    /// A token that fences its writer for good.
    pub token: FenceToken,
    /// Entries that this member must hold; first and exclusive end.
    pub ours: Vec<(EntryId, EntryId)>,
}

/// What a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// Gone for ever, proved one by one.
    pub dead: Vec<LedgerId>,
    /// Ledgers in limbo that are closed.
    pub settled: Vec<Settled>,
    /// Damaged ranges by which nothing is missing any more: no ledger is in limbo, and of each closed one all is here that belongs here,
    /// but for what was given up for lost.
    pub covered: Vec<DamagedRange>,
    /// Closed ledgers of which no fragment and no intent names this member, by two reads (G6); as many as may go at once.
    pub strays: Vec<LedgerId>,
}

/// Why a pass proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The store did not answer.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The store's cell record cannot be read.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// The store serves another cell, or none (G2).
    #[error("metadata serve {found:?}, this bookie belongs to cell {ours}; nothing is dropped")]
    OtherCell {
        /// Of the identity file.
        ours: CellId,
        /// Of the store.
        found: Option<CellId>,
    },
    /// The store has not given the number of a ledger that is held: it is an older copy (G2).
    #[error(
        "metadata never gave the number of ledger {ledger}, which is held here: an older copy of them was put back. Nothing is dropped; bring the newer metadata back"
    )]
    Older {
        /// The ledger of the highest number here.
        ledger: LedgerId,
    },
    /// More than the configured share would go at once (G3).
    #[error(
        "{dead} of {held} ledgers with {dead_bytes} of {held_bytes} bytes are gone by metadata's word, which is suspiciously much: nothing is dropped. If topics were deleted, raise bookie.gc_percent_max and start again; else look at the metadata store"
    )]
    Breaker {
        /// That would be dropped.
        dead: u64,
        /// Held.
        held: u64,
        /// That would be dropped.
        dead_bytes: u64,
        /// Held.
        held_bytes: u64,
    },
}

/// What one ledger's own key says.
enum Word {
    Dead,
    Closed(Box<LedgerMetadata>),
    Stands,
}

/// One pass. Reads only; may be dropped anywhere.
///
/// # Errors
/// [`ProofError`]; then nothing of the pass counts.
pub async fn examine(
    metadata: &dyn MetadataStore,
    cell: CellId,
    (me, percent_max): (&Member, u8),
    held: &Held,
) -> Result<Findings, ProofError> {
    let found = read_cell(metadata).await?.map(|record| record.cell);
    if found != Some(cell) {
        return Err(ProofError::OtherCell { ours: cell, found });
    }
    // Before the ledgers' keys: what is absent later and below this number was given before.
    let given_below = counter::next_number(metadata, LEDGER_IDS_KEY).await?;
    let newest = held.ledgers.last_key_value().map(|(ledger, _)| *ledger);
    if let Some(ledger) = newest.filter(|ledger| ledger.0 >= given_below) {
        return Err(ProofError::Older { ledger });
    }
    let mut findings = Findings::default();
    let careless = held.mutation.is(Mutant::ListingIsProof);
    let (candidates, whole) = candidates(metadata, held, me).await?;
    if whole && held.limbo.is_empty() {
        findings.covered.clone_from(&held.ranges);
    }
    for ledger in candidates {
        let word = match careless && !held.limbo.contains(&ledger) {
            true => Word::Dead,
            false => read(metadata, held, ledger).await?,
        };
        match word {
            Word::Dead => findings.dead.push(ledger),
            Word::Closed(value) => {
                if held.limbo.contains(&ledger) {
                    findings.settled.extend(settled(ledger, &value, me));
                }
                if held.is_stray(ledger, &value, me) {
                    findings.strays.push(ledger);
                }
            }
            Word::Stands => {}
        }
    }
    breaker(held, &findings.dead, percent_max)?;
    // The rest has its turn with the next pass.
    let share = held.ledgers.len() as u64 * u64::from(percent_max) / 100;
    findings
        .strays
        .truncate(share.max(BREAKER_LEDGERS_MIN) as usize);
    Ok(findings)
}

/// Ledgers that are worth a look: not in the listing, or listed as being deleted, or as others'; and those in limbo. And whether of every
/// closed one all is here that belongs here, which is looked at while there are damaged ranges.
async fn candidates(
    metadata: &dyn MetadataStore,
    held: &Held,
    me: &Member,
) -> Result<(BTreeSet<LedgerId>, bool), MetadataError> {
    let mut whole = !held.ranges.is_empty();
    let mut left: BTreeSet<LedgerId> = held.ledgers.keys().copied().collect();
    let mut request = ListRequest {
        prefix: LEDGER_PREFIX.to_owned(),
        after: None,
        limit: PAGE_ROWS,
        at: None,
    };
    loop {
        let page = metadata.list(request.clone()).await?;
        for row in &page.items {
            let number = row.key.strip_prefix(LEDGER_PREFIX);
            let ledger = number.and_then(|id| id.parse().ok()).map(LedgerId);
            let value = LedgerMetadata::decode(&row.value);
            let Some(ledger) = ledger else {
                continue;
            };
            whole = whole
                && value
                    .as_ref()
                    .is_ok_and(|value| held.is_whole(ledger, value, me));
            let looked = |value: LedgerMetadata| {
                held.is_dead(value.state) || held.is_stray(ledger, &value, me)
            };
            if !value.is_ok_and(looked) {
                left.remove(&ledger);
            }
        }
        let Some(last) = page.items.last().filter(|_| page.more) else {
            break;
        };
        request.after = Some(last.key.clone());
        request.at = Some(page.revision);
    }
    left.extend(&held.limbo);
    Ok((left, whole))
}

async fn read(
    metadata: &dyn MetadataStore,
    held: &Held,
    ledger: LedgerId,
) -> Result<Word, MetadataError> {
    let Some(row) = metadata.get(&ledger_key(ledger)).await? else {
        return Ok(Word::Dead);
    };
    // What cannot be read stands.
    Ok(match LedgerMetadata::decode(&row.value) {
        Ok(value) if held.is_dead(value.state) => Word::Dead,
        Ok(value) if value.state == LedgerState::Closed => Word::Closed(Box::new(value)),
        _ => Word::Stands,
    })
}

/// A closed ledger, once it is known what of it belongs to this member.
fn settled(ledger: LedgerId, value: &LedgerMetadata, me: &Member) -> Option<Settled> {
    Some(Settled {
        ledger,
        token: value.recovery_token.max(FenceToken(1)),
        ours: belonging(value, me, value.loss)?,
    })
}

/// What of a closed ledger belongs to this member; `None` when that cannot be told: with entries spread over a part of the ensemble
/// each.
fn belonging(
    value: &LedgerMetadata,
    me: &Member,
    loss: Option<Loss>,
) -> Option<Vec<(EntryId, EntryId)>> {
    if value.quorums.write != value.quorums.ensemble {
        return None;
    }
    // What is given up for lost nobody brings any more (R14).
    let lost = loss.map(|loss| loss.from);
    let end = value.closed?.end;
    let end = lost.map_or(end, |lost| lost.min(end));
    let ends = value.fragments.iter().skip(1).map(|next| next.first);
    let ours = value.fragments.iter();
    let ours = ours
        .zip(ends.chain([end]))
        .filter(|(fragment, _)| fragment.ensemble.contains(me))
        .map(|(fragment, next)| (fragment.first, next.min(end)))
        .filter(|(first, next)| first < next);
    Some(ours.collect())
}

/// G3.
fn breaker(held: &Held, dead: &[LedgerId], percent_max: u8) -> Result<(), ProofError> {
    let held_bytes = held.ledgers.values().sum::<u64>();
    let dead_bytes = dead.iter().filter_map(|ledger| held.ledgers.get(ledger));
    let dead_bytes = dead_bytes.sum::<u64>();
    let (all, gone) = (held.ledgers.len() as u64, dead.len() as u64);
    let too_much = |part: u64, whole: u64| {
        u128::from(part) * 100 > u128::from(whole) * u128::from(percent_max)
    };
    if gone > BREAKER_LEDGERS_MIN && (too_much(gone, all) || too_much(dead_bytes, held_bytes)) {
        return Err(ProofError::Breaker {
            dead: gone,
            held: all,
            dead_bytes,
            held_bytes,
        });
    }
    Ok(())
}
