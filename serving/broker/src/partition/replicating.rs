//! How many copies a partition's ledgers have, where its topic says so: new ones of both chains, and the open ones once they are rolled.
//!
//! A ledger keeps the quorums that it was made with (storage.md 2.0). So a change rolls the open log ledger as soon as it can be, and
//! has the state written into a new one; while no ledger can be made for want of bookies the old ones go on.

use bookie_client::LedgerClient;
use bookie_metadata::Revision;
use hulse_proto::ledger::Quorums;
use hulse_proto::time::TimestampMs;

use super::core::PartitionCore;
use super::handle::{Command, PartitionHandle};
use super::snapshots::StateWriter;
use super::takeover::Collaborators;
use super::task::Task;
use crate::state::MetaState;

/// After the state was to be written into another ledger, the next try waits this long.
const STATE_RETRY: TimestampMs = 30_000;

/// What a topic says of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Replication {
    /// Of new ledgers; `None`: as the cell says.
    pub quorums: Option<Quorums>,
    /// When it said so: an older word changes nothing.
    pub as_of: Revision,
}

impl Collaborators {
    /// The client that makes the ledgers of such a partition.
    pub(super) fn client_for(&self, replication: Replication) -> LedgerClient {
        match replication.quorums {
            Some(quorums) => self.client.with_quorums(quorums),
            None => self.client.clone(),
        }
    }
}

impl PartitionHandle {
    /// What the topic says now. Wakes the partition only if that is another thing than before; not waited for.
    pub(crate) fn replicate(&self, said: Replication) {
        let mut known = self
            .0
            .replication
            .lock()
            .expect("no code panics while it holds this lock");
        if said.as_of <= known.as_of {
            return;
        }
        let before = std::mem::replace(&mut *known, said);
        if before.quorums != said.quorums {
            // One that has ended opens anew, with what is said then. Sent under the lock, so that commands come in this order.
            let _ = self.0.commands.send(Command::Replicate(said));
        }
    }
}

impl Task {
    /// The topic says another number of copies.
    pub(super) fn replicate(&mut self, said: Replication) {
        self.client = self.with.client_for(said);
        let quorums = self.client.quorums();
        tracing::info!(partition = %self.name, ?quorums, "new ledgers have other copies than before");
        if let Some(writer) = &mut self.state_writer {
            writer.client = self.client.clone();
        }
        self.note_wear();
        self.state_copies_not_before = TimestampMs::MIN;
        let now = self.clock.now_ms();
        self.note_state_copies(now);
    }

    /// The open log ledger has other quorums than new ones get.
    pub(super) fn is_outdated(&self) -> bool {
        let open = self.writer.as_ref();
        open.is_some_and(|writer| writer.quorums() != self.client.quorums())
    }

    /// What the partition remembers goes into a ledger with the right quorums, if it stands in another one.
    pub(super) fn note_state_copies(&mut self, now: TimestampMs) {
        let home = self.state_writer.as_ref();
        if home.is_some_and(StateWriter::is_outdated) && now >= self.state_copies_not_before {
            self.state_copies_not_before = now + STATE_RETRY;
            self.core.snapshot_for_copies(now);
        }
    }
}

impl<M: MetaState, T> PartitionCore<M, T> {
    /// Whether the open log ledger is to be rolled since new ones have other quorums, also one without records.
    pub(super) fn note_outdated(&mut self, outdated: bool) {
        self.outdated = outdated;
    }
}
