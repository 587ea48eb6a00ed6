//! One pass over all ledgers, page by page, and the inventories of the bookies that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bookie_client::BookieDirectory;
use bookie_metadata::{ListRequest, MetadataError, MetadataStore, Versioned};
use futures::stream::{self, StreamExt as _};
use hulse_proto::bookie::{Address, HeldRun, INVENTORY_RUNS_MAX, InventoryRequest};
use hulse_proto::id::{CellId, EntryId, Incarnation, LedgerId, NodeName};
use hulse_proto::ledger::{LEDGER_PREFIX, LedgerMetadata, Member};
use tokio::time::timeout;

use super::examine::{Finding, examine, shares};
use super::fleet::{Fleet, Trust};

/// Ledgers of one page.
const PAGE_ROWS: usize = 500;
/// Bookies that are asked at once.
const ASKED_AT_ONCE: usize = 8;
/// Findings of one pass: the most urgent of them. What is left out is counted, and found again by the next pass.
const FINDINGS_MAX: usize = 100_000;
/// Runs of all bookies together that are held at once: of a page whose ledgers are in more pieces a part is looked at at a time.
const RUNS_MAX: usize = if cfg!(test) { 6_000 } else { 1 << 20 };

/// What a member is named for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgersOf {
    /// Ledgers that name it, in a fragment or as the target of an intent.
    pub ledgers: u64,
    /// About how many bytes of closed ones.
    pub bytes: u64,
}

/// What a pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// All ledgers there are.
    pub ledgers: u64,
    /// Ledgers with fewer good copies than they should have.
    pub lacking: u64,
    /// About how many bytes are to be copied, also those that only move.
    pub bytes_to_copy: u64,
    /// Places that are not as they should be; fewest good copies first. Of very many the most urgent.
    pub findings: Vec<Finding>,
    /// What each member is named for.
    pub members: BTreeMap<(NodeName, Incarnation), LedgersOf>,
    /// Keys that are no ledgers, which nobody can look after.
    pub unreadable: u64,
}

/// What a pass needs.
pub struct Auditor {
    /// The cluster.
    pub cell: CellId,
    /// The facts.
    pub metadata: Arc<dyn MetadataStore>,
    /// Who can be called.
    pub bookies: Arc<dyn BookieDirectory>,
    /// A bookie that does not answer for so long is not counted, and not missed.
    pub answer_timeout: Duration,
}

type Held = BTreeMap<NodeName, BTreeMap<LedgerId, Vec<HeldRun>>>;

impl Auditor {
    /// Looks at every ledger once. Reads only.
    ///
    /// # Errors
    /// Of the store; nothing of the pass counts then.
    pub async fn pass(&self, fleet: &Fleet, now: Duration) -> Result<Audited, MetadataError> {
        let mut audited = Audited::default();
        let mut request = ListRequest {
            prefix: LEDGER_PREFIX.to_owned(),
            after: None,
            limit: PAGE_ROWS,
            at: None,
        };
        loop {
            let page = self.metadata.list(request.clone()).await?;
            request.after = page.items.last().map(|row| row.key.clone());
            self.look_at(&page.items, (fleet, now), &mut audited).await;
            if !page.more || request.after.is_none() {
                break;
            }
        }
        audited.keep_most_urgent(FINDINGS_MAX);
        Ok(audited)
    }

