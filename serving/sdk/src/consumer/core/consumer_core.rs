//! The whole of a consumer: what it is told by brokers, by time and by the application.
//!
//! Every entry leaves what is to be done in [`Out`], which the shell takes with [`ConsumerCore::take_out`] before it lets anybody else
//! in. Nothing here waits.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hulse_proto::error::ErrorKind;
use hulse_proto::id::TopicId;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_up::Item as Up;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::credit::Amount;
use super::event::{Out, Ready, SessionId};
use super::lane::{Lane, Link, Phase};
use super::session::Session;
use super::verdict::{Verdict, verdict};
use crate::error::Error;

/// How long a broker may take to open a partition, take-over included, before it is asked again.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// What a consumer asks for.
#[derive(Debug, Clone)]
pub(in crate::consumer) struct Wanted {
    /// Lane, partition and takeover are filled in.
    pub(in crate::consumer) attach: v1::Attach,
    /// Of the receive queue, over all sessions.
    pub(in crate::consumer) queue_records: u32,
    pub(in crate::consumer) queue_bytes: u32,
    /// Handed out and not acknowledged, over all partitions.
    pub(in crate::consumer) unacked_max: u64,
}

/// A partition that is to be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) struct Due {
    pub(in crate::consumer) partition: u32,
    /// Ask anew where it is.
    pub(in crate::consumer) resolve: bool,
}

/// The state.
pub(in crate::consumer) struct ConsumerCore {
    pub(super) wanted: Wanted,
    pub(super) lanes: BTreeMap<u32, Lane>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    next_session: u64,
    pub(super) ready: VecDeque<Ready>,
    pub(super) rng: ChaCha8Rng,
    pub(super) out: Out,
    /// Handed out and not acknowledged, over all lanes.
    pub(super) unacked: u64,
    /// Times that a partition was attached.
    pub(super) attachments: u64,
    pub(super) ended: Option<Error>,
    pub(super) closing: bool,
}

impl ConsumerCore {
    pub(in crate::consumer) fn new(
        wanted: Wanted,
        partitions: impl IntoIterator<Item = u32>,
        rng: ChaCha8Rng,
        now: Instant,
    ) -> Self {
        let lanes = partitions.into_iter().map(|p| (p, Lane::new(p, now)));
        Self {
            wanted,
            lanes: lanes.collect(),
            sessions: BTreeMap::new(),
            next_session: 0,
            ready: VecDeque::new(),
            rng,
            out: Out::default(),
            unacked: 0,
            attachments: 0,
            ended: None,
            closing: false,
        }
    }

    /// What is to be done; nothing afterwards.
    pub(in crate::consumer) fn take_out(&mut self) -> Out {
        for partition in std::mem::take(&mut self.out.void) {
            self.drop_units(partition);
        }
        self.out.news |= self.out.wake || !self.out.ready.is_empty();
        self.ready.extend(self.out.ready.drain(..));
        std::mem::take(&mut self.out)
    }

    fn drop_units(&mut self, partition: u32) {
        let ready = std::mem::take(&mut self.ready);
        for item in ready {
            match item {
                Ready::Unit(unit) if unit.partition() == partition => self.finish(&unit),
                other => self.ready.push_back(other),
            }
        }
    }

    /// Works on a lane; keeps the sums.
    pub(super) fn with_lane<T>(
        &mut self,
        partition: u32,
        work: impl FnOnce(&mut Lane, &mut Out) -> T,
    ) -> Option<T> {
        let lane = self.lanes.get_mut(&partition)?;
        let before = lane.handed.len();
        let done = work(lane, &mut self.out);
        self.unacked = self.unacked + lane.handed.len() - before;
        Some(done)
    }

    // What the shell tells.

