//! What of the findings is tried now, by whom, and when what failed is tried again. No I/O and no clock.

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_client::{Candidate, choose_replacement};
use hulse_proto::id::{EntryId, LedgerId, NodeName};
use hulse_proto::wire::metadata::blocked_repair::Kind;

use crate::audit::{Finding, Want};
use crate::repair::{RepairEnd, RepairFailure, RepairTask};

/// First wait before what failed is tried again; doubles up to the longest.
const WAIT_INITIAL: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Failures that are remembered; of more, some are tried too early.
const FAILURES_MAX: usize = 100_000;

/// A place: of which ledger, in which fragment, at which position.
pub(super) type Place = (LedgerId, EntryId, usize);

/// A place that cannot be repaired now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) place: Place,
    pub(super) bookie: NodeName,
    pub(super) kind: Kind,
    pub(super) why: String,
    /// Since when it has been so, without a break, in the planner's time.
    pub(super) since: Duration,
}

#[derive(Debug, Clone)]
struct Failure {
    kind: Kind,
    why: String,
    tries: u32,
    again_at: Duration,
}

/// The tasks of one ledger, to be done one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LedgerTasks {
    pub(super) tasks: Vec<RepairTask>,
    pub(super) bytes: u64,
}

/// What is planned.
#[derive(Debug, Default)]
pub(super) struct Planned {
    pub(super) ledgers: Vec<LedgerTasks>,
    pub(super) blocked: Vec<Blocked>,
    /// When the first that waits is tried again.
    pub(super) next_try: Option<Duration>,
}

/// Remembers what failed.
#[derive(Debug, Default)]
pub(super) struct Plan {
    failures: BTreeMap<Place, Failure>,
    /// Since when places have been blocked, and why; as many as failures at most.
    blocked: BTreeMap<Place, (Kind, Duration)>,
}

impl Plan {
    /// Sorts findings into what is done now and what is not, and why.
    pub(super) fn plan(
        &mut self,
        findings: &[Finding],
        candidates: &[Candidate],
        now: Duration,
    ) -> Planned {
        let mut planned = Planned::default();
        let mut kept = BTreeMap::new();
        let mut places = BTreeMap::new();
        for finding in findings {
            let place = (finding.ledger, finding.first, finding.position);
            if let Some(failure) = self.failures.remove(&place) {
                if failure.again_at > now {
                    let next = planned.next_try.unwrap_or(failure.again_at);
                    planned.next_try = Some(next.min(failure.again_at));
                    planned
                        .blocked
                        .push(blocked(finding, failure.kind, failure.why.clone()));
                    kept.insert(place, failure);
                    continue;
                }
                kept.insert(place, failure);
            }
            match task(finding, candidates) {
                Ok(task) => {
                    add(&mut planned.ledgers, &mut places, task, finding.bytes);
                }
                Err((kind, why)) => planned.blocked.push(blocked(finding, kind, why)),
            }
        }
        self.failures = kept;
        self.note_since(&mut planned.blocked, now);
        planned
    }

    /// Of what was blocked before for the same reason it is known since when.
    fn note_since(&mut self, blocked: &mut [Blocked], now: Duration) {
        let before = std::mem::take(&mut self.blocked);
        for found in blocked {
            let known = before.get(&found.place);
            let known = known.filter(|(kind, _)| *kind == found.kind);
            found.since = known.map_or(now, |(_, since)| *since);
            if self.blocked.len() < FAILURES_MAX {
                self.blocked.insert(found.place, (found.kind, found.since));
            }
        }
    }

    /// Notes how a task ended, at `now`.
    pub(super) fn ended(&mut self, task: &RepairTask, end: &RepairEnd, now: Duration) {
        let place = (task.ledger, task.first, task.position);
        let RepairEnd::Failed(failure) = end else {
            self.failures.remove(&place);
            return;
        };
        let tries = self.failures.get(&place).map_or(0, |before| before.tries);
        let wait = WAIT_INITIAL.saturating_mul(1_u32.checked_shl(tries).unwrap_or(u32::MAX));
        let kind = match failure {
            RepairFailure::Unreadable { .. } => Kind::Unreadable,
            RepairFailure::Changing => Kind::Settling,
            _ => Kind::Failing,
        };
        // What nobody has does not come back by asking (X5).
        let wait = match kind {
            Kind::Unreadable => WAIT_MAX,
            _ => wait.min(WAIT_MAX),
        };
        if self.failures.len() >= FAILURES_MAX && !self.failures.contains_key(&place) {
            return;
        }
        let failure = Failure {
            kind,
            why: failure.to_string(),
            tries: (tries + 1).min(16),
            again_at: now + wait,
        };
        self.failures.insert(place, failure);
    }

    /// Bookies came or went: what failed for want of them is worth a try.
    pub(super) fn wake(&mut self) {
        for failure in self.failures.values_mut() {
            failure.again_at = Duration::ZERO;
        }
    }
}

fn blocked(finding: &Finding, kind: Kind, why: String) -> Blocked {
    Blocked {
        place: (finding.ledger, finding.first, finding.position),
        bookie: finding.member().bookie.clone(),
        kind,
        why,
        since: Duration::ZERO,
    }
}

