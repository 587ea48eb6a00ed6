//! Fencing the frozen ensemble and learning the base (R3–R5).

use std::time::Duration;

use hulse_proto::bookie::{BookieError, FenceAnswer, FenceRequest};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerMetadata, Member};
use hulse_proto::mutant::Mutant;

use super::asked::{Asked, Pace};
use super::core::{Phase, RecoveryCore, answers_of};
use super::event::{BookieAsk, Policy, RecoveryEffect};
use super::local_change::Local;
use crate::error::{MemberAnswers, RecoverError};
use crate::quorum::ensemble_covered;

/// One fence per position.
#[derive(Debug)]
pub(super) struct Fencing {
    asked: Vec<Option<Asked<FenceAnswer>>>,
    since: Duration,
}

impl Fencing {
    pub(super) fn new(now: Duration, metadata: &LedgerMetadata, pace: Pace) -> Self {
        let ensemble = &metadata.last_fragment().ensemble;
        Self {
            asked: ensemble
                .iter()
                .map(|_| Some(Asked::new(now, pace)))
                .collect(),
            since: now,
        }
    }

    pub(super) fn wakeups(
        &self,
        pace: Pace,
        patience: Duration,
    ) -> impl Iterator<Item = Duration> + '_ {
        let asked = self.asked.iter().flatten();
        let asked = asked.filter_map(move |asked| asked.wakeup(pace));
        asked.chain([self.since + patience])
    }

    pub(super) fn answers(&self, ensemble: &[Member]) -> MemberAnswers {
        answers_of(&self.asked, ensemble)
    }

    fn flags(&self, wanted: impl Fn(&Asked<FenceAnswer>) -> bool) -> Vec<bool> {
        self.asked
            .iter()
            .map(|asked| asked.as_ref().is_some_and(&wanted))
            .collect()
    }
}

impl RecoveryCore {
    pub(super) fn fenced(
        &mut self,
        now: Duration,
        position: usize,
        result: Result<FenceAnswer, BookieError>,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        let pace = self.pace();
        let token = self
            .metadata
            .as_ref()
            .map(|(ledger, _)| ledger.recovery_token);
        let Phase::Fencing(fencing) = &mut self.phase else {
            return;
        };
        let Some(Some(asked)) = fencing.asked.get_mut(position) else {
            return;
        };
        match result {
            // A reply without our token does not count (R4).
            Ok(answer) if Some(answer.token) == token => asked.succeed(answer),
            Ok(answer) => {
                let why = format!("fence answered with token {}", answer.token);
                asked.fail(now, pace, BookieError::NoAnswer { why });
            }
            Err(error) => {
                asked.fail(now, pace, error.clone());
                self.stale(&error, effects);
            }
        }
    }

    pub(super) fn pump_fencing(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) {
        let (pace, quorums, token) = (self.pace(), self.quorums(), self.token());
        let ensemble = self.ledger().last_fragment().ensemble.clone();
        let policy = self.config.policy;
        let patience = self.patience();
        let Phase::Fencing(fencing) = &mut self.phase else {
            return;
        };
        let covered = ensemble_covered(quorums, &fencing.flags(|asked| asked.answer.is_some()));
        let settled = fencing.flags(|asked| asked.answer.is_some() || asked.hopeless());
        let settled = settled.iter().all(|settled| *settled);
        let anyone = fencing
            .flags(|asked| asked.answer.is_some())
            .contains(&true);
        // "What is found" needs somebody who looked: a ledger is never emptied because its bookies are merely down (R14). Whoever may
        // still answer is waited for: nothing above what the fences name is looked for.
        let accepted = match policy {
            Policy::Strict => false,
            Policy::AcceptLoss { up_to } => anyone || up_to.is_some(),
        };
        if covered || accepted && (settled || now >= fencing.since + patience) {
            self.begin_reading(now);
            return;
        }
        let hopeful = fencing.flags(|asked| !asked.hopeless());
        if !accepted && !ensemble_covered(quorums, &hopeful) {
            let members = fencing.answers(&ensemble);
            let ledger = self.config.ledger;
            let entry = self.ledger().last_fragment().first;
            self.finish(
                Err(RecoverError::Damaged {
                    ledger,
                    entry,
                    members,
                }),
                effects,
            );
            return;
        }
        let mut due = Vec::new();
        for (position, asked) in fencing.asked.iter_mut().enumerate() {
            if asked.as_mut().is_some_and(|asked| asked.ask(now, pace)) {
                due.push(position);
            }
        }
        for position in due {
            let member = ensemble[position].clone();
            let to = self.address(&member);
            effects.push(RecoveryEffect::Ask {
                position,
                member,
                ask: BookieAsk::Fence(FenceRequest { to, token }),
            });
        }
    }

    /// R5: the base is the highest confirmed end that a fence returned, at least the last fragment's first entry.
    fn begin_reading(&mut self, now: Duration) {
        let Phase::Fencing(fencing) = &self.phase else {
            return;
        };
        let answers = || {
            fencing
                .asked
                .iter()
                .flatten()
                .filter_map(|asked| asked.answer)
        };
        let confirmed = answers().map(|answer| answer.confirmed_end).max();
        let held_end = answers().map(|answer| answer.held_end).max();
        let floor = self.floor();
        self.base = confirmed.unwrap_or(EntryId(0)).max(floor);
        self.held_end = held_end.unwrap_or(EntryId(0));
        self.reading_since = now;
        self.phase = Phase::Reading;
        self.local = Local::new(self.ledger().last_fragment().clone());
        self.place_reader();
    }

    fn floor(&self) -> EntryId {
        if self.config.mutation.is(Mutant::RecoverFromZero) {
            return EntryId(0);
        }
        self.ledger().last_fragment().first
    }
}