    async fn look_at(&self, rows: &[Versioned], at: (&Fleet, Duration), audited: &mut Audited) {
        let mut ledgers = Vec::with_capacity(rows.len());
        for row in rows {
            let number = row.key.strip_prefix(LEDGER_PREFIX);
            let number = number.and_then(|id| id.parse().ok()).map(LedgerId);
            match (number, LedgerMetadata::decode(&row.value)) {
                (Some(ledger), Ok(metadata)) => ledgers.push((ledger, metadata)),
                _ => audited.unreadable += 1,
            }
        }
        audited.ledgers += ledgers.len() as u64;
        let mut parts = vec![&ledgers[..]];
        while let Some(part) = parts.pop() {
            let room = match part.len() {
                1 => usize::MAX,
                _ => RUNS_MAX,
            };
            match self.inventories(part, at, room).await {
                Some(held) => audited.compare(part, at, &held),
                None => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
    }

    /// What the members of these ledgers hold of them, as far as they run and answer. `None`: that is more than there is room for.
    async fn inventories(
        &self,
        ledgers: &[(LedgerId, LedgerMetadata)],
        (fleet, now): (&Fleet, Duration),
        room: usize,
    ) -> Option<Held> {
        let (Some((first, _)), Some((last, _))) = (ledgers.first(), ledgers.last()) else {
            return Some(Held::new());
        };
        let span = (*first, LedgerId(last.0.saturating_add(1)));
        let fragments = ledgers.iter().flat_map(|(_, metadata)| &metadata.fragments);
        let members: BTreeSet<(NodeName, Incarnation)> = fragments
            .flat_map(|fragment| &fragment.ensemble)
            .filter(|member| fleet.trust(member, now) == Trust::Present)
            .map(|member| (member.bookie.clone(), member.incarnation))
            .collect();
        let runs = AtomicUsize::new(0);
        let asked = stream::iter(members).map(|(bookie, incarnation)| {
            let runs = &runs;
            async move {
                let member = Member {
                    bookie,
                    incarnation,
                };
                let held = self.inventory(&member, span, (runs, room)).await;
                Some((member.bookie, held?))
            }
        });
        let asked = asked.buffer_unordered(ASKED_AT_ONCE);
        let held = asked.filter_map(std::future::ready).collect().await;
        (runs.into_inner() <= room).then_some(held)
    }

    /// `None`: it did not answer to the end, or there is no room for more.
    async fn inventory(
        &self,
        member: &Member,
        (first, end): (LedgerId, LedgerId),
        (runs, room): (&AtomicUsize, usize),
    ) -> Option<BTreeMap<LedgerId, Vec<HeldRun>>> {
        let mut all = BTreeMap::<LedgerId, Vec<HeldRun>>::new();
        let mut next = Some((first, EntryId(0)));
        while let Some((ledger, entry)) = next {
            let calls = self.bookies.calls(member)?;
            let to = Address {
                cell: self.cell,
                incarnation: member.incarnation,
                ledger,
            };
            // What is left of a ledger in very many pieces is asked for alone: its entries are counted from there on.
            let ledgers_end = match entry {
                EntryId(0) => end,
                _ => LedgerId(ledger.0 + 1),
            };
            let request = InventoryRequest {
                to,
                ledgers_end,
                first: entry,
                end: EntryId(u64::MAX),
                digests: false,
            };
            let asked = timeout(self.answer_timeout, calls.inventory(request)).await;
            let found = asked.ok()?.ok()?;
            let told: usize = found.ledgers.iter().map(|found| found.runs.len()).sum();
            if runs.fetch_add(told, Ordering::Relaxed) + told > room {
                return None;
            }
            // An answer that is full may end within its last ledger.
            let cut = found.ledgers.last().filter(|_| told >= INVENTORY_RUNS_MAX);
            let cut = cut.and_then(|last| Some((last.ledger, last.runs.last()?.end)));
            for found in found.ledgers {
                all.entry(found.ledger).or_default().extend(found.runs);
            }
            // Whoever does not get on has no end.
            let after = match entry {
                EntryId(0) => found.next.filter(|next| *next > ledger),
                _ => Some(LedgerId(ledger.0 + 1)).filter(|next| *next < end),
            };
            next = match cut {
                Some((ledger, entry)) => Some((ledger, entry)),
                None => after.map(|ledger| (ledger, EntryId(0))),
            };
        }
        Some(all)
    }
}

impl Audited {
    /// Compares ledgers with what is held of them.
    fn compare(
        &mut self,
        ledgers: &[(LedgerId, LedgerMetadata)],
        (fleet, now): (&Fleet, Duration),
        held: &Held,
    ) {
        let holdings = |member: &Member, ledger: LedgerId| {
            let all = held.get(&member.bookie)?;
            Some(all.get(&ledger).cloned().unwrap_or_default())
        };
        for (ledger, metadata) in ledgers {
            for ((bookie, incarnation), bytes) in shares(metadata) {
                let Ok(name) = NodeName::new(bookie) else {
                    continue;
                };
                let share = self.members.entry((name, incarnation)).or_default();
                share.ledgers += 1;
                share.bytes += bytes;
            }
            let trust = |member: &Member| fleet.trust(member, now);
            let found = examine(*ledger, metadata, trust, &holdings);
            let lacks = found.iter().any(Finding::is_lacking);
            self.lacking += u64::from(lacks);
            self.bytes_to_copy += found.iter().map(|finding| finding.bytes).sum::<u64>();
            self.findings.extend(found);
            if self.findings.len() >= 2 * FINDINGS_MAX {
                self.keep_most_urgent(FINDINGS_MAX);
            }
        }
    }

    /// Fewest good copies first; among equals by ledger.
    fn keep_most_urgent(&mut self, most: usize) {
        self.findings
            .sort_by_key(|finding| (finding.good, finding.ledger));
        self.findings.truncate(most);
    }
}