    /// A broker greeted.
    pub(in crate::consumer) fn session_opened(
        &mut self,
        welcome: &v1::ConsumeWelcome,
    ) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, Session::new(id, welcome));
        self.share_credit();
        id
    }

    /// The queue is shared by the sessions.
    fn share_credit(&mut self) {
        let count = self.sessions.len().max(1) as i64;
        let share = |total: u32| (i64::from(total) / count).max(1);
        let max = Amount {
            records: share(self.wanted.queue_records),
            bytes: share(self.wanted.queue_bytes),
        };
        for session in self.sessions.values_mut() {
            session.credit.set_max(max);
            session.grant(&mut self.out);
        }
    }

    /// Attaches a partition by a session.
    pub(in crate::consumer) fn attach(
        &mut self,
        partition: u32,
        topic: TopicId,
        session: SessionId,
        now: Instant,
    ) {
        let Some(lane) = self.lanes.get_mut(&partition) else {
            return;
        };
        if !matches!(lane.phase, Phase::Finding) {
            return;
        }
        let Some(found) = self.sessions.get_mut(&session) else {
            // It ended meanwhile.
            lane.phase = Phase::Down {
                at: now,
                resolve: true,
            };
            self.out.wake = true;
            return;
        };
        let link = Link {
            session,
            lane: found.begin_lane(partition),
            limits: found.limits,
        };
        let until = now + ATTACH_TIMEOUT;
        let handed_end = lane.handed_end();
        lane.phase = Phase::Attaching { link, until };
        let attach = v1::Attach {
            lane: link.lane,
            takeover: self.wanted.attach.takeover || lane.takes_over,
            partition: Some(v1::Partition {
                topic_uuid: topic.to_bytes(),
                index: partition,
            }),
            handed_end,
            handed_epoch: lane.state_epoch,
            ..self.wanted.attach.clone()
        };
        self.out.sends.push((session, Up::Attach(attach)));
        self.out.wake = true;
    }

    /// No owner or no session was found for a partition.
    pub(in crate::consumer) fn not_found(&mut self, partition: u32, error: Error, now: Instant) {
        let finding = |lane: &Lane| matches!(lane.phase, Phase::Finding);
        if self.lanes.get(&partition).is_some_and(finding) {
            // The look-up's word is final where a broker's is not: that one may know an older topic of this name.
            match error.is_retryable() {
                true => self.lane_lost(partition, Some(error), now),
                false => self.lane_ends(partition, error),
            }
        }
    }

    /// A partition will never be attached again.
    pub(in crate::consumer) fn lane_ends(&mut self, partition: u32, error: Error) {
        self.with_lane(partition, |lane, out| lane.end(&error, out));
        self.out.ready.push(Ready::Failed(error.clone()));
        let ended = |lane: &Lane| matches!(lane.phase, Phase::Ended(_));
        if self.lanes.values().all(ended) {
            self.ended.get_or_insert(error);
        }
    }

    /// A session ended.
    pub(in crate::consumer) fn session_lost(&mut self, id: SessionId, error: &Error, now: Instant) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        for partition in session.lanes.into_values() {
            let mine = |lane: &Lane| lane.link().is_some_and(|link| link.session == id);
            if self.lanes.get(&partition).is_some_and(mine) {
                self.lane_lost(partition, Some(error.clone()), now);
            }
        }
        self.share_credit();
    }

    pub(super) fn give_back(&mut self, id: SessionId, amount: Amount) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.credit.returned(amount);
            session.grant(&mut self.out);
        }
    }

    /// Ends a lane from here.
    pub(super) fn leave(&mut self, id: SessionId, lane: u32) {
        if self.end_lane(id, lane).is_some() {
            self.out.sends.push((id, Up::Detach(v1::Detach { lane })));
        }
    }

    pub(super) fn end_lane(&mut self, id: SessionId, lane: u32) -> Option<u32> {
        self.sessions.get_mut(&id)?.lanes.remove(&lane)
    }

    /// A lane met an error: tries again, or ends.
    pub(super) fn lane_failed(&mut self, partition: u32, error: Error, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&partition) else {
            return;
        };
        match verdict(&error, lane, &self.wanted.attach.consumer_name) {
            Verdict::Again => self.lane_lost(partition, Some(error), now),
            Verdict::TakeOver => {
                lane.takes_over = true;
                self.lane_lost(partition, Some(error), now);
            }
            Verdict::LaneEnds => self.lane_ends(partition, error),
            Verdict::ConsumerEnds(error) => self.end(&error),
        }
    }

    pub(super) fn lane_lost(&mut self, partition: u32, why: Option<Error>, now: Instant) {
        let rng = &mut self.rng;
        let Some(lane) = self.lanes.get_mut(&partition) else {
            return;
        };
        let at_least = why.as_ref().and_then(Error::retry_after);
        let at = now + lane.backoff.next(rng, at_least);
        lane.link_lost(at, true, why, &mut self.out);
    }

    /// The whole consumer is finished.
    pub(in crate::consumer) fn end(&mut self, error: &Error) {
        self.ended.get_or_insert(error.clone());
        let partitions: Vec<u32> = self.lanes.keys().copied().collect();
        for partition in partitions {
            let link = self.lanes.get(&partition).and_then(Lane::link);
            if let Some(link) = link {
                self.leave(link.session, link.lane);
            }
            self.with_lane(partition, |lane, out| lane.end(error, out));
        }
    }

    /// The look-up says in which epoch a partition is served: an older attachment is left.
    pub(in crate::consumer) fn resolved(
        &mut self,
        partition: u32,
        leader_epoch: u32,
        now: Instant,
    ) {
        let Some(lane) = self.lanes.get_mut(&partition) else {
            return;
        };
        if leader_epoch <= lane.leader_epoch {
            return;
        }
        lane.leader_epoch = leader_epoch;
        if let Phase::Attached { link, .. } = lane.phase {
            self.leave(link.session, link.lane);
            self.lane_lost(partition, None, now);
        }
    }

    /// Time passed. Answers what is to be attached now; these partitions are being looked for from then on.
    pub(in crate::consumer) fn tick(&mut self, now: Instant) -> Vec<Due> {
        let mut due = Vec::new();
        let mut late = Vec::new();
        let closing = self.closing;
        for lane in self.lanes.values_mut() {
            let before = lane.handed.len();
            lane.tick(now, &mut self.out);
            self.unacked = self.unacked + lane.handed.len() - before;
            match lane.phase {
                Phase::Down { at, resolve } if at <= now && !(closing && lane.acks.is_idle()) => {
                    lane.phase = Phase::Finding;
                    let partition = lane.partition;
                    due.push(Due { partition, resolve });
                }
                Phase::Attaching { link, until } if until <= now => {
                    late.push((lane.partition, link))
                }
                _ => {}
            }
        }
        for (partition, link) in late {
            let words =
                format!("the broker did not attach within {ATTACH_TIMEOUT:?}; it is tried again");
            self.leave(link.session, link.lane);
            self.lane_lost(
                partition,
                Some(Error::local(ErrorKind::Unavailable, words)),
                now,
            );
        }
        due
    }

    /// When the next tick is due.
    pub(in crate::consumer) fn next_deadline(&self) -> Option<Instant> {
        let lanes = self.lanes.values();
        lanes.filter_map(Lane::next_deadline).min()
    }

    /// The heartbeat of a session.
    pub(in crate::consumer) fn heartbeat(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get(&id) {
            self.out.sends.push((id, session.heartbeat()));
        }
    }
}
