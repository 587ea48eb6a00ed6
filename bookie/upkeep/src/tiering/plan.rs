//! What of all ledgers is tiered, dropped or removed now. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_tier::name;
use hulse_proto::id::{LedgerId, PartitionId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState};
use hulse_proto::tier::{LocalCopies, Tier};
use hulse_proto::time::TimestampMs;

use super::hands::TierWork;

/// Bounds and habits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierConfig {
    /// The bucket that new segments go to, by its name.
    pub bucket: String,
    /// Ledgers below this size wait for others of their partition, to share an object (storage.md O17).
    pub pack_bytes: u64,
    /// But no longer than this after they may be tiered.
    pub pack_wait: Duration,
    /// Most bytes of ledgers in one object; a larger ledger has one of its own.
    pub object_bytes_max: u64,
    /// Machines that run at once.
    pub works_at_once: usize,
}

impl Default for TierConfig {
    fn default() -> Self {
        Self {
            bucket: "main".to_owned(),
            pack_bytes: 16 << 20,
            pack_wait: Duration::from_secs(3600),
            object_bytes_max: 1 << 30,
            works_at_once: 2,
        }
    }
}

/// Ledgers of a partition that wait for an object.
#[derive(Debug, Default)]
struct Waiting {
    ledgers: Vec<(LedgerId, u64)>,
    bytes: u64,
    /// The first one may be tiered since then.
    since: Option<TimestampMs>,
}

/// Sees one ledger after the other, in order, and says in the end what is to be done.
#[derive(Debug)]
pub(super) struct TierPlan<'a> {
    config: &'a TierConfig,
    now: TimestampMs,
    waiting: BTreeMap<PartitionId, Waiting>,
    works: Vec<TierWork>,
}

impl<'a> TierPlan<'a> {
    pub(super) fn new(config: &'a TierConfig, now: TimestampMs) -> Self {
        Self {
            config,
            now,
            waiting: BTreeMap::new(),
            works: Vec::new(),
        }
    }

    pub(super) fn see(&mut self, ledger: LedgerId, metadata: &LedgerMetadata) {
        let Some(tier) = metadata.tier.as_deref() else {
            return;
        };
        match metadata.state {
            LedgerState::Open | LedgerState::InRecovery => {}
            LedgerState::Deleting => {
                if tier.attempts().next().is_some() {
                    self.works.push(TierWork::Removal(ledger));
                }
            }
            LedgerState::Closed => self.see_closed(ledger, metadata, tier),
        }
    }

    fn see_closed(&mut self, ledger: LedgerId, metadata: &LedgerMetadata, tier: &Tier) {
        let unfinished = tier.segment.is_some() && tier.local != LocalCopies::Dropped;
        if unfinished || !tier.garbage.is_empty() {
            self.works.push(TierWork::Drop(ledger));
        }
        let due = tier.settled.as_ref().map(|settled| settled.tier_after);
        let due = due.filter(|due| *due <= self.now);
        let totals = metadata.closed.filter(|closed| closed.end.0 > 0);
        let (Some(due), Some(totals)) = (due, totals) else {
            return;
        };
        let unfit = metadata.kind != LedgerKind::Log || metadata.loss.is_some();
        if tier.segment.is_some() || unfit {
            return;
        }
        let partition = metadata.partition;
        let waiting = self.waiting.entry(partition).or_default();
        let mut all: Vec<LedgerId> = waiting.ledgers.iter().map(|(ledger, _)| *ledger).collect();
        all.push(ledger);
        let over = waiting.bytes + totals.bytes > self.config.object_bytes_max;
        if !waiting.ledgers.is_empty() && (over || !name::fits(&all)) {
            self.send(partition);
        }
        let waiting = self.waiting.entry(partition).or_default();
        waiting.ledgers.push((ledger, totals.bytes));
        waiting.bytes += totals.bytes;
        waiting.since = Some(waiting.since.map_or(due, |since| since.min(due)));
        if waiting.bytes >= self.config.pack_bytes {
            self.send(partition);
        }
    }

    /// What waits of a partition becomes one object.
    fn send(&mut self, partition: PartitionId) {
        let Some(waiting) = self.waiting.remove(&partition) else {
            return;
        };
        let ledgers = waiting.ledgers.into_iter().map(|(ledger, _)| ledger);
        self.works.push(TierWork::Attempt(ledgers.collect()));
    }

