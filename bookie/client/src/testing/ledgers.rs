//! The ledger logic of a storage node (storage.md B0–B13) over maps: everything is durable at once, unless it is told to lose it.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::bookie::{
    AddRequest, Address, BookieError, EntryHead, FenceAnswer, FenceRequest, HeldLedger, HeldRun,
    INVENTORY_RUNS_MAX, Inventory, InventoryRequest, Origin, ReadRequest, RecoveryReadAnswer,
    RecoveryReadRequest, StoredEntry, entry_mark,
};
use hulse_proto::entry::Entry;
use hulse_proto::id::{CellId, EntryId, FenceToken, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member};
use hulse_proto::mutant::{Mutant, Mutation};

/// Whether entries of a ledger may have been lost (storage.md S3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Limbo {
    /// No.
    #[default]
    Never,
    /// Yes.
    Lost,
    /// Yes, because it does not sync (amended B5).
    Unsynced,
}

#[derive(Debug, Default)]
struct Ledger {
    fence: FenceToken,
    confirmed_end: EntryId,
    deleted: bool,
    limbo: Limbo,
    entries: BTreeMap<EntryId, StoredEntry>,
    damaged: BTreeSet<EntryId>,
}

/// A storage node without a disk. Calls take effect at once; the caller decides when answers travel.
#[derive(Debug)]
pub struct MemoryLedgers {
    cell: CellId,
    member: Member,
    ledgers: BTreeMap<LedgerId, Ledger>,
    mutation: Mutation,
}

impl MemoryLedgers {
    /// An empty one.
    pub fn new(cell: CellId, member: Member) -> Self {
        Self {
            cell,
            member,
            ledgers: BTreeMap::new(),
            mutation: Mutation::default(),
        }
    }

