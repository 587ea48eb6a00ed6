//! Calls as requests of the stream.

use std::time::Duration;

use hulse_proto::bookie::{
    AddRequest, Address, FenceRequest, InventoryRequest, Origin, ReadClass, ReadRequest,
    RecoveryReadRequest,
};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};
use hulse_proto::limits::PROTOCOL_VERSION;
use hulse_proto::wire::bookie as wire;
use hulse_proto::wire::bookie::request::What;

use super::Malformed;
use super::pieces::{entry_of, entry_pieces};

/// A method of `BookieCalls` and its argument.
#[derive(Debug, Clone)]
pub enum Call {
    /// `add`
    Add(AddRequest),
    /// `fence`
    Fence(FenceRequest),
    /// `recovery_read`
    RecoveryRead(RecoveryReadRequest),
    /// `read`
    Read(ReadRequest),
    /// `read_heads`
    ReadHeads(ReadRequest),
    /// `delete`
    Delete(Address),
    /// `inventory`
    Inventory(InventoryRequest),
}

impl Call {
    /// Whom it is for.
    pub fn to(&self) -> Address {
        match self {
            Self::Add(add) => add.to,
            Self::Fence(fence) => fence.to,
            Self::RecoveryRead(read) => read.to,
            Self::Read(read) | Self::ReadHeads(read) => read.to,
            Self::Delete(to) => *to,
            Self::Inventory(asked) => asked.to,
        }
    }
}

/// What a request of the stream is.
#[derive(Debug, Clone)]
pub enum Request {
    /// The first one.
    Open {
        /// Of the caller.
        protocol_version: u32,
        /// Whom the caller means.
        bookie: String,
    },
    /// A call that is well formed, and its number.
    Call(u64, Call),
    /// A call whose content is not: it is answered `Invalid`, and the stream goes on.
    Invalid(u64, Malformed),
}

/// The request that opens a stream.
pub fn encode_open(bookie: &str) -> wire::Request {
    wire::Request {
        what: Some(What::Open(wire::Open {
            protocol_version: PROTOCOL_VERSION,
            bookie: bookie.to_owned(),
        })),
        ..wire::Request::default()
    }
}

/// A call with its number, from 1.
pub fn encode_call(number: u64, call: &Call) -> wire::Request {
    let to = call.to();
    let mut request = wire::Request {
        call: number,
        cell: to.cell.to_bytes(),
        incarnation: to.incarnation.to_bytes(),
        ledger: to.ledger.0,
        ..wire::Request::default()
    };
    request.what = Some(match call {
        Call::Add(add) => {
            request.pieces = entry_pieces(&add.entry);
            What::Add(encode_add(add))
        }
        Call::Fence(fence) => What::Fence(wire::Fence {
            token: fence.token.0,
        }),
        Call::RecoveryRead(read) => What::RecoveryRead(wire::RecoveryRead {
            token: read.token.0,
            entry: read.entry.0,
        }),
        Call::Read(read) => What::Read(encode_read(read, false)),
        Call::ReadHeads(read) => What::Read(encode_read(read, true)),
        Call::Delete(_) => What::Delete(wire::Delete {}),
        Call::Inventory(asked) => What::Inventory(wire::Inventory {
            ledgers_end: asked.ledgers_end.0,
            first: asked.first.0,
            entries_end: asked.end.0,
            digests: asked.digests,
        }),
    });
    request
}

fn encode_add(add: &AddRequest) -> wire::Add {
    use wire::add::Origin as Wire;
    // Rounded up: a short time must not become none.
    let timeout_ms = add.timeout.as_micros().div_ceil(1000);
    wire::Add {
        confirmed_end: add.confirmed_end.0,
        timeout_ms: u64::try_from(timeout_ms).unwrap_or(u64::MAX),
        origin: match add.origin {
            Origin::Normal => None,
            Origin::Recovery { token } => Some(Wire::RecoveryToken(token.0)),
            Origin::Copy { bound } => Some(Wire::CopyBound(bound.0)),
        },
    }
}

