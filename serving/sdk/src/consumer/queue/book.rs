//! Answers of one partition on their way to their receipts. No I/O.
//!
//! What is said while requests are under way goes along with the next one, so their number follows the broker's speed. Neighbours with
//! the same verdict are one range; where a broker does not take a range as a whole, its records are asked one by one.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use crate::error::Error;

/// Requests under way at once.
const UNDER_WAY_MAX: usize = 4;
/// Ranges of one request.
const RANGES_MAX: usize = 1_000;
/// An answer that a broker could not take is said again after this.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What is said of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Ack,
    Return { failed: bool, delay: Delay },
    Reject,
}

/// When a returned record comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delay {
    Millis(u32),
    Policy,
}

/// One answer.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) offset: u64,
    pub(super) verdict: Verdict,
    pub(super) attachment: u64,
    pub(super) state_epoch: u32,
    pub(super) answer: oneshot::Sender<Result<(), Error>>,
    /// Not to be joined with its neighbours.
    pub(super) alone: bool,
}

/// Answers of the same kind go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    verdict: Verdict,
    state_epoch: u32,
    before: bool,
}

/// The answers of one range.
type Ranged = Vec<Said>;

/// All that has no receipt.
#[derive(Debug, Default)]
pub(super) struct Book {
    waiting: VecDeque<Said>,
    sent: BTreeMap<u64, (Kind, Vec<Ranged>)>,
    next_id: u64,
    retry_at: Option<Instant>,
}

impl Book {
    pub(super) fn say(&mut self, said: Said) {
        self.waiting.push_back(said);
    }

    /// Everything has its receipt.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// When something is to be said again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// What is to be sent now, in this attachment, on this lane.
    pub(super) fn send(&mut self, attachment: u64, lane: u32, now: Instant) -> Vec<v1::AckRecords> {
        if self.retry_at.is_some_and(|at| at > now) {
            return Vec::new();
        }
        self.retry_at = None;
        let mut requests = Vec::new();
        while self.sent.len() < UNDER_WAY_MAX
            && let Some(front) = self.waiting.front()
        {
            let kind = kind_of(front, attachment);
            let (mut taken, mut left) = (Vec::new(), VecDeque::new());
            for said in self.waiting.drain(..) {
                match kind_of(&said, attachment) == kind && taken.len() < RANGES_MAX {
                    true => taken.push(said),
                    false => left.push_back(said),
                }
            }
            self.waiting = left;
            let ranges = join(taken);
            self.next_id += 1;
            requests.push(request(self.next_id, lane, kind, &ranges));
            self.sent.insert(self.next_id, (kind, ranges));
        }
        requests
    }

    /// A receipt came.
    pub(super) fn receipt(&mut self, receipt: v1::AckReceipt, now: Instant) {
        let Some((kind, ranges)) = self.sent.remove(&receipt.ack_id) else {
            return;
        };
        let mut statuses = receipt.statuses.iter();
        for range in ranges {
            let status = statuses.next().copied().unwrap_or_default();
            let status = v1::AckStatus::try_from(status).unwrap_or_default();
            let whole = range.len() == 1;
            for said in range {
                self.decided(said, kind, (status, whole), now);
            }
        }
    }

    fn decided(
        &mut self,
        said: Said,
        kind: Kind,
        (status, whole): (v1::AckStatus, bool),
        now: Instant,
    ) {
        match status {
            v1::AckStatus::Ok => tell(said, Ok(())),
            v1::AckStatus::Retry | v1::AckStatus::Unknown | v1::AckStatus::Unspecified => {
                self.retry_at = Some(now + RETRY_AFTER);
                self.waiting.push_back(said);
            }
            // What was given back is given back, whoever has it now.
            _ if matches!(kind.verdict, Verdict::Return { .. }) => tell(said, Ok(())),
            _ if !whole => self.waiting.push_back(Said {
                alone: true,
                ..said
            }),
            v1::AckStatus::Stale => tell(said, Err(void(Reason::CursorStale))),
            v1::AckStatus::NotOwned | v1::AckStatus::Invalid => {
                tell(said, Err(void(Reason::NotOwned)));
            }
        }
    }

