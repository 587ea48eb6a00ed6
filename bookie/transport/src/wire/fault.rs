//! Every `BookieError` as a message, and back.

use hulse_proto::bookie::BookieError;
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};
use hulse_proto::wire::bookie as wire;
use hulse_proto::wire::bookie::fault::Kind;

use super::Malformed;

/// Words for a person are cut to so many bytes.
const WHY_BYTES_MAX: usize = 1024;

/// The message of an error.
pub fn encode_fault(error: &BookieError) -> wire::Fault {
    use BookieError as E;
    let of = |kind: Kind| wire::Fault {
        kind: kind as i32,
        ..wire::Fault::default()
    };
    let ledger = |kind, ledger: &LedgerId| wire::Fault {
        ledger: ledger.0,
        ..of(kind)
    };
    let entry = |kind, (of, entry): (&LedgerId, &EntryId)| wire::Fault {
        entry: entry.0,
        ..ledger(kind, of)
    };
    let why = |kind, why: &str| wire::Fault {
        why: cut(why),
        ..of(kind)
    };
    match error {
        E::WrongCell { found, asked } => wire::Fault {
            found: found.to_bytes(),
            asked: asked.to_bytes(),
            ..of(Kind::WrongCell)
        },
        E::WrongIncarnation { found, asked } => wire::Fault {
            found: found.to_bytes(),
            asked: asked.to_bytes(),
            ..of(Kind::WrongIncarnation)
        },
        E::Fenced { ledger: id, token } => wire::Fault {
            token: token.0,
            ..ledger(Kind::Fenced, id)
        },
        E::StaleToken {
            ledger: id,
            token,
            asked,
        } => wire::Fault {
            token: token.0,
            asked_token: asked.0,
            ..ledger(Kind::StaleToken, id)
        },
        E::Deleted { ledger: id } => ledger(Kind::Deleted, id),
        E::NotInEnsemble { ledger: id } => ledger(Kind::NotInEnsemble, id),
        E::Conflict { ledger, entry: id } => entry(Kind::Conflict, (ledger, id)),
        E::ReadOnly { why: words } => why(Kind::ReadOnly, words),
        E::Busy { queued_bytes } => wire::Fault {
            queued_bytes: *queued_bytes,
            ..of(Kind::Busy)
        },
        E::Invalid { why: words } => why(Kind::Invalid, words),
        E::NotHere { ledger, entry: id } => entry(Kind::NotHere, (ledger, id)),
        E::Damaged { ledger, entry: id } => entry(Kind::Damaged, (ledger, id)),
        E::Limbo { ledger: id } => ledger(Kind::Limbo, id),
        E::Failed { why: words } => why(Kind::Failed, words),
        E::MetadataUnavailable => of(Kind::MetadataUnavailable),
        E::NoAnswer { why: words } => why(Kind::NoAnswer, words),
    }
}

fn cut(words: &str) -> String {
    let mut end = words.len().min(WHY_BYTES_MAX);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    words[..end].to_owned()
}

/// The error of a message. A kind that this version does not know is `NoAnswer`, the one that claims nothing.
///
/// # Errors
/// [`Malformed`] for an identity that is none.
pub fn decode_fault(fault: &wire::Fault) -> Result<BookieError, Malformed> {
    use BookieError as E;
    let ledger = LedgerId(fault.ledger);
    let entry = EntryId(fault.entry);
    let token = FenceToken(fault.token);
    let why = || cut(&fault.why);
    let none = || Malformed::new("an identity that is not of 16 bytes");
    Ok(match fault.kind() {
        Kind::WrongCell => E::WrongCell {
            found: CellId::from_slice(&fault.found).ok_or_else(none)?,
            asked: CellId::from_slice(&fault.asked).ok_or_else(none)?,
        },
        Kind::WrongIncarnation => E::WrongIncarnation {
            found: Incarnation::from_slice(&fault.found).ok_or_else(none)?,
            asked: Incarnation::from_slice(&fault.asked).ok_or_else(none)?,
        },
        Kind::Fenced => E::Fenced { ledger, token },
        Kind::StaleToken => E::StaleToken {
            ledger,
            token,
            asked: FenceToken(fault.asked_token),
        },
        Kind::Deleted => E::Deleted { ledger },
        Kind::NotInEnsemble => E::NotInEnsemble { ledger },
        Kind::Conflict => E::Conflict { ledger, entry },
        Kind::ReadOnly => E::ReadOnly { why: why() },
        Kind::Busy => E::Busy {
            queued_bytes: fault.queued_bytes,
        },
        Kind::Invalid => E::Invalid { why: why() },
        Kind::NotHere => E::NotHere { ledger, entry },
        Kind::Damaged => E::Damaged { ledger, entry },
        Kind::Limbo => E::Limbo { ledger },
        Kind::Failed => E::Failed { why: why() },
        Kind::MetadataUnavailable => E::MetadataUnavailable,
        Kind::NoAnswer => E::NoAnswer { why: why() },
        Kind::Unspecified => E::NoAnswer {
            why: format!(
                "the bookie answers error {}, which is not known here",
                fault.kind
            ),
        },
    })
}
