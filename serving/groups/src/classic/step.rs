//! One request to a classic group: the group is taken out of the coordinator, and put back when the request is looked at.

use std::sync::Arc;

use super::live::{ClassicLive, Phase};
use crate::answer::Answer;
use crate::coordinator::{Coordinator, Live, LiveKind};
use crate::error::GroupError;
use crate::request::{Beat, Now, RequestId};
use crate::state::{Change, ClassicGroup, GroupKind};

/// A classic group while a request is looked at.
pub(super) struct Step<'a> {
    pub(super) core: &'a mut Coordinator,
    pub(super) live: ClassicLive,
    pub(super) group: Arc<str>,
    pub(super) now: Now,
}

impl Coordinator {
    pub(super) fn classic_step<R>(
        &mut self,
        now: Now,
        group: &Arc<str>,
        look: impl FnOnce(&mut Step<'_>) -> R,
    ) -> R {
        let (due, live) = match self.live.remove(group) {
            Some(Live {
                due,
                kind: LiveKind::Classic(live),
            }) => (due, live),
            other => (
                other.and_then(|live| live.due),
                self.durable_live(group, now),
            ),
        };
        let mut step = Step {
            core: self,
            live,
            group: group.clone(),
            now,
        };
        let answer = look(&mut step);
        let kind = LiveKind::Classic(step.live);
        self.live.insert(group.clone(), Live { due, kind });
        self.touch(group);
        answer
    }

    /// A group that has no live part: as it is durable. One of the newer protocol is empty, and goes on from its epoch.
    fn durable_live(&self, group: &str, now: Now) -> ClassicLive {
        let durable = match self.state.group(group).map(|group| &group.kind) {
            Some(GroupKind::Classic(classic)) => return ClassicLive::replayed(classic, now),
            Some(GroupKind::Consumer(consumer)) => ClassicGroup {
                generation: consumer.epoch,
                ..ClassicGroup::default()
            },
            Some(GroupKind::Simple) | None => ClassicGroup::default(),
        };
        ClassicLive::replayed(&durable, now)
    }

    pub(crate) fn beat(&mut self, now: Now, id: RequestId, beat: &Beat) {
        let answer = match self.has_consumer_members(&beat.group) {
            true => self.beat_in_consumer_group(now, beat),
            false => self.classic_step(now, &beat.group, |step| step.beat(beat)),
        };
        self.answer(&beat.group, id, Answer::Beat(answer));
    }

    /// A group of the newer protocol has classic members only: it goes on as a generation that is over, as a member left.
    pub(crate) fn go_on_classic(&mut self, now: Now, group: &Arc<str>, classic: &ClassicGroup) {
        let kind = LiveKind::Classic(ClassicLive::replayed(classic, now));
        let due = self.live.remove(group).and_then(|live| live.due);
        self.live.insert(group.clone(), Live { due, kind });
        self.classic_step(now, group, |step| {
            step.live.protocol = step.live.choose();
            step.persist();
            step.rebalance();
        });
    }

    pub(crate) fn tick_classic(&mut self, now: Now, group: &Arc<str>) {
        self.classic_step(now, group, |step| step.tick());
    }

    /// Whoever waited for this answer is gone (serving.md D2.15).
    pub(crate) fn classic_gone(&mut self, now: Now, group: &Arc<str>, id: RequestId) {
        self.classic_step(now, group, |step| step.gone(id));
    }
}

impl Step<'_> {
    fn beat(&mut self, beat: &Beat) -> Result<(), GroupError> {
        let instance = beat.instance.as_ref();
        self.live
            .check_generation(&beat.member, instance, beat.generation)?;
        self.live.heard(&beat.member, self.now);
        match self.live.phase {
            Phase::Preparing { .. } => Err(GroupError::RebalanceInProgress),
            _ => Ok(()),
        }
    }

    fn tick(&mut self) {
        let now = self.now.passed_ms;
        self.live.pending.retain(|_, until| *until > now);
        let expired = self.live.expired(self.now);
        for member in &expired {
            self.remove(member, &GroupError::UnknownMember);
        }
        match self.live.phase {
            _ if !expired.is_empty() => self.rebalance(),
            Phase::Preparing { .. } => self.try_complete(),
            _ => {}
        }
        match self.live.phase {
            Phase::Preparing { until, first } if until <= now => self.joins_are_due(first),
            Phase::Completing { until } if until <= now => self.syncs_are_due(),
            _ => {}
        }
    }

    fn gone(&mut self, id: RequestId) {
        let mut members = self.live.members.iter_mut();
        let found = members.find(|(_, member)| member.sync == Some(id) || member.join == Some(id));
        let Some((name, member)) = found else {
            return;
        };
        member.beat(self.now);
        if member.sync.take().is_none() {
            member.join = None;
            if member.fresh {
                let name = name.clone();
                self.remove(&name, &GroupError::UnknownMember);
                self.rebalance();
            }
        }
    }

    /// A member is out; what it waits for is answered.
    pub(super) fn remove(&mut self, member: &str, why: &GroupError) {
        if let Some(member) = self.live.members.remove(member) {
            if let Some(join) = member.join {
                self.say(join, Answer::Joined(Err(why.clone())));
            }
            if let Some(sync) = member.sync {
                self.say(sync, Answer::Synced(Err(why.clone())));
            }
        }
        if *self.live.leader == *member {
            self.live.leader = "".into();
        }
    }

    pub(super) fn say(&mut self, id: RequestId, answer: Answer) {
        self.core.answer(&self.group, id, answer);
    }

    /// The generation becomes durable, with its members and what they got.
    pub(super) fn persist(&mut self) {
        let members = self.live.members.iter();
        let members = members.map(|(id, member)| (id.clone(), member.stored.clone()));
        let group = ClassicGroup {
            generation: self.live.generation,
            protocol_type: self.live.protocol_type.clone(),
            protocol: self.live.protocol.clone(),
            leader: self.live.leader.clone(),
            members: members.collect(),
        };
        let at = self.now.wall_ms;
        self.core.apply(&self.group, Change::Classic { at, group });
    }
}
