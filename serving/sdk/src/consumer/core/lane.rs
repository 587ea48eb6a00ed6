//! One partition of a consumer: attached or not, where deliveries stand, what was handed out and not acknowledged. No I/O.
//!
//! ```text
//! Down ──due──► Finding ──session──► Attaching ──Attached──► Attached (active or standing by)
//!  ▲               │                    │                        │            Ended: fenced, deleted, …; final
//!  └───────────────┴────────────────────┴── session lost, Moved, Detached ────┘
//! ```
//!
//! Each time that deliveries begin anew (attached, active again, after a seek) a new *term* begins. Units of an older term are
//! void: what was not handed out of them comes again. Records that were handed out stay acknowledgeable over broken links and new
//! owners, since an offset means the same; a seek, a deletion, or another active consumer makes them void.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_up::Item;
use tokio::time::Instant;

use super::acks::{AckBook, AckLimits};
use super::cover::cover;
use super::event::{ConsumerNote, Out, SeekAnswer, SessionId};
use super::ranges::RangeSet;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::reader::RecordBatch;

/// How long acknowledgements of a consumer that was active wait for it to become active again.
const STAND_BY_AFTER: Duration = Duration::from_secs(5);

/// Where a lane is in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) struct Link {
    pub(in crate::consumer) session: SessionId,
    pub(in crate::consumer) lane: u32,
    pub(in crate::consumer) limits: AckLimits,
}

#[derive(Debug)]
pub(in crate::consumer) enum Phase {
    Down {
        at: Instant,
        resolve: bool,
    },
    /// The shell looks for the owner and a session.
    Finding,
    Attaching {
        link: Link,
        until: Instant,
    },
    Attached {
        link: Link,
        active: bool,
    },
    Ended(Error),
}

/// What of a delivery is to be handed out.
pub(super) struct Accepted {
    pub(super) batch: RecordBatch,
    /// Disjoint, in order.
    pub(super) acquired: Vec<Range<u64>>,
}

/// A seek without an answer.
struct Seek {
    id: u64,
    to: v1::StartAt,
    answer: SeekAnswer,
    /// Given up then.
    until: Instant,
}

pub(in crate::consumer) struct Lane {
    pub(in crate::consumer) partition: u32,
    pub(in crate::consumer) phase: Phase,
    pub(in crate::consumer) backoff: Backoff,
    /// Why it is not attached, as last heard.
    pub(in crate::consumer) trouble: Option<Error>,
    /// It was attached at least once.
    pub(in crate::consumer) begun: bool,
    /// It comes back: its own broken session, if the broker still has it, is to be ended.
    pub(super) takes_over: bool,
    /// The highest seen.
    pub(super) leader_epoch: u32,
    pub(super) state_epoch: u32,
    subscription: Vec<u8>,
    pub(super) term: u64,
    /// Records of older terms are void, for this reason.
    pub(super) valid_from: u64,
    pub(super) void: Reason,
    /// Everything below was delivered or explained.
    pub(super) expected: u64,
    /// Records below may be acknowledged before they are delivered again.
    pub(super) acks_to: u64,
    pub(super) high_watermark: u64,
    /// Handed out and not acknowledged.
    pub(super) handed: RangeSet,
    /// Acknowledged before they came again in this term: by what was handed out in an older one.
    pub(super) done: RangeSet,
    /// Acknowledgements that were refused.
    pub(super) refused: RangeSet,
    pub(super) acks: AckBook,
    /// Refused acks are sent again then.
    pub(in crate::consumer) retry_at: Option<Instant>,
    /// It is no more active, and has not said yet that it is through.
    pub(super) yielding: bool,
    /// Unless it becomes active before, what it was handed is another consumer's then.
    stands_by_at: Option<Instant>,
    seeks: VecDeque<Seek>,
    next_seek: u64,
}

