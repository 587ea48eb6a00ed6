//! The back-check: whoever is there of the group is asked what became of its half message (serving.md C9.4, C9.5).

use std::sync::Arc;

use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::change::Change;
use super::core::Staging;
use super::item::{Decision, Item, ItemId, Status};
use super::request::Effect;

/// Before a check, or a copy, that could not be sent is tried again. Ms.
pub(super) const AGAIN_MS: TimestampMs = 1_000;

impl Staging {
    pub(super) fn on_sessions(&mut self, group: Arc<str>, online: bool) {
        if !online {
            self.online.remove(&group);
            return;
        }
        for id in self.parked.remove(&group).into_iter().flatten() {
            self.due.insert(self.now, id);
        }
        self.online.insert(group);
    }

    /// The check of a half message is due.
    pub(super) fn check(&mut self, id: ItemId, item: &Item, group: &Arc<str>, checks_max: u16) {
        if self.asked.contains(&id) {
            return;
        }
        if !self.online.contains(group) {
            if !self.mutation.is(Mutant::ChecksBurnt) {
                return self.parked.entry(group.clone()).or_default().push(id);
            }
            if item.checks < checks_max {
                return self.count_check(id, item.checks);
            }
        }
        if item.checks >= checks_max {
            return self.decide(id, Decision::Discard);
        }
        self.asked.insert(id);
        self.out.push(Effect::Check {
            id,
            group: group.clone(),
            place: item.place,
            attempt: item.checks + 1,
        });
    }

    pub(super) fn on_checked(&mut self, id: ItemId, sent: bool) {
        if !self.asked.remove(&id) {
            return;
        }
        let Some(item) = self.state.get(id) else {
            return;
        };
        match (item.status, sent) {
            (Status::Waiting, true) => self.count_check(id, item.checks),
            (Status::Waiting, false) => {
                let again = self.now.saturating_add(AGAIN_MS);
                self.due.insert(again, id);
            }
            _ => {}
        }
    }

    fn count_check(&mut self, id: ItemId, checks: u16) {
        let due = self
            .now
            .saturating_add(self.config.check_interval_ms.into());
        let checks = checks.saturating_add(1);
        self.propose(Some(id), Change::Checked { id, checks, due });
    }
}
