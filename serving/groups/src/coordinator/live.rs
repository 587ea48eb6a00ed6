//! What is known of a group beside its durable state: timers and requests that wait. A coordinator that moves begins it anew, with
//! full sessions (serving.md B6).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::classic::ClassicLive;
use crate::consumer::Idle;

/// A group that lives.
#[derive(Debug)]
pub(crate) struct Live {
    /// When its next timer is due; `None`: it has none.
    pub(crate) due: Option<u64>,
    /// How it speaks.
    pub(crate) kind: LiveKind,
}

/// How it speaks.
#[derive(Debug)]
pub(crate) enum LiveKind {
    /// Classic protocol.
    Classic(ClassicLive),
    /// KIP-848.
    Consumer(ConsumerLive),
}

/// Timers of a group of the newer protocol. Ms.
#[derive(Debug, Default)]
pub(crate) struct ConsumerLive {
    /// When members are gone for good.
    pub(crate) sessions: BTreeMap<Arc<str>, u64>,
    /// Until when members must have given partitions up; with the epoch at which they were told.
    pub(crate) revoking: BTreeMap<Arc<str>, (i32, u64)>,
    /// Until when classic members must have joined again.
    pub(crate) rejoins: BTreeMap<Arc<str>, u64>,
    /// Ids that were given out to classic members and have not joined, and until when they may.
    pub(crate) pending: BTreeMap<Arc<str>, u64>,
    /// Members whose application is watched.
    pub(crate) idle: BTreeMap<Arc<str>, Idle>,
}

impl ConsumerLive {
    /// Forgets a member.
    pub(crate) fn forget(&mut self, member: &str) {
        self.sessions.remove(member);
        self.revoking.remove(member);
        self.rejoins.remove(member);
        self.idle.remove(member);
    }

    fn due(&self) -> Option<u64> {
        let sessions = self.sessions.values().copied();
        let revoking = self.revoking.values().map(|(_, at)| *at);
        let rejoins = self.rejoins.values().copied();
        let pending = self.pending.values().copied();
        let idle = self.idle.values().filter_map(Idle::due);
        let members = sessions.chain(revoking).chain(rejoins);
        members.chain(pending).chain(idle).min()
    }
}

impl Live {
    pub(crate) fn consumer() -> Self {
        Self {
            due: None,
            kind: LiveKind::Consumer(ConsumerLive::default()),
        }
    }

    pub(crate) fn classic(live: ClassicLive) -> Self {
        Self {
            due: None,
            kind: LiveKind::Classic(live),
        }
    }

    pub(super) fn next(&self) -> Option<u64> {
        match &self.kind {
            LiveKind::Classic(live) => live.due(),
            LiveKind::Consumer(live) => live.due(),
        }
    }
}
