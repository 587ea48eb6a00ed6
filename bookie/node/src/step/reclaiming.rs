//! Reclaim and scrub of the step-wise node: one piece at a time, when the caller says so.

use std::sync::Arc;

use rand::RngCore;

use super::node::{StepNode, StepOutput};
use crate::core::{Effect, Event, NodeCore};
use crate::disk::Disk;
use crate::index::Locator;
use crate::log::compacted::CompactedSetup;
use crate::log::recovery::LogError;
use crate::log::unlink;
use crate::reclaim::{Ground, Work};

/// What a piece of reclaim did.
#[derive(Debug, Default)]
pub struct Reclaimed {
    /// Its output.
    pub output: StepOutput,
    /// There may be more to do.
    pub busy: bool,
    /// A compacted file got its name.
    pub compacted: bool,
}

impl StepNode {
    /// True when reclaim has something under way: a copy, or files to unlink.
    pub fn reclaims(&self) -> bool {
        self.worker.compacts() || !self.unlink.is_empty()
    }

    /// One piece of reclaim or scrub: unlinks files whose removal is on record, goes on with a copy, or begins what is due.
    pub fn reclaim(&mut self) -> Reclaimed {
        let mut effects = Vec::new();
        let mut done = Reclaimed::default();
        if self.core.failed().is_some() {
            return done;
        }
        self.look_at_disk();
        match self.reclaim_piece(&mut effects) {
            Ok((busy, compacted)) => (done.busy, done.compacted) = (busy, compacted),
            Err(error) => self.fail(&error, &mut effects),
        }
        self.look_at_disk();
        done.output = self.carry_out(effects);
        done
    }

    fn reclaim_piece(&mut self, effects: &mut Vec<Effect>) -> Result<(bool, bool), LogError> {
        let removed = std::mem::take(&mut self.unlink);
        if !removed.is_empty() {
            if !self.config.sync.always() {
                // On record is durable here, whatever stored means.
                self.driver.writer.sync()?;
            }
            unlink(self.disk.as_ref(), self.locator.files(), &removed)?;
            self.worker.wake();
            return Ok((true, false));
        }
        let mut ground = StepGround {
            core: &mut self.core,
            effects,
            locator: self.locator.clone(),
            disk: &self.disk,
            salt: self.rng.next_u64(),
        };
        match self.worker.step(&mut ground, self.now)? {
            Work::Nothing => Ok((false, false)),
            Work::Did { .. } => Ok((true, false)),
            Work::Adopt(finished) => {
                let sealed = self.driver.writer.adopt(*finished)?;
                let named = sealed.is_some();
                if let Some(sealed) = sealed {
                    ground.feed(Event::FileSealed(Box::new(sealed)));
                }
                self.worker.adopted(named, &mut ground, self.now);
                Ok((true, named))
            }
        }
    }

    /// Number of the log file that is written.
    pub fn log_file(&self) -> u64 {
        self.driver.writer.current_file()
    }

    /// True when the next file is not made yet.
    pub fn wants_spare(&self) -> bool {
        self.driver.writer.wants_spare()
    }

    /// True when the state of all ledgers fits no log file.
    pub fn lacks_snapshot(&self) -> bool {
        self.driver.writer.lacks_snapshot()
    }

    /// True when a full file waits for its footer, and may get it now.
    pub fn wants_seal(&self) -> bool {
        self.driver.writer.wants_seal(true)
    }
}

struct StepGround<'a> {
    core: &'a mut NodeCore,
    effects: &'a mut Vec<Effect>,
    locator: Locator,
    disk: &'a Arc<dyn Disk>,
    salt: u64,
}

impl Ground for StepGround<'_> {
    fn look<T>(&self, look: impl FnOnce(&NodeCore) -> T) -> T {
        look(self.core)
    }

    fn feed(&mut self, event: Event) {
        self.core.on_event(event, self.effects);
    }

    fn locator(&self) -> Locator {
        self.locator.clone()
    }

    fn setup(&mut self) -> CompactedSetup {
        CompactedSetup {
            disk: Arc::clone(self.disk),
            identity: self.core.identity(),
            salt: self.salt,
            created_at: 0,
            replaces: Vec::new(),
            newest: 0,
            bytes: 0,
        }
    }
}
