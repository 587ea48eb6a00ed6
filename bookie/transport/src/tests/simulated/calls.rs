//! The calls, and what each is to be answered: both follow from its number, so that an answer to another call is seen.

use std::fmt::Write as _;

use bytes::Bytes;
use hulse_proto::bookie::{
    AddRequest, Address, BookieError, EntryHead, FenceAnswer, FenceRequest, HeldLedger, HeldRun,
    Inventory, InventoryRequest, Origin, ReadClass, ReadRequest, RecoveryReadAnswer,
    RecoveryReadRequest, StoredEntry,
};
use hulse_proto::entry::{EntryClass, NewEntry, Totals};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId, Offset};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

/// Most bytes of one body.
pub(super) const BODY_BYTES_MAX: usize = 3_000;
/// What a read may bring; no answer of these is longer.
const READ_BYTES: u32 = 64 << 10;

/// One call of a caller, for ever: its ledger carries both numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallId {
    pub(super) caller: u32,
    pub(super) number: u32,
}

impl CallId {
    pub(super) fn of(to: &Address) -> Self {
        Self {
            caller: (to.ledger.0 >> 32) as u32,
            number: to.ledger.0 as u32,
        }
    }

    pub(super) fn ledger(self) -> LedgerId {
        LedgerId((u64::from(self.caller) << 32) | u64::from(self.number))
    }

    pub(super) fn address(self) -> Address {
        Address {
            cell: CellId(Uuid::from_u128(1)),
            incarnation: Incarnation(Uuid::from_u128(2)),
            ledger: self.ledger(),
        }
    }

