//! Who does what, one effect at a time.

use hulse_proto::id::{CellId, LedgerId};
use uuid::Uuid;

use super::world::World;
use crate::protocol::{
    AttemptCore, AttemptTask, DropCore, RemovalCore, Step, SweepCore, Swept, TierEffect, TierEnd,
    TierEvent, TierLimits,
};

pub(super) const CELL: CellId = CellId(Uuid::from_u128(77));
const BUCKET: &str = "main";
const PREFIX: &str = "hulse";

enum Core {
    Attempt(Box<AttemptCore>),
    Drop(Box<DropCore>),
    Removal(Box<RemovalCore>),
    Sweep(Box<SweepCore>),
}

/// One machine and what it waits for.
pub(super) struct Actor {
    core: Core,
    pub(super) pending: Option<TierEffect>,
    pub(super) end: Option<TierEnd>,
}

impl Actor {
    fn new(core: Core) -> Self {
        let step = match &core {
            Core::Attempt(core) => core.start(),
            Core::Drop(core) => core.start(),
            Core::Removal(core) => core.start(),
            Core::Sweep(core) => core.start(),
        };
        let mut actor = Self {
            core,
            pending: None,
            end: None,
        };
        actor.take(step);
        actor
    }

    pub(super) fn attempt(ledgers: Vec<LedgerId>, limits: TierLimits) -> Self {
        let task = AttemptTask {
            cell: CELL,
            ledgers,
            bucket: BUCKET.to_owned(),
            prefix: PREFIX.to_owned(),
        };
        Self::new(Core::Attempt(Box::new(AttemptCore::new(task, limits))))
    }

    pub(super) fn dropping(ledger: LedgerId, limits: TierLimits) -> Self {
        Self::new(Core::Drop(Box::new(DropCore::new(ledger, limits))))
    }

    pub(super) fn removal(ledger: LedgerId, limits: TierLimits) -> Self {
        Self::new(Core::Removal(Box::new(RemovalCore::new(ledger, limits))))
    }

    pub(super) fn sweep(ledgers_given: LedgerId, limits: TierLimits) -> Self {
        let swept = Swept {
            cell: CELL,
            bucket: BUCKET.to_owned(),
            prefix: PREFIX.to_owned(),
            ledgers_given,
        };
        Self::new(Core::Sweep(Box::new(SweepCore::new(swept, limits))))
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Do(effect) => self.pending = Some(effect),
            Step::End(end) => self.end = Some(end),
        }
    }

    /// Carries out what it waits for and gives it the answer.
    pub(super) fn go(&mut self, world: &mut World) {
        let Some(effect) = self.pending.take() else {
            return;
        };
        let event: TierEvent = world.carry_out(effect, false);
        let step = match &mut self.core {
            Core::Attempt(core) => core.on_event(event),
            Core::Drop(core) => core.on_event(event),
            Core::Removal(core) => core.on_event(event),
            Core::Sweep(core) => core.on_event(event),
        };
        self.take(step);
        match &self.end {
            Some(TierEnd::Withdrawn(_)) => world.facts.withdrawn += 1,
            Some(TierEnd::Swept(report)) => world.facts.swept += report.deleted,
            Some(TierEnd::Done { .. }) if matches!(self.core, Core::Drop(_)) => {
                world.facts.dropped += 1;
            }
            _ => {}
        }
    }

    /// It dies; what it had sent may still happen.
    pub(super) fn die(self, world: &mut World) {
        world.facts.died += 1;
        let writes = |effect: &TierEffect| {
            matches!(
                effect,
                TierEffect::Propose(_)
                    | TierEffect::Upload(_)
                    | TierEffect::Delete(_)
                    | TierEffect::DropCopies(..)
            )
        };
        if let Some(effect) = self.pending.filter(writes) {
            world.carry_out(effect, true);
        }
    }
}
