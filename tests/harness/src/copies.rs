//! The oracle of copies (storage.md §11): every entry of a closed ledger has Qa valid ones in the recorded ensemble, but for those that
//! an injected fault of a disk destroyed.

use hulse_proto::bookie::{Address, ReadClass, ReadRequest};
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{EntryId, Incarnation, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState};

use crate::bookie::SimBookie;
use crate::world::World;

impl World {
    /// Every entry of every closed ledger has at least Qa valid copies in its recorded ensemble.
    pub fn check_copies(&self) {
        for (number, metadata) in self.store.ledgers() {
            if metadata.state == LedgerState::Closed {
                self.check_ledger_copies(LedgerId(number), &metadata);
            }
        }
    }

    fn check_ledger_copies(&self, ledger: LedgerId, metadata: &LedgerMetadata) {
        let end = metadata.closed.map_or(0, |closed| closed.end.0);
        for entry in (0..end).map(EntryId) {
            let (digests, destroyed) = self.copies(ledger, metadata, entry);
            let most = digests
                .iter()
                .map(|one| digests.iter().filter(|d| *d == one).count())
                .max();
            let enough = most.unwrap_or(0) + destroyed >= metadata.quorums.ack as usize;
            let same = digests.windows(2).all(|pair| pair[0] == pair[1]);
            self.violations.check(enough && same, || {
                format!(
                    "entry {entry} of closed ledger {ledger} has the copies {digests:?}, destroyed {destroyed}"
                )
            });
        }
    }

    /// Digests of the copies of an entry at the members that should have it, and how many copies its disk's faults destroyed.
    fn copies(
        &self,
        ledger: LedgerId,
        metadata: &LedgerMetadata,
        entry: EntryId,
    ) -> (Vec<EntryDigest>, usize) {
        let (mut digests, mut destroyed) = (Vec::new(), 0);
        for member in &metadata.fragment_of(entry).ensemble {
            let bookie = self
                .bookies
                .iter()
                .find(|b| b.name() == member.bookie.as_str());
            let Some(bookie) = bookie else {
                continue;
            };
            match self.copy(bookie, member.incarnation, ledger, entry) {
                Some(digest) => digests.push(digest),
                None => destroyed += usize::from(bookie.has_lost(ledger, entry)),
            }
        }
        (digests, destroyed)
    }

    fn copy(
        &self,
        bookie: &SimBookie,
        incarnation: Incarnation,
        ledger: LedgerId,
        entry: EntryId,
    ) -> Option<EntryDigest> {
        let to = Address {
            cell: self.cell,
            incarnation,
            ledger,
        };
        let read = ReadRequest {
            to,
            first: entry,
            end: entry.next(),
            max_bytes: u32::MAX,
            class: ReadClass::CatchUp,
        };
        let found = bookie.look(&read).ok()?.into_iter().next()?.entry;
        found.verify().ok()?;
        Some(found.header().digest())
    }
}