    /// A number that follows from it, another one for each `salt`.
    pub(super) fn draw(self, salt: u64) -> u64 {
        let mixed = (self.ledger().0 ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn body(self) -> Bytes {
        let length = self.draw(1) as usize % BODY_BYTES_MAX;
        Bytes::from(vec![self.number as u8; length])
    }

    fn entry(self, at: u64) -> StoredEntry {
        let number = u64::from(self.number) + at;
        let new = NewEntry {
            class: EntryClass::Data,
            first_offset: Offset(number),
            offset_span: 1,
            record_count: 1,
            envelope: Bytes::from_static(b"envelope."),
            body: vec![self.body()],
        };
        StoredEntry {
            entry: new.seal(self.ledger(), EntryId(number), Totals::default()),
            confirmed_end: EntryId(self.draw(2) % 1000),
        }
    }

    pub(super) fn add(self) -> AddRequest {
        AddRequest {
            to: self.address(),
            origin: Origin::Normal,
            confirmed_end: EntryId(u64::from(self.number)),
            entry: self.entry(0).entry,
            timeout: std::time::Duration::from_secs(10),
        }
    }

    pub(super) fn fence(self) -> FenceRequest {
        FenceRequest {
            to: self.address(),
            token: FenceToken(self.draw(3)),
        }
    }

    pub(super) fn recovery_read(self) -> RecoveryReadRequest {
        RecoveryReadRequest {
            to: self.address(),
            token: FenceToken(self.draw(3)),
            entry: EntryId(u64::from(self.number)),
        }
    }

    pub(super) fn read(self) -> ReadRequest {
        ReadRequest {
            to: self.address(),
            first: EntryId(u64::from(self.number)),
            end: EntryId(u64::MAX),
            max_bytes: READ_BYTES,
            class: ReadClass::Tail,
        }
    }

    pub(super) fn inventory(self) -> InventoryRequest {
        InventoryRequest {
            to: self.address(),
            ledgers_end: LedgerId(u64::MAX),
            first: EntryId(0),
            end: EntryId(u64::MAX),
            digests: true,
        }
    }

    /// What a change is answered.
    pub(super) fn done(self) -> Result<(), BookieError> {
        let ledger = self.ledger();
        match self.draw(4) % 10 {
            0 => Err(BookieError::ReadOnly {
                why: format!("{self:?}"),
            }),
            1 => Err(BookieError::Fenced {
                ledger,
                token: FenceToken(self.draw(3)),
            }),
            2 => Err(BookieError::Deleted { ledger }),
            _ => Ok(()),
        }
    }

    pub(super) fn fenced(self) -> Result<FenceAnswer, BookieError> {
        self.done()?;
        Ok(FenceAnswer {
            token: FenceToken(self.draw(3)),
            confirmed_end: EntryId(self.draw(5)),
            held_end: EntryId(self.draw(6)),
        })
    }

    pub(super) fn recovered(self) -> Result<RecoveryReadAnswer, BookieError> {
        self.done()?;
        Ok(match self.draw(7) % 3 {
            0 => RecoveryReadAnswer::Negative {
                unsynced_limbo: self.draw(8).is_multiple_of(2),
            },
            _ => RecoveryReadAnswer::Positive(self.entry(0)),
        })
    }

    pub(super) fn entries(self) -> Result<Vec<StoredEntry>, BookieError> {
        self.done()?;
        Ok((0..self.draw(9) % 12).map(|at| self.entry(at)).collect())
    }

    pub(super) fn heads(self) -> Result<Vec<EntryHead>, BookieError> {
        let head = |stored: StoredEntry| EntryHead {
            header: *stored.entry.header(),
            envelope: stored.entry.envelope(),
        };
        Ok(self.entries()?.into_iter().map(head).collect())
    }

    pub(super) fn held(self) -> Result<Inventory, BookieError> {
        self.done()?;
        let run = |at: u64| HeldRun {
            first: EntryId(2 * at),
            end: EntryId(2 * at + 1),
            digest: Some(self.draw(10 + at)),
        };
        Ok(Inventory {
            ledgers: vec![HeldLedger {
                ledger: self.ledger(),
                runs: (0..1 + self.draw(9) % 40).map(run).collect(),
            }],
            next: Some(LedgerId(self.draw(5))),
        })
    }
}

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Add,
    Fence,
    RecoveryRead,
    Delete,
    Read,
    Heads,
    Inventory,
}

impl Kind {
    pub(super) fn draw(rng: &mut ChaCha12Rng) -> Self {
        match rng.random_range(0..100) {
            0..50 => Self::Add,
            50..58 => Self::Fence,
            58..66 => Self::RecoveryRead,
            66..70 => Self::Delete,
            70..85 => Self::Read,
            85..93 => Self::Heads,
            _ => Self::Inventory,
        }
    }

    /// True for a call of the lane of changes.
    pub(super) fn is_ordered(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Fence | Self::RecoveryRead | Self::Delete
        )
    }

    /// What a call of this kind is to be answered, in words.
    pub(super) fn expected(self, id: CallId) -> Result<String, BookieError> {
        match self {
            Self::Add | Self::Delete => id.done().map(|()| "done".to_owned()),
            Self::Fence => id.fenced().map(|answer| format!("{answer:?}")),
            Self::RecoveryRead => id.recovered().map(|answer| recovered_words(&answer)),
            Self::Read => id.entries().map(|answer| entries_words(&answer)),
            Self::Heads => id.heads().map(|answer| format!("{answer:?}")),
            Self::Inventory => id.held().map(|answer| format!("{answer:?}")),
        }
    }
}

pub(super) fn recovered_words(answer: &RecoveryReadAnswer) -> String {
    match answer {
        RecoveryReadAnswer::Positive(stored) => entries_words(std::slice::from_ref(stored)),
        RecoveryReadAnswer::Negative { .. } => format!("{answer:?}"),
    }
}

/// Entries in words: all of the headers, which have the checksums of the rest, and whether those are right.
pub(super) fn entries_words(entries: &[StoredEntry]) -> String {
    let mut words = String::new();
    for stored in entries {
        let (header, right) = (stored.entry.header(), stored.entry.verify());
        write!(words, "{header:?} {right:?} {} ", stored.confirmed_end)
            .expect("a string takes everything");
    }
    words
}