impl Lane {
    pub(in crate::consumer) fn new(partition: u32, now: Instant) -> Self {
        Self {
            partition,
            phase: Phase::Down {
                at: now,
                resolve: false,
            },
            backoff: Backoff::new(),
            trouble: None,
            begun: false,
            takes_over: false,
            leader_epoch: 0,
            state_epoch: 0,
            subscription: Vec::new(),
            term: 0,
            valid_from: 0,
            void: Reason::CursorStale,
            expected: 0,
            acks_to: 0,
            high_watermark: 0,
            handed: RangeSet::default(),
            done: RangeSet::default(),
            refused: RangeSet::default(),
            acks: AckBook::default(),
            retry_at: None,
            yielding: false,
            stands_by_at: None,
            seeks: VecDeque::new(),
            next_seek: 1,
        }
    }

    pub(in crate::consumer) fn link(&self) -> Option<Link> {
        match self.phase {
            Phase::Attaching { link, .. } | Phase::Attached { link, .. } => Some(link),
            _ => None,
        }
    }

    pub(in crate::consumer) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Attached { active: true, .. })
    }

    /// Everything that was acknowledged has its receipt, or never gets one.
    pub(in crate::consumer) fn is_flushed(&self) -> bool {
        self.acks.is_idle() || matches!(self.phase, Phase::Ended(_))
    }

    /// Attached. `Err`: this owner is an old one.
    pub(super) fn attached(
        &mut self,
        attached: &v1::Attached,
        now: Instant,
        out: &mut Out,
    ) -> Result<(), Error> {
        let Phase::Attaching { link, .. } = self.phase else {
            return Err(Error::wrong_answer("Attached twice"));
        };
        self.sees_epoch(attached.leader_epoch)?;
        let active = attached.active;
        let another = self.begun && self.subscription != attached.subscription_uuid;
        if another {
            self.forget(Reason::SubscriptionNotFound);
        }
        self.subscription = attached.subscription_uuid.to_vec();
        self.begun = true;
        self.takes_over = false;
        self.trouble = None;
        self.high_watermark = attached.high_watermark;
        self.phase = Phase::Attached { link, active };
        self.acks.link_lost();
        self.begin_term(attached.base, &attached.acked, attached.state_epoch);
        self.acks_to = attached.acks_to;
        if !active {
            // A FAILOVER subscription may name it active in a moment; then what is under way still counts.
            self.stands_by_at = Some(now + STAND_BY_AFTER);
        }
        out.wake = true;
        self.resend_seek(link, now, out);
        self.send_acks(out);
        Ok(())
    }

    /// Takes a delivery. What of it is to be handed out, if anything is.
    ///
    /// # Errors
    /// It does not follow, or does not explain each of its offsets; or it shows that another broker is the owner.
    pub(super) fn accept(
        &mut self,
        delivery: v1::Delivery,
        out: &mut Out,
    ) -> Result<Option<Accepted>, Error> {
        if !self.is_active() {
            // It was under way when another consumer became the active one.
            return Ok(None);
        }
        if delivery.state_epoch != self.state_epoch {
            return Err(Error::wrong_answer("a delivery of another state epoch"));
        }
        let high_watermark = delivery.high_watermark;
        let covered = cover(self.partition, self.expected, delivery)?;
        if let Some(batch) = &covered.batch {
            let written_by = u32::try_from(batch.header.leader_epoch).unwrap_or(0);
            if written_by > self.leader_epoch {
                self.leader_epoch = written_by;
                return self.sees_epoch(written_by - 1).map(|()| None);
            }
        }
        self.high_watermark = self.high_watermark.max(high_watermark);
        self.expected = covered.end;
        self.backoff.reset();
        let partition = self.partition;
        for (offsets, why) in covered.skipped {
            out.note(ConsumerNote::Skipped {
                partition,
                offsets,
                why,
            });
        }
        let mut acquired = RangeSet::default();
        covered
            .acquired
            .into_iter()
            .for_each(|range| acquired.insert(range));
        // The application is through with these, with or without a receipt, or has them, acknowledged before they are handed out.
        self.acks.strip(&mut acquired);
        acquired.remove_all(&self.done);
        self.send_acks(out);
        let batch = covered.batch.filter(|_| !acquired.is_empty());
        Ok(batch.map(|batch| Accepted {
            batch,
            acquired: acquired.iter().collect(),
        }))
    }

    /// Deliveries begin anew.
    fn begin_term(&mut self, base: u64, acked: &[v1::OffsetRange], state_epoch: u32) {
        if self.state_epoch != state_epoch && self.term > 0 {
            self.forget(Reason::CursorStale);
        }
        self.state_epoch = state_epoch;
        self.term += 1;
        self.expected = base;
        self.acks_to = base;
        self.done.clear();
        self.yielding = false;
        self.stands_by_at = None;
        self.handed.remove_below(base);
        self.refused.remove_below(base);
        for range in acked {
            self.handed.remove(range.first..range.end);
        }
        self.acks.processed(base, acked);
    }

    /// Nothing of what was handed out counts any more.
    fn forget(&mut self, why: Reason) {
        self.void = why;
        self.valid_from = self.term + 1;
        self.handed.clear();
        self.refused.clear();
        self.acks.refuse_all(&void(why));
    }

    /// Another consumer has the records now. What is under way still gets its receipt.
    fn stand_by(&mut self) {
        self.stands_by_at = None;
        self.yielding = false;
        self.void = Reason::NotOwned;
        self.valid_from = self.term + 1;
        self.acks.refuse_unsent(&void(Reason::NotOwned));
    }

    pub(super) fn active_changed(
        &mut self,
        changed: &v1::ActiveChanged,
        now: Instant,
        out: &mut Out,
    ) {
        let Phase::Attached { link, active } = self.phase else {
            return;
        };
        let partition = self.partition;
        self.phase = Phase::Attached {
            link,
            active: changed.active,
        };
        if changed.active {
            self.begin_term(changed.base, &changed.acked, changed.state_epoch);
            self.acks_to = changed.acks_to;
        } else if active {
            self.yielding = true;
            let grace = Duration::from_millis(changed.grace_ms.into());
            self.stands_by_at = Some(now + grace.min(STAND_BY_AFTER));
            out.wake = true;
            out.void.push(partition);
            self.send_acks(out);
        }
        out.note(ConsumerNote::Active {
            partition,
            active: changed.active,
        });
        self.yield_when_through(out);
    }

    /// Says that nothing more will be acknowledged, once that is so.
    pub(super) fn yield_when_through(&mut self, out: &mut Out) {
        let Phase::Attached {
            link,
            active: false,
        } = self.phase
        else {
            return;
        };
        if self.yielding && self.handed.is_empty() && self.acks.is_idle() {
            self.stand_by();
            let lane = link.lane;
            out.sends
                .push((link.session, Item::Yielded(v1::Yielded { lane })));
        }
    }

    pub(super) fn seek_done(&mut self, done: &v1::SeekDone, out: &mut Out) {
        let result = match &done.fault {
            Some(fault) => Err(Error::from_wire(fault.clone())),
            None => Ok(()),
        };
        if result.is_ok() {
            // The term after the void one: nothing handed out before counts.
            self.forget(Reason::CursorStale);
            self.state_epoch = done.state_epoch;
            self.begin_term(done.base, &[], done.state_epoch);
            out.void.push(self.partition);
            out.note(ConsumerNote::Moved {
                partition: self.partition,
                base: Offset(done.base),
            });
        }
        while self
            .seeks
            .front()
            .is_some_and(|seek| seek.id <= done.seek_id)
        {
            let seek = self.seeks.pop_front().expect("there is a front");
            out.sought.push((seek.answer, result.clone()));
        }
    }

    /// The application seeks.
    pub(super) fn seek(
        &mut self,
        to: v1::StartAt,
        until: Instant,
        answer: SeekAnswer,
        out: &mut Out,
    ) {
        if let Phase::Ended(error) = &self.phase {
            return out.sought.push((answer, Err(error.clone())));
        }
        let id = self.next_seek;
        self.next_seek += 1;
        if let Phase::Attached { link, .. } = self.phase {
            out.sends.push((link.session, seek_item(link, id, &to)));
        }
        self.seeks.push_back(Seek {
            id,
            to,
            answer,
            until,
        });
        out.wake = true;
    }

    /// The newest seek without an answer, again: it answers the older ones.
    fn resend_seek(&mut self, link: Link, now: Instant, out: &mut Out) {
        self.expire_seeks(now, out);
        if let Some(seek) = self.seeks.back() {
            out.sends
                .push((link.session, seek_item(link, seek.id, &seek.to)));
        }
    }

    fn expire_seeks(&mut self, now: Instant, out: &mut Out) {
        while self.seeks.front().is_some_and(|seek| seek.until <= now) {
            let seek = self.seeks.pop_front().expect("there is a front");
            let words = "the cursor was not moved in time; it may have been";
            let late = Error::local(hulse_proto::error::ErrorKind::OutcomeUnknown, words);
            out.sought.push((seek.answer, Err(late)));
        }
    }

    /// Time passed.
    pub(super) fn tick(&mut self, now: Instant, out: &mut Out) {
        self.expire_seeks(now, out);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.send_acks(out);
        }
        if self.stands_by_at.is_some_and(|at| at <= now) {
            self.stand_by();
        }
    }

    /// When the next [`Self::tick`] is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Down { at, .. } => Some(at),
            Phase::Attaching { until, .. } => Some(until),
            _ => None,
        };
        let seek = self.seeks.front().map(|seek| seek.until);
        let times = [phase, seek, self.retry_at, self.stands_by_at];
        times.into_iter().flatten().min()
    }

    /// The link is gone; it is tried again `at` that time.
    pub(super) fn link_lost(
        &mut self,
        at: Instant,
        resolve: bool,
        why: Option<Error>,
        out: &mut Out,
    ) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        self.phase = Phase::Down { at, resolve };
        self.acks.link_lost();
        self.retry_at = None;
        self.trouble = why.or(self.trouble.take());
        out.void.push(self.partition);
        out.wake = true;
    }

    /// It will never be attached again.
    pub(super) fn end(&mut self, error: &Error, out: &mut Out) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        self.phase = Phase::Ended(error.clone());
        self.acks.refuse_all(error);
        for seek in self.seeks.drain(..) {
            out.sought.push((seek.answer, Err(error.clone())));
        }
        out.void.push(self.partition);
        out.wake = true;
    }

    /// An epoch that a broker or a batch names.
    pub(super) fn sees_epoch(&mut self, epoch: u32) -> Result<(), Error> {
        if epoch < self.leader_epoch {
            let known = self.leader_epoch;
            let words = format!(
                "the broker serves partition {} in epoch {epoch}, but epoch {known} has begun",
                self.partition
            );
            return Err(Fault::new(Reason::PartitionMoved, words).into());
        }
        self.leader_epoch = epoch;
        Ok(())
    }
}

fn seek_item(link: Link, seek_id: u64, to: &v1::StartAt) -> Item {
    Item::Seek(v1::SeekLane {
        lane: link.lane,
        seek_id,
        to: Some(*to),
    })
}

pub(super) fn void(why: Reason) -> Error {
    let words = match why {
        Reason::NotOwned => {
            "another consumer has the partition now; the record is delivered to that one"
        }
        Reason::SubscriptionNotFound => {
            "the subscription was deleted and made anew; the record may be delivered again"
        }
        _ => "the cursor was moved after the record was handed out; it may be delivered again",
    };
    Fault::new(why, words).into()
}
