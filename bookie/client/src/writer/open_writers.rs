//! The writers of a process that may be there: for what is said to all of them.

use std::sync::{Arc, Mutex, PoisonError};

use hulse_proto::ledger::Member;

use super::task::{Command, Task};
use crate::mailbox::WeakSender;

/// Fewer are not looked through for those that are gone.
const FORGET_MIN: usize = 64;

/// Knows them, and keeps none of them.
#[derive(Default)]
pub(crate) struct OpenWriters(Mutex<Known>);

#[derive(Default)]
struct Known {
    writers: Vec<WeakSender<Command, Box<Task>>>,
    /// How many were left when the gone ones were forgotten last: with twice as many it is done again.
    left: usize,
}

impl OpenWriters {
    /// One more.
    pub(super) fn add(&self, writer: WeakSender<Command, Box<Task>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.writers.len() >= FORGET_MIN.max(2 * known.left) {
            known.writers.retain(|writer| !writer.is_gone());
            known.left = known.writers.len();
        }
        known.writers.push(writer);
    }

    /// Tells them which bookies stay. One that rests is started only if a member of its leaves.
    pub(crate) fn tell_staying(&self, staying: &Arc<[Member]>) {
        let writers = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.writers.retain(|writer| !writer.is_gone());
            known.left = known.writers.len();
            known.writers.clone()
        };
        for writer in writers {
            if writer.rests_as(|task| !task.has_leaving(staying)) {
                continue;
            }
            // One that is gone meanwhile needs to know nothing.
            let _ = writer.send(Command::Staying(Arc::clone(staying)));
        }
    }
}
