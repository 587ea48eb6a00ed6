//! What acks and seeks are answered with.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::v1::{self, consume_down};
use serving_dispatch::{Delay, Verdict};

use super::session::Bond;
use crate::listener::front::Front;
use crate::listener::wire::invalid;
use crate::partition::{Moved, Said, ShareTie, Tie};
use crate::state::OffsetRange;
use crate::{AckKind, AckStatus, Acked, StartPoint};

/// Ranges of one ack.
pub(super) const ACK_RANGES_MAX: usize = 10_000;

/// Something that was asked for is done.
pub(super) struct Done {
    pub(super) lane: u32,
    /// Which opening of this lane number.
    pub(super) opening: u64,
    pub(super) what: What,
    /// [`weight`] of the ack.
    pub(super) weight: usize,
    pub(super) item: Option<consume_down::Item>,
}

/// What it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Ack,
    Seek,
}

/// What is kept of an ack until its receipt, in ranges: a byte for each, and the rest.
pub(super) fn weight(request: &v1::AckRecords) -> usize {
    request.ranges.len() + 256
}

/// What a receipt needs of its ack; the ranges are the owner's.
struct Awaited {
    ack_id: u64,
    lane: u32,
    ranges: usize,
    want_receipt: bool,
}

/// An ack, or another answer, on its way.
pub(super) fn ack(
    bond: &Bond,
    opening: u64,
    request: v1::AckRecords,
) -> Result<BoxFuture<'static, Done>, Box<consume_down::Item>> {
    if request.ranges.len() > ACK_RANGES_MAX {
        let fault = invalid(format!("the ack has more than {ACK_RANGES_MAX} ranges"));
        return Err(Box::new(refused(&request, v1::AckStatus::Invalid, &fault)));
    }
    let ranges = request.ranges.iter().map(|range| OffsetRange {
        first: Offset(range.first),
        end: Offset(range.end),
    });
    let asked = match bond {
        Bond::Single(tie) => single(tie, &request, ranges.collect()),
        Bond::Sharing(own) => sharing(own.tie(), &request, ranges.collect()),
    };
    let acking = match asked {
        Ok(acking) => acking,
        Err(fault) => return Err(Box::new(refused(&request, v1::AckStatus::Invalid, &fault))),
    };
    let weight = weight(&request);
    let awaited = Awaited {
        ack_id: request.ack_id,
        lane: request.lane,
        ranges: request.ranges.len(),
        want_receipt: request.want_receipt,
    };
    drop(request);
    let done = async move {
        let item = receipt(&awaited, acking.await);
        Done {
            lane: awaited.lane,
            opening,
            what: What::Ack,
            weight,
            item,
        }
    };
    Ok(done.boxed())
}

type Acking = BoxFuture<'static, Result<Acked, Fault>>;

fn single(tie: &Tie, request: &v1::AckRecords, ranges: Vec<OffsetRange>) -> Result<Acking, Fault> {
    let kind = match request.kind() {
        v1::AckKind::Individual => AckKind::Individual,
        v1::AckKind::Cumulative => AckKind::Cumulative,
        _ => return Err(invalid("the ack is neither individual nor cumulative")),
    };
    Ok(tie.ack(request.state_epoch, kind, ranges).boxed())
}

fn sharing(
    tie: &ShareTie,
    request: &v1::AckRecords,
    ranges: Vec<OffsetRange>,
) -> Result<Acking, Fault> {
    if named_again(ranges.clone()) > ACK_RANGES_MAX as u64 {
        return Err(invalid(format!(
            "the ranges overlap by more than {ACK_RANGES_MAX} records; say it once of each"
        )));
    }
    let delay = match request.delay_ms {
        _ if request.backoff => Delay::Policy,
        0 => Delay::None,
        ms => Delay::For(ms.into()),
    };
    let verdict = match request.kind() {
        v1::AckKind::Individual => Verdict::Ack,
        v1::AckKind::Return => Verdict::Nack {
            failed: request.failed,
            delay,
        },
        v1::AckKind::Reject => Verdict::Reject,
        v1::AckKind::Renew => Verdict::Renew,
        v1::AckKind::Cumulative => {
            let words = "records of this subscription are acked one by one; there is no order of which a part could be acked";
            return Err(invalid(words));
        }
        v1::AckKind::Unspecified => return Err(invalid("the answer is of no kind")),
    };
    let said = Said {
        state_epoch: request.state_epoch,
        ranges,
        verdict,
        before: request.before,
    };
    Ok(tie.say(said).boxed())
}

/// How many offsets the ranges name that one before them named already, each time. The owner looks at every record of every range: many
/// wide ones of the same records would keep the partition from all others.
fn named_again(mut ranges: Vec<OffsetRange>) -> u64 {
    ranges.sort_unstable_by_key(|range| range.first);
    let (mut again, mut end) = (0u64, 0);
    for range in ranges {
        again = again.saturating_add(range.end.0.min(end).saturating_sub(range.first.0));
        end = end.max(range.end.0);
    }
    again
}

