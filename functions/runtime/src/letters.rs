//! What becomes of records that fail, and of late ones (compute.md B7, B10).

use bytes::Bytes;

use crate::codec::changelog::Counters;
use crate::failure::TaskFailure;
use crate::id::InputPartition;
use crate::record::{Destination, Fetched, InputRecord, OutputRecord};

/// What becomes of a record that cannot be decoded or computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorPolicy {
    /// The function fails.
    #[default]
    Fail,
    /// It is counted and left out.
    Skip,
    /// It goes to the topic of dead letters with the cause, in the transaction of its epoch.
    DeadLetter,
}

/// What becomes of a record all of whose windows are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LatePolicy {
    /// It is counted and left out.
    #[default]
    Drop,
    /// It goes to the topic of late records, in the transaction of its epoch.
    Topic,
}

/// What becomes of a record whose event time lies too far in the future. It moves no watermark in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FuturePolicy {
    /// It is counted and left out.
    #[default]
    Drop,
    /// It goes to the topic of dead letters.
    DeadLetter,
    /// It is computed as if its time were right.
    Keep,
}

/// A record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordAt {
    /// In this partition.
    pub partition: InputPartition,
    /// There.
    pub offset: u64,
}

/// A record that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// Which.
    pub at: RecordAt,
    /// A word for the kind: `decode`, `evaluate`, `future_time`, ..
    pub kind: &'static str,
    /// What and why.
    pub message: String,
    /// It goes to the dead letters whatever the policy is.
    pub letter: bool,
}

/// Longest message in a header, bytes; the rest is cut.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Who a letter is from.
#[derive(Debug, Clone, Copy)]
pub struct Sender<'a> {
    /// Name of the function.
    pub function: &'a str,
    /// Names of its input topics, by number.
    pub inputs: &'a [String],
}

/// Applies the policy to the records of an epoch that failed, and counts them.
///
/// # Errors
/// `Record` under `Fail`; `TooManyErrors` when more than `permille_max` of the epoch's records failed.
pub fn settle(
    errors: &[RecordError],
    fetched: &[Fetched],
    policy: (ErrorPolicy, usize),
    sender: Sender<'_>,
    counters: &mut Counters,
) -> Result<Vec<OutputRecord>, TaskFailure> {
    let (policy, permille_max) = policy;
    let judged: Vec<_> = errors.iter().filter(|error| !error.letter).collect();
    if let (ErrorPolicy::Fail, Some(first)) = (policy, judged.first()) {
        return Err(TaskFailure::Record {
            partition: first.at.partition,
            offset: first.at.offset,
            kind: first.kind,
            message: first.message.clone(),
        });
    }
    let rows: usize = fetched.iter().map(|one| one.records.len()).sum();
    let most = (rows * permille_max / 1000).max(1);
    if let (true, Some(first)) = (judged.len() > most, judged.first()) {
        return Err(TaskFailure::TooManyErrors {
            failed: judged.len(),
            rows,
            first: first.message.clone(),
        });
    }
    let mut letters = Vec::new();
    for error in errors {
        if !error.letter && policy == ErrorPolicy::Skip {
            counters.skipped += 1;
        } else if let Some(record) = find(fetched, error.at) {
            counters.dead += 1;
            letters.push(letter(record, error, sender));
        }
    }
    Ok(letters)
}

/// Late records as they go to their topic.
pub fn late(late: &[RecordAt], fetched: &[Fetched], sender: Sender<'_>) -> Vec<OutputRecord> {
    let found = late.iter().filter_map(|at| Some((at, find(fetched, *at)?)));
    let letters = found.map(|(at, record)| {
        let error = RecordError {
            at: *at,
            kind: "late",
            message: "every window of the record is closed".to_owned(),
            letter: true,
        };
        OutputRecord {
            destination: Destination::Late,
            ..letter(record, &error, sender)
        }
    });
    letters.collect()
}

/// A record that was read in this epoch.
fn find(fetched: &[Fetched], at: RecordAt) -> Option<&InputRecord> {
    let of_partition = fetched.iter().filter(|one| one.partition == at.partition);
    of_partition
        .filter_map(|one| {
            let found = one
                .records
                .binary_search_by_key(&at.offset, |record| record.offset);
            found.ok().map(|index| &one.records[index])
        })
        .next()
}

fn letter(record: &InputRecord, error: &RecordError, sender: Sender<'_>) -> OutputRecord {
    let topic = sender.inputs.get(usize::from(error.at.partition.input));
    let mut end = error.message.len().min(MESSAGE_BYTES_MAX);
    while !error.message.is_char_boundary(end) {
        end -= 1;
    }
    let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let mut headers = record.headers.clone();
    headers.extend([
        ("x-error-kind".to_owned(), text(error.kind)),
        ("x-error-message".to_owned(), text(&error.message[..end])),
        (
            "x-error-topic".to_owned(),
            topic.and_then(|topic| text(topic)),
        ),
        (
            "x-error-partition".to_owned(),
            text(&error.at.partition.partition.to_string()),
        ),
        (
            "x-error-offset".to_owned(),
            text(&error.at.offset.to_string()),
        ),
        ("x-error-job".to_owned(), text(sender.function)),
    ]);
    OutputRecord {
        destination: Destination::DeadLetter,
        timestamp: record.timestamp,
        key: record.key.clone(),
        value: record.value.clone(),
        headers,
    }
}