    /// The attachment is gone: what is under way is said again in the next one. What was not acknowledged came back by that.
    pub(super) fn link_lost(&mut self) {
        self.retry_at = None;
        let sent = std::mem::take(&mut self.sent).into_values();
        let again: Vec<Said> = sent.flat_map(|(_, ranges)| ranges).flatten().collect();
        let all = again.into_iter().chain(self.waiting.drain(..));
        let (acks, others): (Vec<Said>, Vec<Said>) =
            all.partition(|said| said.verdict == Verdict::Ack);
        self.waiting = acks.into();
        for said in others {
            let outcome = match said.verdict {
                Verdict::Reject => Err(void(Reason::NotOwned)),
                _ => Ok(()),
            };
            tell(said, outcome);
        }
    }

    /// Nothing more is to come.
    pub(super) fn end(&mut self, error: &Error) {
        let sent = std::mem::take(&mut self.sent).into_values();
        let sent = sent.flat_map(|(_, ranges)| ranges).flatten();
        for said in sent.chain(self.waiting.drain(..)) {
            tell(said, Err(error.clone()));
        }
    }
}

fn kind_of(said: &Said, attachment: u64) -> Kind {
    Kind {
        verdict: said.verdict,
        state_epoch: said.state_epoch,
        before: said.attachment != attachment,
    }
}

/// Neighbours are one range.
fn join(mut all: Vec<Said>) -> Vec<Ranged> {
    all.sort_by_key(|said| said.offset);
    let mut ranges: Vec<Ranged> = Vec::new();
    for said in all {
        match ranges.last_mut() {
            Some(range)
                if !said.alone
                    && range
                        .last()
                        .is_some_and(|last| !last.alone && last.offset + 1 == said.offset) =>
            {
                range.push(said);
            }
            _ => ranges.push(vec![said]),
        }
    }
    ranges
}

fn request(ack_id: u64, lane: u32, kind: Kind, ranges: &[Ranged]) -> v1::AckRecords {
    let span = |range: &Ranged| {
        let first = range.first().map_or(0, |said| said.offset);
        v1::OffsetRange {
            first,
            end: range.last().map_or(first, |said| said.offset + 1),
        }
    };
    let mut request = v1::AckRecords {
        ack_id,
        lane,
        ranges: ranges.iter().map(span).collect(),
        kind: v1::AckKind::Individual as i32,
        want_receipt: true,
        state_epoch: kind.state_epoch,
        before: kind.before && kind.verdict == Verdict::Ack,
        ..v1::AckRecords::default()
    };
    match kind.verdict {
        Verdict::Ack => {}
        Verdict::Reject => request.kind = v1::AckKind::Reject as i32,
        Verdict::Return { failed, delay } => {
            request.kind = v1::AckKind::Return as i32;
            request.failed = failed;
            match delay {
                Delay::Millis(ms) => request.delay_ms = ms,
                Delay::Policy => request.backoff = true,
            }
        }
    }
    request
}

fn tell(said: Said, outcome: Result<(), Error>) {
    // Nobody may wait for it.
    let _ = said.answer.send(outcome);
}

fn void(why: Reason) -> Error {
    let words = match why {
        Reason::CursorStale => {
            "the cursor was moved after the record was handed out; it may be delivered again"
        }
        _ => "the record is not this consumer's any more; it was, or will be, delivered again",
    };
    Fault::new(why, words).into()
}

/// The receipt of an answer, later: then it is durable. Dropping it drops the receipt, not the answer.
#[must_use = "without a look at its receipt nobody knows whether the answer counts"]
pub struct QueueReceipt(pub(super) oneshot::Receiver<Result<(), Error>>);

