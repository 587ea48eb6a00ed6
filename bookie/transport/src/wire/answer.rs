//! Answers of the stream.

use bytes::Bytes;
use hulse_proto::bookie::{BookieError, EntryHead, FenceAnswer, Inventory, StoredEntry};
use hulse_proto::id::{EntryId, FenceToken};
use hulse_proto::limits::PROTOCOL_VERSION;
use hulse_proto::wire::bookie as wire;
use hulse_proto::wire::bookie::answer::What;

use super::Malformed;
use super::fault::{decode_fault, encode_fault};
use super::held::{decode_held, encode_held};
use super::pieces::{push_head, push_stored};

/// A run is sent when it has so many bytes; one entry may be longer.
const RUN_BYTES: usize = 256 << 10;
/// Or so many pieces. With those of one more entry it stays below what a message may have.
const RUN_PIECES: usize = 512;

/// Entries or heads, or a part of them, as pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The rest follows.
    pub more: bool,
    /// To be decoded by who knows which of the two was asked for.
    pub pieces: Vec<Bytes>,
}

/// Why a bookie opens no stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It speaks another version of the protocol.
    #[error("it speaks version {found} of the protocol, we speak {PROTOCOL_VERSION}")]
    Version {
        /// The bookie's.
        found: u32,
    },
    /// Another bookie has the address now.
    #[error("bookie {found:?} listens there")]
    OtherBookie {
        /// Its name.
        found: String,
    },
}

/// What an answer of the stream says.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The stream is open.
    Opened,
    /// It is not, and ends.
    Refused(Refusal),
    /// An add or a deletion is done.
    Done,
    /// A fence stands.
    Fenced(FenceAnswer),
    /// A recovery read found nothing.
    Negative {
        /// As `RecoveryReadAnswer::Negative`.
        unsynced_limbo: bool,
    },
    /// What was read.
    Run(Run),
    /// What is held.
    Held(Inventory),
    /// Not done as asked.
    Fault(BookieError),
}

/// The message of an answer to a call; number 0 for the first two kinds.
pub fn encode_answer(number: u64, answer: Answer) -> wire::Answer {
    let mut pieces = Vec::new();
    let what = match answer {
        Answer::Opened => What::Opened(wire::Opened {}),
        Answer::Refused(refusal) => What::Refused(encode_refusal(refusal)),
        Answer::Done => What::Done(wire::Done {}),
        Answer::Fenced(fenced) => What::Fenced(wire::Fenced {
            token: fenced.token.0,
            confirmed_end: fenced.confirmed_end.0,
            held_end: fenced.held_end.0,
        }),
        Answer::Negative { unsynced_limbo } => What::Negative(wire::Negative { unsynced_limbo }),
        Answer::Run(run) => {
            pieces = run.pieces;
            What::Run(wire::Run { more: run.more })
        }
        Answer::Held(held) => What::Held(encode_held(&held)),
        Answer::Fault(error) => What::Fault(encode_fault(&error)),
    };
    wire::Answer {
        call: number,
        what: Some(what),
        pieces,
    }
}

fn encode_refusal(refusal: Refusal) -> wire::Refused {
    let refused = wire::Refused::default();
    match refusal {
        Refusal::Version { found } => wire::Refused {
            kind: wire::refused::Kind::ProtocolVersion as i32,
            protocol_version: found,
            ..refused
        },
        Refusal::OtherBookie { found } => wire::Refused {
            kind: wire::refused::Kind::OtherBookie as i32,
            bookie: found,
            ..refused
        },
    }
}

/// Reads an answer.
///
/// # Errors
/// [`Malformed`] when it is none.
pub fn decode_answer(answer: wire::Answer) -> Result<(u64, Answer), Malformed> {
    let what = answer.what;
    let what = what.ok_or_else(|| Malformed::new("an answer that this version does not know"))?;
    let opening = matches!(what, What::Opened(_) | What::Refused(_));
    if opening != (answer.call == 0) {
        return Err(Malformed::new(format!("an answer to call {}", answer.call)));
    }
    let decoded = match what {
        What::Opened(_) => Answer::Opened,
        What::Refused(refused) => Answer::Refused(decode_refusal(refused)?),
        What::Done(_) => Answer::Done,
        What::Fenced(fenced) => Answer::Fenced(FenceAnswer {
            token: FenceToken(fenced.token),
            confirmed_end: EntryId(fenced.confirmed_end),
            held_end: EntryId(fenced.held_end),
        }),
        What::Negative(negative) => Answer::Negative {
            unsynced_limbo: negative.unsynced_limbo,
        },
        What::Run(run) => Answer::Run(Run {
            more: run.more,
            pieces: answer.pieces,
        }),
        What::Held(held) => Answer::Held(decode_held(&held)?),
        What::Fault(fault) => Answer::Fault(decode_fault(&fault)?),
    };
    Ok((answer.call, decoded))
}

fn decode_refusal(refused: wire::Refused) -> Result<Refusal, Malformed> {
    match refused.kind() {
        wire::refused::Kind::ProtocolVersion => Ok(Refusal::Version {
            found: refused.protocol_version,
        }),
        wire::refused::Kind::OtherBookie => Ok(Refusal::OtherBookie {
            found: refused.bookie,
        }),
        wire::refused::Kind::Unspecified => Err(Malformed::new("a refusal that is not known")),
    }
}

/// What was read, in as many runs as it needs; at least one. Ends after about `max_bytes`, for what a node counts may be less than what
/// its answer takes.
pub fn encode_entries(entries: &[StoredEntry], max_bytes: u32) -> Vec<Run> {
    runs(entries, max_bytes, push_stored)
}

/// As [`encode_entries`].
pub fn encode_heads(heads: &[EntryHead], max_bytes: u32) -> Vec<Run> {
    runs(heads, max_bytes, push_head)
}

fn runs<T>(items: &[T], max_bytes: u32, push: impl Fn(&T, &mut Vec<Bytes>) -> usize) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut run = Run {
        more: true,
        pieces: Vec::new(),
    };
    let mut bytes = 0;
    let mut all = 0;
    for item in items {
        if all > 0 && all >= max_bytes as usize {
            break;
        }
        // Looked at before: an entry of the largest size stands alone in its message.
        let mut pieces = Vec::new();
        let length = push(item, &mut pieces);
        let full = bytes + length > RUN_BYTES || run.pieces.len() >= RUN_PIECES;
        if full && !run.pieces.is_empty() {
            let pieces = std::mem::take(&mut run.pieces);
            runs.push(Run { more: true, pieces });
            bytes = 0;
        }
        run.pieces.append(&mut pieces);
        bytes += length;
        all += length;
    }
    run.more = false;
    runs.push(run);
    runs
}
