//! Damaged records of a partition as they are shown.

use hulse_sdk::DamagedRecords;
use serde::Serialize;

use crate::output::grouped;

/// Damaged records.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DamageView {
    ledger: u64,
    kind: String,
    first_entry: u64,
    end_entry: u64,
    first_offset: Option<u64>,
    end_offset: Option<u64>,
    file: u64,
}

impl From<DamagedRecords> for DamageView {
    fn from(damage: DamagedRecords) -> Self {
        Self {
            ledger: damage.ledger.0,
            kind: damage.kind,
            first_entry: damage.entries.start,
            end_entry: damage.entries.end,
            first_offset: damage.first_offset,
            end_offset: damage.end_offset,
            file: damage.file,
        }
    }
}

impl DamageView {
    /// "offsets 7 to 9 damaged (ledger 3)".
    pub(super) fn words(&self) -> String {
        let what = match (self.first_offset, self.end_offset) {
            (Some(first), Some(end)) if end > first => {
                format!("offsets {} to {}", grouped(first), grouped(end - 1))
            }
            (Some(first), _) => format!("offsets from {} on", grouped(first)),
            _ => format!("the partition's {}", self.kind),
        };
        format!("{what} damaged (ledger {})", self.ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_by_the_offsets_that_it_took() {
        let mut damage = DamageView {
            ledger: 3,
            kind: "log".to_owned(),
            first_entry: 1,
            end_entry: 2,
            first_offset: Some(1_000),
            end_offset: Some(1_003),
            file: 9,
        };
        let words = "offsets 1,000 to 1,002 damaged (ledger 3)";
        assert_eq!(damage.words(), words);
        (damage.end_offset, damage.ledger) = (None, 4);
        assert_eq!(damage.words(), "offsets from 1,000 on damaged (ledger 4)");
        (damage.first_offset, damage.kind) = (None, "state".to_owned());
        assert_eq!(damage.words(), "the partition's state damaged (ledger 4)");
    }
}
