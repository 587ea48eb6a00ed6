//! The words of the lane's core: what it carries, what it hears, what it says.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::ProducerStamp;
use hulse_proto::error::Fault;
use hulse_proto::id::Offset;
use tokio::time::Instant;

use crate::error::Error;

/// What the core carries.
pub(crate) trait Payload {
    /// Names the batch where it is settled.
    type Tag: Clone;
    fn tag(&self) -> Self::Tag;
    fn records(&self) -> u32;
    /// Writes who sends it. Never called on a batch that may be stored.
    fn stamp(&mut self, stamp: ProducerStamp);
    fn bytes(&self) -> Bytes;
}

/// Where a batch was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// `None`: the broker does not say (acks none).
    pub(crate) base_offset: Option<Offset>,
    pub(crate) append_time: i64,
    pub(crate) duplicate: bool,
}

/// Why a batch was not stored, as far as is known.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    pub(crate) possibly_written: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Cause {
    Refused(Fault),
    /// The delivery time is over.
    TimedOut,
    /// The lane's epoch cannot grow any more.
    EpochsUsedUp,
    /// The lane or the whole producer ended.
    Failed(Error),
}

#[derive(Debug)]
pub(crate) enum Event {
    /// A lane was opened for [`super::core::LaneCore::identity`].
    Opened {
        /// Under which the owner serves.
        leader_epoch: u32,
        last_epoch: i32,
        last_sequence: i32,
        batches_in_flight_max: usize,
    },
    LinkLost,
    Acked {
        seq: u64,
        stored: Stored,
    },
    Nacked {
        seq: u64,
        fault: Fault,
    },
    /// The wait that [`Effect::Wait`] asked for is over.
    RetryDue,
    /// Time passed.
    Tick(Instant),
    /// What is under way is given up, later batches begin anew: the topic is gone, or the producer ends.
    Restart(Cause),
    /// As [`Event::Restart`]: the topic is another one of the same name, whose leader epochs begin anew.
    Recreated(Cause),
}

#[derive(Debug)]
pub(crate) enum Effect<T> {
    Send {
        seq: u64,
        batch: Bytes,
    },
    Resume {
        from_seq: u64,
    },
    Settle {
        tag: T,
        result: Result<Stored, Failure>,
    },
    /// Answer [`Event::RetryDue`] after a back-off, not before `at_least`.
    Wait {
        at_least: Option<Duration>,
    },
    /// Leave this lane and open another, for the epoch of now; ask where the partition is when `resolve`.
    Reopen {
        resolve: bool,
        after: Option<Duration>,
    },
    /// The lane is finished: `producer` when the whole producer is.
    Stop {
        failure: Failure,
        producer: bool,
    },
    /// The peer breaks the protocol: end the session.
    Violation(&'static str),
}

/// What may be offered now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Nothing is under way: whatever there is.
    Any,
    /// Something is under way: only a batch that can grow no more.
    FullBatch,
    None,
}
