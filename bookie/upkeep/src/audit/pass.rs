//! One pass over all ledgers, page by page, and the inventories of the bookies that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bookie_client::BookieDirectory;
use bookie_metadata::{ListRequest, MetadataError, MetadataStore, Versioned};
use futures::stream::{self, StreamExt as _};
use hulse_proto::bookie::{Address, HeldRun, InventoryRequest};
use hulse_proto::id::{CellId, EntryId, Incarnation, LedgerId, NodeName};
use hulse_proto::ledger::{LEDGER_PREFIX, LedgerMetadata, Member};
use tokio::time::timeout;

use super::examine::{Finding, examine, shares};
use super::fleet::{Fleet, Trust};

/// Ledgers of one page.
const PAGE_ROWS: usize = 500;
/// Bookies that are asked at once.
const ASKED_AT_ONCE: usize = 8;
/// Findings of one pass; what is left out is found by the next one.
const FINDINGS_MAX: usize = 100_000;

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
    /// Places that are not as they should be; fewest good copies first.
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
        audited.findings.sort_by_key(|finding| finding.good);
        Ok(audited)
    }

    async fn look_at(
        &self,
        rows: &[Versioned],
        (fleet, now): (&Fleet, Duration),
        audited: &mut Audited,
    ) {
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
        let held = self
            .inventories(&ledgers, |member| fleet.trust(member, now))
            .await;
        let holdings = |member: &Member, ledger: LedgerId| {
            let all = held.get(&member.bookie)?;
            Some(all.get(&ledger).cloned().unwrap_or_default())
        };
        for (ledger, metadata) in &ledgers {
            for ((bookie, incarnation), bytes) in shares(metadata) {
                let Ok(name) = NodeName::new(bookie) else {
                    continue;
                };
                let share = audited.members.entry((name, incarnation)).or_default();
                share.ledgers += 1;
                share.bytes += bytes;
            }
            let trust = |member: &Member| fleet.trust(member, now);
            let found = examine(*ledger, metadata, trust, &holdings);
            let room = FINDINGS_MAX.saturating_sub(audited.findings.len());
            audited.findings.extend(found.into_iter().take(room));
        }
    }

    /// What the members of these ledgers hold of them, as far as they run and answer.
    async fn inventories(
        &self,
        ledgers: &[(LedgerId, LedgerMetadata)],
        trust: impl Fn(&Member) -> Trust,
    ) -> Held {
        let (Some((first, _)), Some((last, _))) = (ledgers.first(), ledgers.last()) else {
            return Held::new();
        };
        let span = (*first, LedgerId(last.0.saturating_add(1)));
        let fragments = ledgers.iter().flat_map(|(_, metadata)| &metadata.fragments);
        let members: BTreeSet<(NodeName, Incarnation)> = fragments
            .flat_map(|fragment| &fragment.ensemble)
            .filter(|member| trust(member) == Trust::Present)
            .map(|member| (member.bookie.clone(), member.incarnation))
            .collect();
        let asked = stream::iter(members).map(|(bookie, incarnation)| async move {
            let member = Member {
                bookie,
                incarnation,
            };
            let held = self.inventory(&member, span).await;
            Some((member.bookie, held?))
        });
        let asked = asked.buffer_unordered(ASKED_AT_ONCE);
        asked.filter_map(std::future::ready).collect().await
    }

    /// `None`: it did not answer to the end.
    async fn inventory(
        &self,
        member: &Member,
        (first, end): (LedgerId, LedgerId),
    ) -> Option<BTreeMap<LedgerId, Vec<HeldRun>>> {
        let mut all = BTreeMap::new();
        let mut next = Some(first);
        while let Some(ledger) = next {
            let calls = self.bookies.calls(member)?;
            let to = Address {
                cell: self.cell,
                incarnation: member.incarnation,
                ledger,
            };
            let request = InventoryRequest {
                to,
                ledgers_end: end,
                first: EntryId(0),
                end: EntryId(u64::MAX),
                digests: false,
            };
            let asked = timeout(self.answer_timeout, calls.inventory(request)).await;
            let found = asked.ok()?.ok()?;
            let runs = found.ledgers.into_iter();
            all.extend(runs.map(|found| (found.ledger, found.runs)));
            // Whoever does not get on has no end.
            next = found.next.filter(|next| *next > ledger);
        }
        Some(all)
    }
}