fn receipt(awaited: &Awaited, result: Result<Acked, Fault>) -> Option<consume_down::Item> {
    let acked = match result {
        Ok(acked) => acked,
        Err(fault) => {
            let status = match fault.fate {
                Fate::NotApplied => v1::AckStatus::Retry,
                Fate::Unknown => v1::AckStatus::Unknown,
            };
            return Some(nothing_taken(awaited, status, &fault));
        }
    };
    let all_ok = acked.statuses.iter().all(|status| *status == AckStatus::Ok);
    if all_ok && !awaited.want_receipt {
        return None;
    }
    let crowded = acked.statuses.contains(&AckStatus::Retry);
    let fault = crowded.then(|| {
        let words = "the cursor has too many acked ranges; ack the records between them first";
        Fault::new(Reason::Overloaded, words).to_wire()
    });
    let statuses = acked.statuses.iter().map(|status| {
        let status = match status {
            AckStatus::Ok => v1::AckStatus::Ok,
            AckStatus::Stale => v1::AckStatus::Stale,
            AckStatus::NotOwned => v1::AckStatus::NotOwned,
            AckStatus::Invalid => v1::AckStatus::Invalid,
            AckStatus::Retry => v1::AckStatus::Retry,
        };
        status as i32
    });
    Some(consume_down::Item::Receipt(v1::AckReceipt {
        ack_id: awaited.ack_id,
        lane: awaited.lane,
        statuses: statuses.collect(),
        fault,
    }))
}

/// The receipt of an ack of which nothing was taken.
pub(super) fn refused(
    request: &v1::AckRecords,
    status: v1::AckStatus,
    fault: &Fault,
) -> consume_down::Item {
    let awaited = Awaited {
        ack_id: request.ack_id,
        lane: request.lane,
        ranges: request.ranges.len(),
        want_receipt: true,
    };
    nothing_taken(&awaited, status, fault)
}

fn nothing_taken(awaited: &Awaited, status: v1::AckStatus, fault: &Fault) -> consume_down::Item {
    consume_down::Item::Receipt(v1::AckReceipt {
        ack_id: awaited.ack_id,
        lane: awaited.lane,
        statuses: vec![status as i32; awaited.ranges],
        fault: Some(fault.to_wire()),
    })
}

/// A seek on its way; the lane says when it is done, this only when it is refused.
pub(super) fn seek(
    front: Arc<Front>,
    bond: Bond,
    opening: u64,
    request: v1::SeekLane,
) -> BoxFuture<'static, Done> {
    let v1::SeekLane { lane, seek_id, to } = request;
    async move {
        let moved = async {
            if to.is_none() {
                return Err(invalid("the seek names no place"));
            }
            let point = StartPoint::from_wire(to.as_ref())?;
            match &bond {
                Bond::Single(tie) => {
                    let offset = front.resolve(tie.partition(), point).await?;
                    // The lane says it.
                    tie.seek(offset, seek_id).await.map(|_| None)
                }
                Bond::Sharing(own) => {
                    let offset = front.resolve(own.tie().partition(), point).await?;
                    let moved = own.tie().seek(offset).await?;
                    Ok(Some(sought(lane, seek_id, moved)))
                }
            }
        };
        let item = match moved.await {
            Ok(item) => item,
            Err(fault) => Some(seek_refused(lane, seek_id, &fault)),
        };
        Done {
            lane,
            opening,
            what: What::Seek,
            weight: 0,
            item,
        }
    }
    .boxed()
}

/// The answer to a seek of one who shares; all who share hear of it besides.
fn sought(lane: u32, seek_id: u64, moved: Moved) -> consume_down::Item {
    consume_down::Item::SeekDone(v1::SeekDone {
        lane,
        seek_id,
        state_epoch: moved.state_epoch,
        base: moved.new_base.0,
        ..Default::default()
    })
}

/// The answer to a seek that moved nothing.
pub(super) fn seek_refused(lane: u32, seek_id: u64, fault: &Fault) -> consume_down::Item {
    consume_down::Item::SeekDone(v1::SeekDone {
        lane,
        seek_id,
        fault: Some(fault.to_wire()),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(ranges: &[(u64, u64)]) -> u64 {
        let ranges = ranges.iter();
        named_again(ranges.map(|it| OffsetRange::new(it.0, it.1)).collect())
    }

    #[test]
    fn offsets_that_are_named_again_are_counted_each_time() {
        assert_eq!(again(&[]), 0);
        assert_eq!(again(&[(5, 9), (0, 5), (9, 10)]), 0);
        assert_eq!(again(&[(0, 10), (0, 10), (5, 12), (11, 20)]), 16);
        assert_eq!(again(&[(7, 3), (4, 4), (0, 2)]), 0, "they name nothing");
        assert_eq!(
            again(&[(0, u64::MAX), (0, u64::MAX), (0, u64::MAX)]),
            u64::MAX
        );
    }
}