impl QueueReceipt {
    /// Of what is known already.
    pub(super) fn decided(outcome: Result<(), Error>) -> Self {
        let (answer, receipt) = oneshot::channel();
        // The other end is here.
        let _ = answer.send(outcome);
        Self(receipt)
    }
}

impl Future for QueueReceipt {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(super::shared::closed())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(book: &mut Book, offset: u64, verdict: Verdict) -> QueueReceipt {
        let (answer, receipt) = oneshot::channel();
        book.say(Said {
            offset,
            verdict,
            attachment: 1,
            state_epoch: 0,
            answer,
            alone: false,
        });
        QueueReceipt(receipt)
    }

    fn spans(request: &v1::AckRecords) -> Vec<(u64, u64)> {
        let ranges = request.ranges.iter();
        ranges.map(|range| (range.first, range.end)).collect()
    }

    fn receipt(ack_id: u64, statuses: &[v1::AckStatus]) -> v1::AckReceipt {
        v1::AckReceipt {
            ack_id,
            statuses: statuses.iter().map(|status| *status as i32).collect(),
            ..v1::AckReceipt::default()
        }
    }

    #[tokio::test]
    async fn neighbours_are_one_range_and_are_asked_one_by_one_where_it_is_not_taken() {
        let (mut book, now) = (Book::default(), Instant::now());
        let receipts: Vec<_> = [3, 1, 2, 7]
            .into_iter()
            .map(|offset| say(&mut book, offset, Verdict::Ack))
            .collect();
        let sent = book.send(1, 0, now);
        assert_eq!(spans(&sent[0]), [(1, 4), (7, 8)]);
        book.receipt(
            receipt(1, &[v1::AckStatus::NotOwned, v1::AckStatus::Ok]),
            now,
        );
        let sent = book.send(1, 0, now);
        assert_eq!(spans(&sent[0]), [(1, 2), (2, 3), (3, 4)]);
        let statuses = [
            v1::AckStatus::Ok,
            v1::AckStatus::NotOwned,
            v1::AckStatus::Ok,
        ];
        book.receipt(receipt(2, &statuses), now);
        assert!(book.is_idle());
        let mut outcomes = Vec::new();
        for receipt in receipts {
            outcomes.push(receipt.await.is_ok());
        }
        assert_eq!(outcomes, [true, true, false, true]);
    }

    #[tokio::test]
    async fn acks_are_said_again_after_a_break_as_of_before_and_returns_are_not() {
        let (mut book, now) = (Book::default(), Instant::now());
        let failed = Verdict::Return {
            failed: true,
            delay: Delay::Policy,
        };
        let (acked, returned, rejected) = (
            say(&mut book, 1, Verdict::Ack),
            say(&mut book, 2, failed),
            say(&mut book, 3, Verdict::Reject),
        );
        assert_eq!(book.send(1, 0, now).len(), 3);
        book.link_lost();
        assert!(returned.await.is_ok());
        assert_eq!(rejected.await.unwrap_err().reason(), Some(Reason::NotOwned));
        let sent = book.send(2, 5, now);
        assert_eq!((sent.len(), sent[0].lane, sent[0].before), (1, 5, true));
        book.receipt(receipt(sent[0].ack_id, &[v1::AckStatus::Ok]), now);
        assert!(acked.await.is_ok());
    }

    #[tokio::test]
    async fn answer_that_cannot_be_taken_now_is_said_again_later() {
        let (mut book, now) = (Book::default(), Instant::now());
        let acked = say(&mut book, 1, Verdict::Ack);
        let first = book.send(1, 0, now);
        book.receipt(receipt(first[0].ack_id, &[v1::AckStatus::Retry]), now);
        assert!(book.send(1, 0, now).is_empty());
        let later = book.retry_at().unwrap();
        let again = book.send(1, 0, later);
        book.receipt(receipt(again[0].ack_id, &[v1::AckStatus::Ok]), later);
        assert!(acked.await.is_ok());
    }
}
