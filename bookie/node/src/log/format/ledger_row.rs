//! What a state snapshot says of one ledger, as the numbers of its record.

use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::record::LimboKind;

/// Numbers of a row at most.
const NUMBERS: usize = 5 + LimboKind::ALL.len();
/// Ledger and flags are always written.
const NUMBERS_MIN: usize = 2;
const CONTACTED: u64 = 1;
const DELETED: u64 = 2;

/// All that is remembered of a ledger besides its entries. Merges into what is known, in any order (storage.md B1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LedgerRow {
    /// The ledger.
    pub ledger: LedgerId,
    /// Its writer's adds were accepted before.
    pub contacted: bool,
    /// It is deleted for ever.
    pub deleted: bool,
    /// Highest confirmed end of the writer's adds.
    pub confirmed_end: EntryId,
    /// Highest accepted token; 0: not fenced.
    pub fence: FenceToken,
    /// Limbo of boots up to this one is over.
    pub limbo_cleared: u64,
    /// The last boot that found out, by kind of limbo; 0: none did.
    pub limbo: [u64; LimboKind::ALL.len()],
}

impl LedgerRow {
    /// All numbers of the row.
    pub(super) fn numbers(&self) -> [u64; NUMBERS] {
        let flags = u64::from(self.contacted) * CONTACTED + u64::from(self.deleted) * DELETED;
        let [unsynced, damage, stale] = self.limbo;
        [
            self.ledger.0,
            flags,
            self.confirmed_end.0,
            self.fence.0,
            self.limbo_cleared,
            unsynced,
            damage,
            stale,
        ]
    }

    /// What of them is written.
    pub(super) fn trimmed(numbers: &[u64; NUMBERS]) -> &[u64] {
        let used = numbers.iter().rposition(|number| *number != 0);
        &numbers[..used.map_or(0, |last| last + 1).max(NUMBERS_MIN)]
    }

    /// The row of such numbers; `None` when no writer makes them.
    pub(super) fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let mut all = [0; NUMBERS];
        all.get_mut(..numbers.len())?.copy_from_slice(numbers);
        let [
            ledger,
            flags,
            confirmed_end,
            fence,
            limbo_cleared,
            unsynced,
            damage,
            stale,
        ] = all;
        let canonical = Self::trimmed(&all).len() == numbers.len();
        (canonical && flags <= CONTACTED + DELETED).then_some(Self {
            ledger: LedgerId(ledger),
            contacted: flags & CONTACTED != 0,
            deleted: flags & DELETED != 0,
            confirmed_end: EntryId(confirmed_end),
            fence: FenceToken(fence),
            limbo_cleared,
            limbo: [unsynced, damage, stale],
        })
    }
}