fn encode_read(read: &ReadRequest, heads: bool) -> wire::Read {
    let class = match read.class {
        ReadClass::Recovery => wire::read::Class::Recovery,
        ReadClass::Tail => wire::read::Class::Tail,
        ReadClass::CatchUp => wire::read::Class::CatchUp,
    };
    wire::Read {
        first: read.first.0,
        end: read.end.0,
        max_bytes: read.max_bytes,
        class: class as i32,
        heads,
    }
}

/// Reads a request.
///
/// # Errors
/// [`Malformed`] when it is neither an opening nor a numbered call: the stream has no sense any more.
pub fn decode_request(request: wire::Request) -> Result<Request, Malformed> {
    if let Some(What::Open(open)) = request.what {
        return Ok(Request::Open {
            protocol_version: open.protocol_version,
            bookie: open.bookie,
        });
    }
    let number = request.call;
    if number == 0 {
        return Err(Malformed::new("a call without a number"));
    }
    Ok(match decode_call(request) {
        Ok(call) => Request::Call(number, call),
        Err(why) => Request::Invalid(number, why),
    })
}

fn decode_call(request: wire::Request) -> Result<Call, Malformed> {
    let cell = CellId::from_slice(&request.cell);
    let incarnation = Incarnation::from_slice(&request.incarnation);
    let (Some(cell), Some(incarnation)) = (cell, incarnation) else {
        return Err(Malformed::new("cell and incarnation are of 16 bytes each"));
    };
    let to = Address {
        cell,
        incarnation,
        ledger: LedgerId(request.ledger),
    };
    let what = request.what;
    let what = what.ok_or_else(|| Malformed::new("a call that this version does not know"))?;
    Ok(match what {
        What::Add(add) => Call::Add(AddRequest {
            to,
            origin: decode_origin(add.origin),
            confirmed_end: EntryId(add.confirmed_end),
            entry: entry_of(request.pieces)?,
            timeout: Duration::from_millis(add.timeout_ms),
        }),
        What::Fence(fence) => Call::Fence(FenceRequest {
            to,
            token: FenceToken(fence.token),
        }),
        What::RecoveryRead(read) => Call::RecoveryRead(RecoveryReadRequest {
            to,
            token: FenceToken(read.token),
            entry: EntryId(read.entry),
        }),
        What::Read(read) if read.heads => Call::ReadHeads(decode_read(to, &read)?),
        What::Read(read) => Call::Read(decode_read(to, &read)?),
        What::Delete(_) => Call::Delete(to),
        What::Inventory(asked) => Call::Inventory(InventoryRequest {
            to,
            ledgers_end: LedgerId(asked.ledgers_end),
            first: EntryId(asked.first),
            end: EntryId(asked.entries_end),
            digests: asked.digests,
        }),
        What::Open(_) => return Err(Malformed::new("a stream is opened once")),
    })
}

fn decode_origin(origin: Option<wire::add::Origin>) -> Origin {
    use wire::add::Origin as Wire;
    match origin {
        None => Origin::Normal,
        Some(Wire::RecoveryToken(token)) => Origin::Recovery {
            token: FenceToken(token),
        },
        Some(Wire::CopyBound(bound)) => Origin::Copy {
            bound: EntryId(bound),
        },
    }
}

fn decode_read(to: Address, read: &wire::Read) -> Result<ReadRequest, Malformed> {
    let class = match read.class() {
        wire::read::Class::Recovery => ReadClass::Recovery,
        wire::read::Class::Tail => ReadClass::Tail,
        wire::read::Class::CatchUp => ReadClass::CatchUp,
        wire::read::Class::Unspecified => {
            return Err(Malformed::new("a read of a class that is not known"));
        }
    };
    Ok(ReadRequest {
        to,
        first: EntryId(read.first),
        end: EntryId(read.end),
        max_bytes: read.max_bytes,
        class,
    })
}
