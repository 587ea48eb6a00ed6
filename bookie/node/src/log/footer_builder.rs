//! Collects what a file's footer will say while the file is written or scanned. No I/O.

use std::collections::BTreeMap;

use hulse_proto::id::{EntryId, LedgerId};

use super::format::footer::{Footer, FooterLedger, FooterRun, FooterSlot};
use super::format::record::{DamagedRange, Record, Records};
use super::format::{FileHeader, GROUP_HEADER_BYTES, GroupHeader};
use crate::index::{Location, Runs, Slot};

#[derive(Default)]
struct Held {
    confirmed_end: EntryId,
    normal: bool,
    entries: Runs,
}

/// The footer of a file that is not sealed yet. The same body gives the same footer.
#[derive(Default)]
pub struct FooterBuilder {
    ledgers: BTreeMap<LedgerId, Held>,
    state: Vec<Record>,
    damage: Vec<DamagedRange>,
    first_sequence: Option<u64>,
    next_sequence: u64,
    end: u64,
    /// Ledgers that a snapshot at the head named so far.
    rows: u64,
    snapshot_end: u64,
    /// The group under way ends a complete snapshot.
    completes: bool,
}

impl FooterBuilder {
    /// Takes a record.
    pub fn record(&mut self, record: &Record, location: Location) {
        match *record {
            Record::Entry(found) => {
                let held = self.ledgers.entry(found.ledger).or_default();
                if found.normal {
                    held.normal = true;
                    held.confirmed_end = held.confirmed_end.max(found.confirmed_end);
                }
                let digest = found.digest;
                held.entries.insert(found.entry, Slot { location, digest });
            }
            Record::Ledger(_) => self.rows += 1,
            Record::SnapshotEnd { ledgers } => {
                self.completes = ledgers == self.rows && self.damage.is_empty();
            }
            record => self.state.push(record),
        }
    }

    /// The group of the last records is complete.
    pub fn group(&mut self, header: &GroupHeader) {
        self.first_sequence.get_or_insert(header.sequence);
        self.next_sequence = header.sequence + 1;
        self.end = header.offset + header.padded_bytes();
        if std::mem::take(&mut self.completes) && self.snapshot_end == 0 {
            self.snapshot_end = self.end;
        }
    }

    /// Takes a group: its header and its records' area. `None`: a record is not known, or damaged; nothing of the group after it
    /// counts.
    pub fn group_of(&mut self, file: u32, header: &GroupHeader, area: &[u8]) -> Option<()> {
        for placed in Records::new(area) {
            let placed = placed.ok()?;
            let location = Location {
                file,
                offset: header.offset as u32 + (GROUP_HEADER_BYTES + placed.at) as u32,
                bytes: placed.bytes as u32,
            };
            self.record(&placed.record, location);
        }
        self.group(header);
        Some(())
    }

    /// Takes a group that is written: its header, and its bytes, header included.
    pub fn written(&mut self, file: u64, header: &GroupHeader, bytes: &[u8]) {
        let body = GROUP_HEADER_BYTES..GROUP_HEADER_BYTES + header.body_bytes as usize;
        self.group_of(file as u32, header, &bytes[body])
            .expect("a group that was just built is made of known records");
    }

    /// Takes damage in the body.
    pub fn damaged(&mut self, range: DamagedRange) {
        self.damage.push(range);
    }

    /// Logical end so far; 0: no group yet.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The body ends here, whatever the last group says.
    pub fn end_at(&mut self, end: u64) {
        self.end = end;
    }

    /// True when the head of the file is a complete state snapshot.
    pub fn has_snapshot(&self) -> bool {
        self.snapshot_end > 0
    }

    /// The footer, and the slots of its runs, in their order.
    pub fn finish(&self, header: FileHeader) -> (Footer, Vec<FooterSlot>) {
        let mut slots = Vec::new();
        let mut ledgers = Vec::with_capacity(self.ledgers.len());
        for (ledger, held) in &self.ledgers {
            let from = slots.len();
            let mut runs = Vec::new();
            for (first, run) in held.entries.iter() {
                runs.push(FooterRun {
                    first,
                    entries: run.len() as u32,
                });
                slots.extend(run.iter().map(footer_slot));
            }
            let bytes = slots[from..].iter().map(|slot| u64::from(slot.bytes)).sum();
            ledgers.push(FooterLedger {
                ledger: *ledger,
                bytes,
                confirmed_end: held.confirmed_end,
                normal: held.normal,
                runs,
            });
        }
        let footer = Footer {
            header,
            first_sequence: self.first_sequence.unwrap_or(self.next_sequence),
            next_sequence: self.next_sequence,
            end: self.end,
            snapshot_end: self.snapshot_end,
            ledgers,
            damage: self.damage.clone(),
            state: self.state.clone(),
        };
        (footer, slots)
    }
}

fn footer_slot(slot: &Slot) -> FooterSlot {
    FooterSlot {
        offset: slot.location.offset,
        bytes: slot.location.bytes,
        digest: slot.digest,
    }
}