    /// Who it is.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Switches a rule off.
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutation = mutation;
    }

    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.mutation.is(mutant)
    }

    /// B0: before anything else.
    fn check(&self, to: Address) -> Result<(), BookieError> {
        if to.cell != self.cell {
            let (found, asked) = (self.cell, to.cell);
            return Err(BookieError::WrongCell { found, asked });
        }
        if to.incarnation != self.member.incarnation {
            let (found, asked) = (self.member.incarnation, to.incarnation);
            return Err(BookieError::WrongIncarnation { found, asked });
        }
        Ok(())
    }

    /// True when this add is the first contact with its ledger, so that metadata must be read before it is carried out (B2).
    pub fn must_verify(&self, request: &AddRequest) -> bool {
        self.check(request.to).is_ok()
            && request.origin == Origin::Normal
            && !self.ledgers.contains_key(&request.to.ledger)
    }

    /// Judges a first contact by what metadata says (B2); `Ok` makes the ledger known.
    ///
    /// # Errors
    /// [`BookieError::Deleted`], [`BookieError::Fenced`], [`BookieError::NotInEnsemble`].
    pub fn verify(
        &mut self,
        ledger: LedgerId,
        metadata: Option<&LedgerMetadata>,
    ) -> Result<(), BookieError> {
        let Some(metadata) = metadata else {
            return Err(BookieError::Deleted { ledger });
        };
        match metadata.state {
            LedgerState::Open => {}
            LedgerState::Deleting => return Err(BookieError::Deleted { ledger }),
            LedgerState::InRecovery | LedgerState::Closed => {
                let token = metadata.recovery_token;
                return Err(BookieError::Fenced { ledger, token });
            }
        }
        if !metadata.last_fragment().ensemble.contains(&self.member) {
            let token = FenceToken(0);
            return Err(match self.is_mutant(Mutant::StrangerEndsWriter) {
                true => BookieError::Fenced { ledger, token },
                false => BookieError::NotInEnsemble { ledger },
            });
        }
        self.ledgers.entry(ledger).or_default();
        Ok(())
    }

    /// Stores an entry (B3, B7, B9).
    ///
    /// # Errors
    /// As a storage node's.
    pub fn add(&mut self, request: &AddRequest) -> Result<(), BookieError> {
        self.check(request.to)?;
        let header = *request.entry.header();
        let (ledger, entry) = (request.to.ledger, header.entry);
        if header.ledger != ledger || request.entry.verify().is_err() {
            let why = "the entry is damaged or another ledger's".to_owned();
            return Err(BookieError::Invalid { why });
        }
        let forgetful = self.is_mutant(Mutant::FenceForgotten);
        let raises = self.is_mutant(Mutant::RecoveryRaisesConfirmedEnd);
        let state = self.ledgers.entry(ledger).or_default();
        if state.deleted {
            return Err(BookieError::Deleted { ledger });
        }
        let fence = state.fence;
        match request.origin {
            Origin::Normal if fence.0 > 0 && !forgetful => {
                return Err(BookieError::Fenced {
                    ledger,
                    token: fence,
                });
            }
            Origin::Normal if state.limbo != Limbo::Never => {
                return Err(BookieError::Limbo { ledger });
            }
            Origin::Recovery { token } if token < fence => {
                return Err(BookieError::StaleToken {
                    ledger,
                    token: fence,
                    asked: token,
                });
            }
            Origin::Copy { bound } if entry >= bound => {
                let why = format!("entry {entry} is not below {bound}");
                return Err(BookieError::Invalid { why });
            }
            Origin::Recovery { token } => state.fence = token,
            Origin::Normal | Origin::Copy { .. } => {}
        }
        if let Some(held) = state.entries.get(&entry)
            && held.entry.header().digest() != header.digest()
        {
            return Err(BookieError::Conflict { ledger, entry });
        }
        if request.origin == Origin::Normal || raises {
            state.confirmed_end = state.confirmed_end.max(request.confirmed_end);
        }
        state.entries.entry(entry).or_insert_with(|| StoredEntry {
            entry: request.entry.clone(),
            confirmed_end: request.confirmed_end,
        });
        Ok(())
    }

    /// Fences a ledger, known or not (B10).
    ///
    /// # Errors
    /// As a storage node's.
    pub fn fence(&mut self, request: FenceRequest) -> Result<FenceAnswer, BookieError> {
        self.check(request.to)?;
        let ledger = request.to.ledger;
        let state = self.ledgers.entry(ledger).or_default();
        if state.deleted {
            return Err(BookieError::Deleted { ledger });
        }
        if request.token < state.fence {
            return Err(BookieError::StaleToken {
                ledger,
                token: state.fence,
                asked: request.token,
            });
        }
        state.fence = request.token;
        let held = state.entries.keys().next_back();
        Ok(FenceAnswer {
            token: request.token,
            confirmed_end: state.confirmed_end,
            held_end: held.map_or(EntryId(0), |last| last.next()),
        })
    }

    /// Reads for recovery: fences, then promises (B11).
    ///
    /// # Errors
    /// As a storage node's; all are of the UNKNOWN class.
    pub fn recovery_read(
        &mut self,
        request: RecoveryReadRequest,
    ) -> Result<RecoveryReadAnswer, BookieError> {
        if self.is_mutant(Mutant::ReadWithoutFence) {
            self.check(request.to)?;
        } else {
            let RecoveryReadRequest { to, token, .. } = request;
            self.fence(FenceRequest { to, token })?;
        }
        let (ledger, entry) = (request.to.ledger, request.entry);
        let careless = self.is_mutant(Mutant::NegativeFromLimbo);
        let state = self.ledgers.entry(ledger).or_default();
        if state.damaged.contains(&entry) {
            return Err(BookieError::Damaged { ledger, entry });
        }
        if let Some(held) = state.entries.get(&entry) {
            return Ok(RecoveryReadAnswer::Positive(held.clone()));
        }
        match state.limbo {
            Limbo::Lost if !careless => Err(BookieError::Limbo { ledger }),
            Limbo::Never | Limbo::Lost => Ok(RecoveryReadAnswer::Negative {
                unsynced_limbo: false,
            }),
            Limbo::Unsynced => Ok(RecoveryReadAnswer::Negative {
                unsynced_limbo: true,
            }),
        }
    }

    /// Reads a run of entries (B13).
    ///
    /// # Errors
    /// As a storage node's.
    pub fn read(&self, request: ReadRequest) -> Result<Vec<StoredEntry>, BookieError> {
        self.check(request.to)?;
        let (ledger, entry) = (request.to.ledger, request.first);
        let state = self
            .ledgers
            .get(&ledger)
            .ok_or(BookieError::NotHere { ledger, entry })?;
        if state.deleted {
            return Err(BookieError::Deleted { ledger });
        }
        if state.damaged.contains(&entry) {
            return Err(BookieError::Damaged { ledger, entry });
        }
        let mut bytes = 0;
        let found: Vec<StoredEntry> = (request.first.0..request.end.0)
            .map(EntryId)
            .take_while(|entry| !state.damaged.contains(entry))
            .map_while(|entry| state.entries.get(&entry).cloned())
            .take_while(|stored| {
                let first = bytes == 0;
                bytes += stored.entry.header().entry_len();
                first || bytes <= request.max_bytes as usize
            })
            .collect();
        if found.is_empty() {
            return Err(BookieError::NotHere { ledger, entry });
        }
        Ok(found)
    }

    /// As [`MemoryLedgers::read`], headers and envelopes.
    ///
    /// # Errors
    /// As a storage node's.
    pub fn read_heads(&self, request: ReadRequest) -> Result<Vec<EntryHead>, BookieError> {
        let found = self.read(request)?;
        let heads = found.iter().map(|stored| EntryHead {
            header: *stored.entry.header(),
            envelope: stored.entry.envelope(),
        });
        Ok(heads.collect())
    }

    /// Writes a tombstone (G4).
    ///
    /// # Errors
    /// As a storage node's.
    pub fn delete(&mut self, to: Address) -> Result<(), BookieError> {
        self.check(to)?;
        let state = self.ledgers.entry(to.ledger).or_default();
        state.deleted = true;
        state.entries.clear();
        Ok(())
    }

    /// What is held (storage.md X8).
    ///
    /// # Errors
    /// When the request is for another node.
    pub fn inventory(&self, request: InventoryRequest) -> Result<Inventory, BookieError> {
        self.check(request.to)?;
        let mut inventory = Inventory::default();
        let mut room = INVENTORY_RUNS_MAX;
        for (ledger, state) in self.ledgers.range(request.to.ledger..request.ledgers_end) {
            if room == 0 {
                inventory.next = Some(*ledger);
                break;
            }
            let mut runs: Vec<HeldRun> = Vec::new();
            for (entry, stored) in state.entries.range(request.first..request.end) {
                if state.damaged.contains(entry) || state.deleted {
                    continue;
                }
                let mark = entry_mark(*entry, stored.entry.header().digest());
                let mark = request.digests.then_some(mark);
                match runs.last_mut().filter(|last| last.end == *entry) {
                    Some(last) => {
                        last.end = entry.next();
                        let sum = last.digest.zip(mark);
                        last.digest = sum.map(|(sum, mark)| sum.wrapping_add(mark));
                    }
                    None => runs.push(HeldRun {
                        first: *entry,
                        end: entry.next(),
                        digest: mark,
                    }),
                }
            }
            if runs.len() > room && !inventory.ledgers.is_empty() {
                inventory.next = Some(*ledger);
                break;
            }
            runs.truncate(room);
            room -= runs.len();
            if !runs.is_empty() {
                let ledger = *ledger;
                inventory.ledgers.push(HeldLedger { ledger, runs });
            }
        }
        Ok(inventory)
    }

    /// The entry it holds, as an oracle sees it.
    pub fn held(&self, ledger: LedgerId, entry: EntryId) -> Option<&Entry> {
        let state = self.ledgers.get(&ledger)?;
        state.entries.get(&entry).map(|stored| &stored.entry)
    }

    /// True when it holds nothing of a ledger any more, and says so for ever.
    pub fn is_deleted(&self, ledger: LedgerId) -> bool {
        self.ledgers.get(&ledger).is_some_and(|state| state.deleted)
    }

    /// Loses the fence and the entries from `from` on, as a crash does, and is in limbo from then on.
    pub fn lose_from(&mut self, ledger: LedgerId, from: EntryId, limbo: Limbo) {
        let state = self.ledgers.entry(ledger).or_default();
        state.entries.split_off(&from);
        state.confirmed_end = state.confirmed_end.min(from);
        state.fence = FenceToken(0);
        state.limbo = limbo;
    }

    /// Makes one entry unreadable.
    pub fn damage(&mut self, ledger: LedgerId, entry: EntryId) {
        let state = self.ledgers.entry(ledger).or_default();
        state.damaged.insert(entry);
    }
}
