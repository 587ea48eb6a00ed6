//! Computes one epoch: steps 2 to 7 of compute.md B4, without the transaction.

use std::collections::BTreeMap;

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use crate::codec::CodecError;
use crate::codec::changelog::{ChangelogRecord, DELTA_HEAD_BYTES, Delta, Meta};
use crate::codec::frame::FRAME_BYTES;
use crate::codec::snapshot::RowCodecs;
use crate::failure::{OperatorError, TaskFailure};
use crate::id::{Fingerprint, InputPartition};
use crate::letters::{ErrorPolicy, FuturePolicy, LatePolicy, Sender, late, settle};
use crate::limits::Limits;
use crate::mutant::{Mutant, Mutation};
use crate::operator::{Emitter, EpochInput, EpochOperator};
use crate::record::{Fetched, OutputRecord};
use crate::state::{RowChange, State, StateDelta, StateTxn, TableDelta};
use crate::watermark::{TimePolicy, Watermarks};

/// What a function was deployed with.
#[derive(Debug, Clone, Default)]
pub struct FunctionConfig {
    /// Its name.
    pub function: String,
    /// Names of its input topics, by number.
    pub inputs: Vec<String>,
    /// How it reads event time.
    pub time: TimePolicy,
    /// What becomes of records that fail.
    pub on_error: ErrorPolicy,
    /// What becomes of late records.
    pub on_late: LatePolicy,
    /// What becomes of records from the future.
    pub on_future: FuturePolicy,
    /// Its bounds.
    pub limits: Limits,
}

/// One micro-batch, computed and not yet committed: the content of one transaction. Named as in ARCHITECTURE §4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionEpoch {
    /// For outputs, dead letters and late records.
    pub outputs: Vec<OutputRecord>,
    /// Deltas for the changelog, encoded; the meta goes behind them.
    pub deltas: Vec<Bytes>,
    /// What they hold: folded into the state on commit.
    pub delta: StateDelta,
    /// As of the end of this epoch.
    pub meta: Meta,
}

/// Where an epoch begins.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// State after the last committed epoch.
    pub state: &'a State,
    /// The last committed epoch.
    pub meta: &'a Meta,
    /// Watermarks of its partitions with who is idle now.
    pub watermarks: &'a Watermarks,
}

/// Computes an epoch over what was fetched. None: nothing happened that would need a transaction (B4.6).
///
/// Where the epoch would break a limit, it is computed again with half of the records, down to one; `fetched` is then what it took.
///
/// # Errors
/// [`TaskFailure`]: the function cannot go on with these records.
pub fn compute(
    config: &FunctionConfig,
    operator: &mut dyn EpochOperator,
    base: Base<'_>,
    fetched: &mut [Fetched],
    now: TimestampMs,
    mutation: Mutation,
) -> Result<Option<FunctionEpoch>, TaskFailure> {
    loop {
        match attempt(config, operator, base, fetched, now, mutation) {
            Err(TaskFailure::Operator(OperatorError::OverLimit { .. })) if rows(fetched) > 1 => {
                keep_rows(fetched, rows(fetched) / 2);
            }
            other => return other,
        }
    }
}

fn rows(fetched: &[Fetched]) -> usize {
    fetched.iter().map(|one| one.records.len()).sum()
}

/// Cuts what was fetched to its first records, an equal share of each partition, and at least one in all.
fn keep_rows(fetched: &mut [Fetched], rows: usize) {
    let share = (rows / fetched.len().max(1)).max(1);
    let mut left = rows.max(1);
    for one in fetched.iter_mut() {
        let kept = one.records.len().min(share).min(left);
        left -= kept;
        if let Some(first) = one.records.get(kept) {
            one.next = first.offset;
            one.records.truncate(kept);
        }
    }
}

fn attempt(
    config: &FunctionConfig,
    operator: &mut dyn EpochOperator,
    base: Base<'_>,
    fetched: &[Fetched],
    now: TimestampMs,
    mutation: Mutation,
) -> Result<Option<FunctionEpoch>, TaskFailure> {
    let mut watermarks = base.watermarks.clone();
    let mut state = StateTxn::new(base.state, &config.limits);
    let time = (&config.time, config.on_future);
    let mut out = Emitter::new(&mut watermarks, time, base.meta.counters, &config.limits);
    let mut input = EpochInput {
        now,
        watermark: base.meta.watermarks.stage,
        fetched,
    };
    if mutation.is(Mutant::LateByNewWatermark) {
        input.watermark = newest(config, operator, base, input)?;
    }
    operator.process(&input, &mut state, &mut out)?;
    let open_until = operator.open_until(&state);
    let Emitter {
        outputs,
        late,
        errors,
        counters,
        ..
    } = out;
    let watermark = watermarks.advance(open_until, &config.time, mutation);
    let mut scratch = watermarks.clone();
    let mut out = Emitter::new(&mut scratch, time, counters, &config.limits);
    for record in outputs {
        out.emit(record)?;
    }
    operator.on_watermark(watermark, &mut state, &mut out)?;
    let told = Told {
        outputs: out.outputs,
        late,
        errors: [errors, out.errors].concat(),
        counters: out.counters,
    };
    let delta = state.into_delta();
    let still = watermark == base.meta.watermarks.stage && delta.is_empty();
    if rows(fetched) == 0 && still && told.outputs.is_empty() {
        return Ok(None);
    }
    let meta = next_meta(base.meta, watermarks, fetched, now);
    conclude(config, operator, told, (delta, meta), fetched).map(Some)
}

