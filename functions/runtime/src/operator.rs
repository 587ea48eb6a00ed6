//! What a function is to the runtime: [`EpochOperator`]; and what it is given for one epoch (compute.md B1).

use hulse_proto::time::TimestampMs;

use crate::codec::changelog::Counters;
use crate::codec::snapshot::RowCodecs;
use crate::failure::OperatorError;
use crate::id::{Fingerprint, InputPartition};
use crate::letters::{FuturePolicy, RecordAt, RecordError};
use crate::limits::Limits;
use crate::record::{Fetched, InputRecord, OutputRecord};
use crate::state::{StateTxn, within};
use crate::watermark::{TimePolicy, Watermarks};

/// The body of a function: SQL, WASM and native ones alike.
///
/// It is deterministic: what it does follows from the state, the records and the epoch's time. It keeps nothing of an epoch outside
/// the [`StateTxn`], because an epoch may be dropped at any point, tried again with fewer records, or taken over by another worker.
/// It does no I/O and computes on the caller's thread.
pub trait EpochOperator: Send {
    /// Of kinds, schemas and windows; see [`Fingerprint`].
    fn fingerprint(&self) -> Fingerprint;

    /// Codecs of its tables; as many tables as there are codecs.
    fn codecs(&self) -> RowCodecs;

    /// Takes the records of an epoch. Tells the emitter the event time of each, which of them are late by
    /// [`EpochInput::watermark`], and which cannot be computed.
    ///
    /// # Errors
    /// `OverLimit` as state and emitter return it; `Failed` when no record may pass any more. A bad record is no error here.
    fn process(
        &mut self,
        input: &EpochInput<'_>,
        state: &mut StateTxn<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<(), OperatorError>;

    /// The watermark is here now: fires what it closes, in the order of (end, key), and forgets it. Also called when the watermark
    /// stayed where it was.
    ///
    /// # Errors
    /// As [`EpochOperator::process`].
    fn on_watermark(
        &mut self,
        watermark: TimestampMs,
        state: &mut StateTxn<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<(), OperatorError>;

    /// The watermark that would close all that is open; none if nothing is. Asked when every input is idle.
    fn open_until(&self, state: &StateTxn<'_>) -> Option<TimestampMs>;
}

/// The records of one epoch.
#[derive(Debug, Clone, Copy)]
pub struct EpochInput<'a> {
    /// What the epoch calls now.
    pub now: TimestampMs,
    /// The committed watermark: lateness is judged by it, and by nothing newer (B4.3).
    pub watermark: TimestampMs,
    /// By partition.
    pub fetched: &'a [Fetched],
}

impl<'a> EpochInput<'a> {
    /// Every record with its partition, partition by partition.
    pub fn records(&self) -> impl Iterator<Item = (InputPartition, &'a InputRecord)> {
        let with_partition = |one: &'a Fetched| {
            let partition = one.partition;
            one.records.iter().map(move |record| (partition, record))
        };
        self.fetched.iter().flat_map(with_partition)
    }
}

/// Takes what an operator has to say about one epoch. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Emitter<'a> {
    pub(crate) outputs: Vec<OutputRecord>,
    pub(crate) late: Vec<RecordAt>,
    pub(crate) errors: Vec<RecordError>,
    pub(crate) counters: Counters,
    watermarks: &'a mut Watermarks,
    time: (&'a TimePolicy, FuturePolicy),
    output_bytes: usize,
    output_bytes_max: usize,
}

impl<'a> Emitter<'a> {
    /// One for an epoch; times that it is told move `watermarks`, but not the task's.
    pub fn new(
        watermarks: &'a mut Watermarks,
        time: (&'a TimePolicy, FuturePolicy),
        counters: Counters,
        limits: &Limits,
    ) -> Self {
        Self {
            outputs: Vec::new(),
            late: Vec::new(),
            errors: Vec::new(),
            counters,
            watermarks,
            time,
            output_bytes: 0,
            output_bytes_max: limits.epoch_output_bytes_max,
        }
    }

    /// Tells the event time of a record; false: leave the record out.
    pub fn observe(
        &mut self,
        at: RecordAt,
        event_time: TimestampMs,
        append_time: TimestampMs,
    ) -> bool {
        let (policy, future) = self.time;
        if self
            .watermarks
            .observe(at.partition, event_time, append_time, policy)
        {
            return true;
        }
        self.counters.future += 1;
        if future == FuturePolicy::DeadLetter {
            self.errors.push(RecordError {
                at,
                kind: "future_time",
                message: format!(
                    "event time {event_time} ms is too far beyond append time {append_time} ms"
                ),
                letter: true,
            });
        }
        future == FuturePolicy::Keep
    }

    /// Writes a record.
    ///
    /// # Errors
    /// `OverLimit` when the epoch would write more than `epoch_output_bytes_max`.
    pub fn emit(&mut self, record: OutputRecord) -> Result<(), OperatorError> {
        let bytes = self.output_bytes + record.size();
        within("epoch_output_bytes_max", bytes, self.output_bytes_max)?;
        self.output_bytes = bytes;
        self.outputs.push(record);
        Ok(())
    }

    /// A record is late: every window of it is closed.
    pub fn late(&mut self, at: RecordAt) {
        self.counters.late += 1;
        self.late.push(at);
    }

    /// A record cannot be decoded or computed; the function's policy says what becomes of it.
    pub fn fail(&mut self, at: RecordAt, kind: &'static str, message: String) {
        self.errors.push(RecordError {
            at,
            kind,
            message,
            letter: false,
        });
    }
}
