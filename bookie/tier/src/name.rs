//! Names of segment objects: what each belongs to, readable without anything else (storage.md O2, O12).
//!
//! `<prefix>/<cell>/<topic>/<partition>/<ledgers>/<segment>`, where `<ledgers>` is the first ledger and, for each further one, how far it
//! lies behind the one before, in hexadecimal numbers with points between: `1f`, `1f.2.1`.
//!
//! # Invariants
//! 1. A name holds every ledger that may ever name the object: who asks all of them knows whether the object has an owner.
//! 2. It is never used again: the segment's identity stands in it.

use hulse_proto::id::{CellId, LedgerId, PartitionId, SegmentId, TopicId};
use uuid::Uuid;

use crate::format::DIRECTORY_LEDGERS_MAX;

/// Longest part of a name that holds ledgers: directories take names of 255 bytes.
const LEDGERS_BYTES_MAX: usize = 200;

/// The name of a segment, in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// The cluster.
    pub cell: CellId,
    /// The partition of all its ledgers.
    pub partition: PartitionId,
    /// In order; 1 to [`DIRECTORY_LEDGERS_MAX`].
    pub ledgers: Vec<LedgerId>,
    /// The attempt that makes it.
    pub segment: SegmentId,
}

/// What every name of a cell begins with, the last slash included.
pub fn cell_prefix(prefix: &str, cell: CellId) -> String {
    match prefix.trim_matches('/') {
        "" => format!("{cell}/"),
        prefix => format!("{prefix}/{cell}/"),
    }
}

/// True when so many ledgers fit into one name. They must be in order, without one twice.
pub fn fits(ledgers: &[LedgerId]) -> bool {
    let counted = (1..=DIRECTORY_LEDGERS_MAX).contains(&ledgers.len());
    counted
        && ledgers.is_sorted_by(|a, b| a < b)
        && ledgers_part(ledgers).len() <= LEDGERS_BYTES_MAX
}

fn ledgers_part(ledgers: &[LedgerId]) -> String {
    let mut before = 0;
    let steps = ledgers.iter().map(|ledger| {
        let step = ledger.0 - before;
        before = ledger.0;
        format!("{step:x}")
    });
    steps.collect::<Vec<_>>().join(".")
}

impl ObjectName {
    /// The whole name.
    ///
    /// # Panics
    /// If the ledgers do not [`fits`].
    pub fn to_name(&self, prefix: &str) -> String {
        assert!(fits(&self.ledgers), "{:?} do not fit", self.ledgers);
        let (topic, index) = (self.partition.topic, self.partition.index);
        let (ledgers, segment) = (ledgers_part(&self.ledgers), self.segment);
        let before = cell_prefix(prefix, self.cell);
        format!("{before}{topic}/{index}/{ledgers}/{segment}")
    }

    /// Reads a whole name, whatever it begins with; `None` when it is not exactly what [`ObjectName::to_name`] writes. Also what it begins
    /// with.
    pub fn parse(name: &str) -> Option<(&str, Self)> {
        let mut parts = name.rsplitn(6, '/');
        let mut part = || parts.next();
        let segment = SegmentId(Uuid::parse_str(part()?).ok()?);
        let steps = part()?;
        let index = part()?.parse().ok()?;
        let topic = TopicId(Uuid::parse_str(part()?).ok()?);
        let cell = CellId(Uuid::parse_str(part()?).ok()?);
        let prefix = part().unwrap_or("");
        if steps.len() > LEDGERS_BYTES_MAX {
            return None;
        }
        let mut ledgers: Vec<LedgerId> = Vec::new();
        for step in steps.split('.') {
            let step = u64::from_str_radix(step, 16).ok()?;
            let before = ledgers.last().map_or(0, |before| before.0);
            ledgers.push(LedgerId(before.checked_add(step)?));
        }
        let found = Self {
            cell,
            partition: PartitionId { topic, index },
            ledgers,
            segment,
        };
        (fits(&found.ledgers) && found.to_name(prefix) == name).then_some((prefix, found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(ledgers: &[u64]) -> ObjectName {
        ObjectName {
            cell: CellId(Uuid::from_u128(1)),
            partition: PartitionId {
                topic: TopicId(Uuid::from_u128(2)),
                index: 7,
            },
            ledgers: ledgers.iter().copied().map(LedgerId).collect(),
            segment: SegmentId(Uuid::from_u128(3)),
        }
    }

    #[test]
    fn name_says_what_the_object_belongs_to() {
        let name = name(&[31, 33, 34]);
        let text = name.to_name("/hulse/a/");
        let expected = "hulse/a/00000000-0000-0000-0000-000000000001/00000000-0000-0000-0000-000000000002/7/1f.2.1/00000000-0000-0000-0000-000000000003";
        assert_eq!(text, expected);
        assert_eq!(ObjectName::parse(&text), Some(("hulse/a", name.clone())));
        let bare = name.to_name("");
        assert_eq!(ObjectName::parse(&bare), Some(("", name)));
    }

    #[test]
    fn foreign_names_are_nobodys() {
        let name = name(&[5]);
        let text = name.to_name("p");
        for foreign in [
            format!("{text}/more"),
            text.replace("/5/", "/05/"),
            text.replace("/5/", "/5.0/"),
            text.replace("/5/", "/ffffffffffffffff.1/"),
            text.replace("/7/", "/+7/"),
            text.replace("/5/", "/A/"),
        ] {
            assert_eq!(ObjectName::parse(&foreign), None, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn roundtrip_keeps_every_ledger(steps in proptest::collection::vec(1_u64..1 << 40, 1..40)) {
            let mut before = 0;
            let ledgers: Vec<u64> = steps.iter().map(|step| { before += step; before }).collect();
            let name = name(&ledgers);
            if fits(&name.ledgers) {
                let text = name.to_name("x");
                prop_assert_eq!(ObjectName::parse(&text), Some(("x", name)));
            } else {
                prop_assert!(ledgers.len() > 10);
            }
        }
    }
}