    /// All that is to be done, in the order in which it was found.
    pub(super) fn works(mut self) -> Vec<TierWork> {
        let wait = i64::try_from(self.config.pack_wait.as_millis()).unwrap_or(i64::MAX);
        let overdue = |waiting: &Waiting| {
            let since = waiting.since.unwrap_or(self.now);
            since.saturating_add(wait) <= self.now
        };
        let partitions = self.waiting.iter().filter(|(_, waiting)| overdue(waiting));
        let partitions: Vec<PartitionId> = partitions.map(|(partition, _)| *partition).collect();
        for partition in partitions {
            self.send(partition);
        }
        self.works
    }
}

#[cfg(test)]
mod tests {
    use bookie_tier::testing::closed_ledger;
    use hulse_proto::id::Offset;
    use hulse_proto::tier::Attempt;

    use super::*;

    const DUE: TimestampMs = 1000;

    fn metadata(bytes: u64) -> LedgerMetadata {
        let mut metadata = closed_ledger(LedgerId(1), Offset(0), &[10]).metadata;
        metadata.closed.as_mut().unwrap().bytes = bytes;
        let tier = metadata.tier.as_mut().unwrap();
        tier.settled.as_mut().unwrap().tier_after = DUE;
        metadata
    }

    fn config() -> TierConfig {
        TierConfig {
            pack_bytes: 100,
            object_bytes_max: 150,
            pack_wait: Duration::from_millis(500),
            ..TierConfig::default()
        }
    }

    fn planned(ledgers: &[(u64, LedgerMetadata)], now: TimestampMs) -> Vec<TierWork> {
        let config = config();
        let mut plan = TierPlan::new(&config, now);
        for (ledger, metadata) in ledgers {
            plan.see(LedgerId(*ledger), metadata);
        }
        plan.works()
    }

    fn attempt(ledgers: &[u64]) -> TierWork {
        TierWork::Attempt(ledgers.iter().copied().map(LedgerId).collect())
    }

    #[test]
    fn small_ledgers_of_a_partition_share_an_object_and_wait_for_each_other() {
        let mut other = metadata(40);
        other.partition.index += 1;
        let ledgers = [
            (1, metadata(40)),
            (2, other),
            (3, metadata(40)),
            (4, metadata(40)),
            (5, metadata(40)),
        ];
        assert_eq!(planned(&ledgers, DUE - 1), []);
        assert_eq!(planned(&ledgers, DUE), [attempt(&[1, 3, 4])]);
        let late = planned(&ledgers, DUE + 500);
        assert_eq!(late, [attempt(&[1, 3, 4]), attempt(&[5]), attempt(&[2])]);
    }

    #[test]
    fn large_ledger_has_an_object_of_its_own() {
        let ledgers = [(1, metadata(40)), (2, metadata(1000)), (3, metadata(40))];
        let expected = [attempt(&[1]), attempt(&[2])];
        assert_eq!(planned(&ledgers, DUE), expected);
    }

    #[test]
    fn what_stands_in_the_way_is_left_and_what_was_begun_goes_on() {
        let lossy = LedgerMetadata {
            loss: Some(hulse_proto::ledger::Loss {
                kind: hulse_proto::ledger::LossKind::Accepted,
                from: hulse_proto::id::EntryId(0),
                at: 1,
            }),
            ..metadata(200)
        };
        let state = LedgerMetadata {
            kind: LedgerKind::State,
            ..metadata(200)
        };
        let unsettled = LedgerMetadata {
            tier: None,
            ..metadata(200)
        };
        let given_up = Attempt {
            id: hulse_proto::id::SegmentId::default(),
            bucket: "main".to_owned(),
            object: "x".to_owned(),
        };
        let mut begun = metadata(200);
        begun.tier.as_mut().unwrap().garbage.push(given_up.clone());
        let mut deleting = begun.clone();
        deleting.state = LedgerState::Deleting;
        let clean = LedgerMetadata {
            state: LedgerState::Deleting,
            ..metadata(200)
        };
        let ledgers = [
            (1, lossy),
            (2, state),
            (3, unsettled),
            (4, begun),
            (5, deleting),
            (6, clean),
        ];
        let works = planned(&ledgers, DUE);
        let expected = [
            TierWork::Drop(LedgerId(4)),
            attempt(&[4]),
            TierWork::Removal(LedgerId(5)),
        ];
        assert_eq!(works, expected);
    }
}
