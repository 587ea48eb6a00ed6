//! What the log says of all ledgers; built by replay, in any order of the records (storage.md B1).

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::{FenceToken, LedgerId};

use crate::index::{Location, Slot};
use crate::ledger::LedgerState;
use crate::log::recovery::Replay;
use crate::log::{DamagedRange, LimboKind, Record};

/// The ledgers of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// By number.
    pub ledgers: BTreeMap<LedgerId, LedgerState>,
    /// The deleted ones among them.
    pub tombstones: BTreeSet<LedgerId>,
    /// Unknown ledgers below are dead unless metadata says otherwise (G4).
    pub dead_below: LedgerId,
    /// Damage that was answered with limbo already.
    pub known_damage: BTreeSet<DamagedRange>,
}

impl Replay for NodeState {
    fn apply(&mut self, record: &Record, location: Location) {
        match *record {
            Record::Entry(found) => {
                let ledger = self.ledgers.entry(found.ledger).or_default();
                if found.normal {
                    ledger.confirmed_end = ledger.confirmed_end.max(found.confirmed_end);
                    ledger.contacted = true;
                }
                let digest = found.digest;
                ledger.store(found.entry, Slot { location, digest });
            }
            Record::Fence { ledger, token } => {
                let ledger = self.ledgers.entry(ledger).or_default();
                ledger.fence = ledger.fence.max(token);
            }
            Record::Limbo { ledger, kind, boot } => {
                self.ledgers
                    .entry(ledger)
                    .or_default()
                    .enter_limbo(kind, boot);
            }
            Record::LimboClear { ledger, boot } => {
                self.ledgers.entry(ledger).or_default().clear_limbo(boot);
            }
            Record::Tombstone { ledger } => self.bury(ledger),
            Record::DeadBelow { below } => self.dead_below = self.dead_below.max(below),
            Record::KnownDamage(range) => {
                self.known_damage.insert(range);
            }
            Record::SealMark { .. } => {}
        }
    }
}

impl NodeState {
    /// Deletes a ledger.
    pub fn bury(&mut self, ledger: LedgerId) {
        self.ledgers.entry(ledger).or_default().bury();
        self.tombstones.insert(ledger);
    }

    /// The watermark below which all tombstones but the `kept` highest lie; `None` when there are no more than that.
    pub fn watermark(&self, kept: usize) -> Option<LedgerId> {
        let more = self.tombstones.len().checked_sub(kept)?;
        let last = self.tombstones.iter().nth(more.checked_sub(1)?)?;
        Some(LedgerId(last.0 + 1))
    }

    /// Forgets the tombstones below the watermark which `ripe` lets go: for those, metadata are asked from now on.
    pub fn forget_dead(&mut self, ripe: impl Fn(LedgerId, &LedgerState) -> bool) {
        let Self {
            ledgers,
            tombstones,
            dead_below,
            ..
        } = self;
        tombstones.retain(|ledger| {
            let keep = *ledger >= *dead_below || !ripe(*ledger, &ledgers[ledger]);
            if !keep {
                ledgers.remove(ledger);
            }
            keep
        });
    }

    /// Ledgers that would take the writer's adds now without a look at metadata. If this disk may have lost a fence, it may have
    /// been theirs, whatever metadata say: a closed ledger was fenced once, and its old writer may still be there (S3).
    pub fn open_to_writers(&self) -> impl Iterator<Item = LedgerId> + '_ {
        let open =
            |state: &LedgerState| state.contacted && state.fence == FenceToken(0) && !state.deleted;
        let ledgers = self.ledgers.iter().filter(move |(_, state)| open(state));
        ledgers.map(|(ledger, _)| *ledger)
    }

    /// Puts ledgers into limbo at this boot; the records that make it durable.
    pub fn enter_limbo(&mut self, scope: &[LedgerId], kind: LimboKind, boot: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for ledger in scope {
            let state = self.ledgers.entry(*ledger).or_default();
            if !state.deleted {
                state.enter_limbo(kind, boot);
                records.push(Record::Limbo {
                    ledger: *ledger,
                    kind,
                    boot,
                });
            }
        }
        records
    }
}