/// What is to be done about a finding, or why nothing can be.
fn task(finding: &Finding, candidates: &[Candidate]) -> Result<RepairTask, (Kind, String)> {
    let (new, lacking) = match &finding.want {
        Want::Entries(ranges) => (finding.member().clone(), ranges.clone()),
        Want::Note => (finding.member().clone(), Vec::new()),
        Want::Another => {
            let chosen = choose_replacement(&finding.ensemble, finding.position, candidates);
            (
                chosen.ok_or_else(|| no_target(finding, candidates))?,
                Vec::new(),
            )
        }
        Want::Settling => {
            let why = "its ledger is not closed: its owner is to change bookies or roll it, and where the owner is dead the next one closes it";
            return Err((Kind::Settling, why.to_owned()));
        }
        Want::Waiting => {
            let why = format!("{} does not run; it is waited for", finding.member().bookie);
            return Err((Kind::Waiting, why));
        }
    };
    Ok(RepairTask {
        ledger: finding.ledger,
        first: finding.first,
        position: finding.position,
        old: finding.member().clone(),
        new,
        lacking,
    })
}

fn no_target(finding: &Finding, candidates: &[Candidate]) -> (Kind, String) {
    let writable = candidates
        .iter()
        .filter(|found| found.live && found.writable);
    let why = format!(
        "no bookie can take its copies: {} of {} run and take records, and its ensemble has {} members",
        writable.count(),
        candidates.len(),
        finding.ensemble.len()
    );
    (Kind::NoTarget, why)
}

/// Tasks of one ledger change the same key: together, and one after the other. `places` says where the tasks of a ledger are.
fn add(
    ledgers: &mut Vec<LedgerTasks>,
    places: &mut BTreeMap<LedgerId, usize>,
    task: RepairTask,
    bytes: u64,
) {
    let place = *places.entry(task.ledger).or_insert(ledgers.len());
    match ledgers.get_mut(place) {
        Some(found) => {
            found.tasks.push(task);
            found.bytes += bytes;
        }
        None => ledgers.push(LedgerTasks {
            tasks: vec![task],
            bytes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::Incarnation;
    use hulse_proto::ledger::Member;

    use super::*;

    fn member(name: &str) -> Member {
        Member {
            bookie: NodeName::new(name).unwrap(),
            incarnation: Incarnation::default(),
        }
    }

    fn candidate(name: &str, zone: &str) -> Candidate {
        Candidate {
            member: member(name),
            live: true,
            writable: true,
            zone: zone.to_owned(),
        }
    }

    fn finding(want: Want) -> Finding {
        Finding {
            ledger: LedgerId(7),
            first: EntryId(0),
            ensemble: ["a", "b", "c"].map(member).to_vec(),
            position: 1,
            want,
            leaves: false,
            good: 2,
            bytes: 10,
        }
    }

    #[test]
    fn replacement_comes_from_a_zone_that_has_none_of_the_others() {
        let all = [
            candidate("a", "x"),
            candidate("c", "y"),
            candidate("d", "x"),
            candidate("e", "z"),
        ];
        let mut plan = Plan::default();
        let planned = plan.plan(&[finding(Want::Another)], &all, Duration::ZERO);
        assert_eq!(planned.ledgers[0].tasks[0].new, member("e"));
        let planned = plan.plan(&[finding(Want::Another)], &all[..2], Duration::ZERO);
        assert_eq!(planned.blocked[0].kind, Kind::NoTarget);
        assert!(
            planned.blocked[0].why.contains("2 of 2 run"),
            "{:?}",
            planned.blocked
        );
    }

    #[test]
    fn tasks_of_a_ledger_are_together_however_many_others_stand_between() {
        let of = |ledger, position| Finding {
            ledger: LedgerId(ledger),
            position,
            ..finding(Want::Another)
        };
        let mut findings: Vec<_> = (0..50).map(|ledger| of(ledger, 1)).collect();
        findings.push(of(0, 2));
        let planned = Plan::default().plan(&findings, &[candidate("d", "")], Duration::ZERO);
        assert_eq!(planned.ledgers.len(), 50);
        assert_eq!(planned.ledgers[0].tasks.len(), 2);
        assert_eq!(planned.ledgers[0].bytes, 20);
    }

    #[test]
    fn what_failed_is_tried_again_later_and_later_and_at_once_when_bookies_come() {
        let all = [candidate("d", "")];
        let mut plan = Plan::default();
        let mut now = Duration::ZERO;
        let mut waits = Vec::new();
        for _ in 0..12 {
            let planned = plan.plan(&[finding(Want::Another)], &all, now);
            let task = planned.ledgers[0].tasks[0].clone();
            plan.ended(
                &task,
                &RepairEnd::Failed(RepairFailure::Metadata("x".into())),
                now,
            );
            let planned = plan.plan(&[finding(Want::Another)], &all, now);
            assert!(planned.ledgers.is_empty());
            assert_eq!(planned.blocked[0].kind, Kind::Failing);
            let next = planned.next_try.unwrap();
            waits.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(waits[..4], [2, 4, 8, 16]);
        assert_eq!(waits.last(), Some(&600));
        let task = plan.plan(&[finding(Want::Another)], &all, now).ledgers[0].tasks[0].clone();
        plan.ended(
            &task,
            &RepairEnd::Failed(RepairFailure::Metadata("x".into())),
            now,
        );
        plan.wake();
        assert_eq!(
            plan.plan(&[finding(Want::Another)], &all, now)
                .ledgers
                .len(),
            1
        );
        // A finding that is gone is forgotten.
        plan.plan(&[], &all, now);
        assert!(plan.failures.is_empty());
    }
}
