//! A client as its protocol prescribes: what it believes, and what it asks next.

use std::collections::BTreeSet;
use std::sync::Arc;

use hulse_proto::id::PartitionId;

use super::classic_actor::Stage;
use crate::testing::{commit_of, joins, stays};
use crate::{Answer, Commit, GroupError, MemberBeat, Partitions, Request, RequestId};

/// Which protocol it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Newer,
    Eager,
    Cooperative,
}

/// A client.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) speaks: Speaks,
    pub(super) instance: Option<Arc<str>>,
    /// Its id as it knows it.
    pub(super) member: Arc<str>,
    /// Member epoch or generation; 0: it is not in the group.
    pub(super) epoch: i32,
    pub(super) owned: Partitions,
    /// The epoch at which it was last told what it owns. Between join and sync a classic client still has what it had.
    pub(super) owned_at: i32,
    /// Asked for, and not answered.
    pub(super) waits: Option<(RequestId, u64)>,
    pub(super) commits: Option<(RequestId, PartitionId)>,
    /// Asks nothing before this time.
    pub(super) next: u64,
    /// Classic: what comes next.
    pub(super) stage: Stage,
    /// Classic: what it brings as the leader.
    pub(super) assigns: Vec<(Arc<str>, bytes::Bytes)>,
    /// Tells everything with its next heartbeat.
    pub(super) full: bool,
    /// Says good-bye with its next request.
    pub(super) leaves: bool,
    pub(super) gone: bool,
}

impl Actor {
    pub(super) fn new(speaks: Speaks, member: Arc<str>, instance: Option<Arc<str>>) -> Self {
        Self {
            speaks,
            instance,
            // A client of the newer protocol makes its own id.
            member: match speaks {
                Speaks::Newer => member,
                _ => "".into(),
            },
            epoch: 0,
            owned: BTreeSet::new(),
            owned_at: 0,
            waits: None,
            commits: None,
            next: 0,
            stage: Stage::Join,
            assigns: Vec::new(),
            full: true,
            leaves: false,
            gone: false,
        }
    }

    /// Who it is for an oracle: a static member is the same whatever its id.
    pub(super) fn identity(&self) -> Arc<str> {
        self.instance.clone().unwrap_or_else(|| self.member.clone())
    }

    pub(super) fn request(&mut self) -> Request {
        match self.speaks {
            Speaks::Newer => Request::Member(Box::new(self.newer_beat())),
            _ => self.classic_request(),
        }
    }

    fn newer_beat(&mut self) -> MemberBeat {
        let instance = self.instance.clone();
        if self.leaves {
            self.gone = true;
            return MemberBeat {
                instance,
                ..stays("g", &self.member, -1)
            };
        }
        match self.epoch {
            0 => MemberBeat {
                instance,
                ..joins("g", &self.member)
            },
            epoch if self.full => MemberBeat {
                epoch,
                owned: Some(self.owned.clone()),
                instance,
                ..joins("g", &self.member)
            },
            epoch => stays("g", &self.member, epoch),
        }
    }

    /// The answer came.
    pub(super) fn hears(&mut self, answer: Answer, now: u64) {
        self.waits = None;
        match answer {
            Answer::Member(Ok(answer)) => {
                if self.gone {
                    return;
                }
                self.member = answer.member;
                self.epoch = answer.epoch;
                self.owned_at = answer.epoch;
                self.full = false;
                if let Some(assigned) = answer.assigned {
                    // What it has to give up, it gives up at once, and says so with the next heartbeat.
                    self.full = assigned != self.owned;
                    self.owned = assigned;
                }
                self.next = now + if self.full { 100 } else { 5_000 };
            }
            Answer::Member(Err(error)) => {
                let fenced = matches!(
                    error,
                    GroupError::FencedMemberEpoch
                        | GroupError::UnknownMember
                        | GroupError::FencedInstance
                );
                if fenced {
                    self.lose_everything();
                }
                self.full = true;
                self.next = now + 500;
            }
            other => self.hears_classic(other, now),
        }
    }

    /// Nothing came in time.
    pub(super) fn hears_nothing(&mut self, now: u64) {
        self.waits = None;
        self.full = true;
        if self.speaks != Speaks::Newer && self.stage == Stage::Sync {
            self.stage = Stage::Join;
        }
        self.next = now + 200;
    }

    pub(super) fn lose_everything(&mut self) {
        (self.epoch, self.owned_at) = (0, 0);
        self.owned.clear();
        self.stage = Stage::Join;
        self.full = true;
    }

    /// It commits what it has processed of a partition.
    pub(super) fn commit(&self, partition: PartitionId, offset: u64) -> Commit {
        Commit {
            member_epochs: self.speaks == Speaks::Newer,
            held_only: false,
            instance: match self.speaks {
                Speaks::Newer => None,
                _ => self.instance.clone(),
            },
            ..commit_of("g", &self.member, self.epoch, partition, offset)
        }
    }
}
