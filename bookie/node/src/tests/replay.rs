//! Storage.md §12, 5: replay commutes and is idempotent.

use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use proptest::prelude::*;

use crate::Location;
use crate::core::NodeState;
use crate::log::record::EntryRecord;
use crate::log::{DamagedRange, DamagedRun, LedgerRow, LimboKind, Record};

fn record() -> impl Strategy<Value = Record> {
    let ledger = (0..3_u64).prop_map(LedgerId);
    let number = 0..6_u64;
    (ledger, number, 0..18_u32, any::<bool>()).prop_map(|(ledger, n, kind, normal)| match kind {
        0 | 1 => Record::Fence {
            ledger,
            token: FenceToken(n),
        },
        2 => Record::Limbo {
            ledger,
            kind: LimboKind::Damage,
            boot: n,
        },
        3 => Record::Limbo {
            ledger,
            kind: LimboKind::Unsynced,
            boot: n,
        },
        4 => Record::LimboClear { ledger, boot: n },
        5 if n == 0 => Record::Tombstone { ledger },
        6 => Record::DeadBelow { below: LedgerId(n) },
        7 => Record::KnownDamage(DamagedRange {
            file: n,
            first: 0,
            end: 9,
        }),
        8 => Record::SealMark {
            file: n,
            end: 4096 * u64::from(normal),
        },
        9 => Record::FilesRemoved {
            first: n,
            end: n + 1 + ledger.0,
        },
        10 => Record::Ledger(LedgerRow {
            ledger,
            contacted: normal,
            deleted: n == 5 && normal,
            confirmed_end: EntryId(n),
            fence: FenceToken(n / 2),
            limbo_cleared: n / 3,
            limbo: [n, 0, 2],
        }),
        11 => Record::DamagedEntries(DamagedRun {
            ledger,
            first: EntryId(n),
            end: EntryId(n + 1 + u64::from(normal)),
            file: n as u32 / 2,
        }),
        12 => Record::DamageCovered(DamagedRange {
            file: n,
            first: 0,
            end: 9,
        }),
        _ => Record::Entry(EntryRecord {
            ledger,
            entry: EntryId(n),
            digest: EntryDigest {
                header_crc: n as u32,
                payload_crc: ledger.0 as u32,
            },
            confirmed_end: EntryId(u64::from(kind)),
            normal,
        }),
    })
}

fn replay(records: &[(Record, Location)]) -> NodeState {
    let mut state = NodeState::default();
    for (record, location) in records {
        state.apply(record, *location);
    }
    // As a start does: what lies below the watermark may be forgotten.
    state.forget_dead(|_, _| true);
    state
}

proptest! {
    #[test]
    fn replay_in_any_order_and_twice_gives_the_same_state(
        records in prop::collection::vec(record(), 0..60),
        order in any::<[u64; 8]>(),
        doubled in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let placed: Vec<(Record, Location)> = records
            .into_iter()
            .zip(0..)
            .map(|(record, at)| (record, Location { file: at / 10, offset: at * 100, bytes: 100 }))
            .collect();
        let expected = replay(&placed);
        let mut shuffled = placed.clone();
        if !placed.is_empty() {
            shuffled.extend(doubled.iter().map(|index| placed[index.index(placed.len())]));
        }
        shuffled.sort_by_key(|(_, at)| {
            order[(at.offset as usize / 100) % 8].rotate_left(at.offset) ^ u64::from(at.offset)
        });
        prop_assert_eq!(replay(&shuffled), expected);
    }
}