/// The watermark that an epoch will produce.
fn newest(
    config: &FunctionConfig,
    operator: &mut dyn EpochOperator,
    base: Base<'_>,
    input: EpochInput<'_>,
) -> Result<TimestampMs, TaskFailure> {
    let mut watermarks = base.watermarks.clone();
    let mut state = StateTxn::new(base.state, &config.limits);
    let time = (&config.time, config.on_future);
    let mut out = Emitter::new(&mut watermarks, time, base.meta.counters, &config.limits);
    operator.process(&input, &mut state, &mut out)?;
    Ok(watermarks.advance(None, &config.time, Mutation::default()))
}

/// What the operator told of an epoch.
struct Told {
    outputs: Vec<OutputRecord>,
    late: Vec<crate::letters::RecordAt>,
    errors: Vec<crate::letters::RecordError>,
    counters: crate::codec::changelog::Counters,
}

fn next_meta(before: &Meta, watermarks: Watermarks, fetched: &[Fetched], now: TimestampMs) -> Meta {
    let mut offsets: BTreeMap<InputPartition, u64> = before.offsets.clone();
    for one in fetched {
        let next = offsets.entry(one.partition).or_insert(one.next);
        *next = one.next.max(*next);
    }
    Meta {
        epoch: before.epoch + 1,
        epoch_time: now,
        deltas: 0,
        offsets,
        watermarks,
        counters: before.counters,
    }
}

/// Applies the policies and encodes what goes into the changelog.
fn conclude(
    config: &FunctionConfig,
    operator: &dyn EpochOperator,
    told: Told,
    (delta, mut meta): (StateDelta, Meta),
    fetched: &[Fetched],
) -> Result<FunctionEpoch, TaskFailure> {
    let mut counters = told.counters;
    counters.rows += rows(fetched) as u64;
    let sender = Sender {
        function: &config.function,
        inputs: &config.inputs,
    };
    let policy = (config.on_error, config.limits.error_permille_max);
    let letters = settle(&told.errors, fetched, policy, sender, &mut counters)?;
    let mut outputs = told.outputs;
    outputs.extend(letters);
    if config.on_late == LatePolicy::Topic {
        outputs.extend(late(&told.late, fetched, sender));
    }
    let (codecs, fingerprint) = (operator.codecs(), operator.fingerprint());
    let record_max = config.limits.changelog_record_bytes_max;
    let deltas = encode_deltas(&delta, meta.epoch, &codecs, (fingerprint, record_max))?;
    meta.deltas = u32::try_from(deltas.len()).map_err(|_| CodecError::TooLong {
        bytes: deltas.len(),
    })?;
    meta.counters = counters;
    Ok(FunctionEpoch {
        outputs,
        deltas,
        delta,
        meta,
    })
}

/// Encodes the changes of an epoch, in records below a length.
fn encode_deltas(
    delta: &StateDelta,
    epoch: u64,
    codecs: &RowCodecs,
    (fingerprint, record_max): (Fingerprint, usize),
) -> Result<Vec<Bytes>, TaskFailure> {
    let mut records = Vec::new();
    for (table, (rows, codec)) in (0u16..).zip(delta.tables.iter().zip(codecs)) {
        let rows: Vec<RowChange> = as_rows(rows);
        let mut parts = vec![&rows[..]];
        // Halves are taken until each fits: the codec alone knows how long rows become.
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            let encoded = codec.encode(part)?;
            if encoded.len() + FRAME_BYTES + DELTA_HEAD_BYTES > record_max && part.len() > 1 {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
                continue;
            }
            if encoded.len() + FRAME_BYTES + DELTA_HEAD_BYTES > record_max {
                return Err(TaskFailure::Operator(OperatorError::Failed {
                    message: format!(
                        "one row of state has {} bytes, more than changelog_record_bytes_max = {record_max}",
                        encoded.len()
                    ),
                }));
            }
            let delta = Delta {
                epoch,
                table,
                chunk: records.len() as u32,
                rows: encoded,
            };
            records.push(ChangelogRecord::Delta(delta).encode(fingerprint)?);
        }
    }
    Ok(records)
}

fn as_rows(table: &TableDelta) -> Vec<RowChange> {
    let rows = table.iter();
    rows.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
