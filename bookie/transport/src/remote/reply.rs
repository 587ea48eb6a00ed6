//! What an answer means to the caller that waits for it.

use std::sync::Arc;

use hulse_proto::bookie::{
    BookieError, Call, EntryHead, FenceAnswer, Inventory, RecoveryReadAnswer, StoredEntry,
};
use hulse_proto::limits::MESSAGE_BYTES_MAX;
use tokio::sync::oneshot;

use crate::wire::{Answer, Malformed, Run, decode_entries, decode_heads};

type Sender<T> = oneshot::Sender<Result<T, BookieError>>;

/// Who waits, and what came so far.
pub(super) enum Reply {
    Done(Sender<()>),
    Fenced(Sender<FenceAnswer>),
    RecoveryRead(Sender<RecoveryReadAnswer>),
    Entries(Sender<Vec<StoredEntry>>, Collected<StoredEntry>),
    Heads(Sender<Vec<EntryHead>>, Collected<EntryHead>),
    Held(Sender<Inventory>),
}

/// The part of a run that has come.
pub(super) struct Collected<T> {
    items: Vec<T>,
    /// That may still come before it is more than was asked for.
    room: usize,
}

impl<T> Collected<T> {
    /// Of a read that asks for so many bytes.
    pub(super) fn new(max_bytes: u32) -> Self {
        Self {
            items: Vec::new(),
            // The last item may go beyond.
            room: max_bytes as usize + MESSAGE_BYTES_MAX,
        }
    }

    fn take(
        &mut self,
        run: Run,
        decode: fn(Vec<bytes::Bytes>) -> Result<Vec<T>, Malformed>,
    ) -> Result<(), Malformed> {
        let bytes: usize = run.pieces.iter().map(bytes::Bytes::len).sum();
        let left = self
            .room
            .checked_sub(bytes)
            .filter(|_| bytes > 0 || !run.more);
        self.room = left.ok_or_else(|| Malformed("more was sent than was asked for".to_owned()))?;
        self.items.extend(decode(run.pieces)?);
        Ok(())
    }
}

/// What became of a reply.
pub(super) enum Fed {
    /// The caller has its answer, or has gone.
    Answered,
    /// The rest of the answer is to come.
    More(Reply),
}

impl Reply {
    /// Takes an answer.
    ///
    /// # Errors
    /// It is none to this kind of call; the caller is given nothing.
    pub(super) fn feed(self, answer: Answer) -> Result<Fed, (Self, Malformed)> {
        if let Answer::Fault(error) = answer {
            self.fail(error);
            return Ok(Fed::Answered);
        }
        match (self, answer) {
            (Self::Done(caller), Answer::Done) => answered(caller, ()),
            (Self::Fenced(caller), Answer::Fenced(fenced)) => answered(caller, fenced),
            (Self::RecoveryRead(caller), Answer::Negative { unsynced_limbo }) => {
                answered(caller, RecoveryReadAnswer::Negative { unsynced_limbo })
            }
            (Self::RecoveryRead(caller), Answer::Run(run)) => {
                let entries = decode_entries(run.pieces).map(|mut entries| match entries.len() {
                    1 if !run.more => entries.pop(),
                    _ => None,
                });
                match entries {
                    Ok(Some(entry)) => answered(caller, RecoveryReadAnswer::Positive(entry)),
                    Ok(None) => {
                        let why = Malformed("a recovery read answers one entry".to_owned());
                        Err((Self::RecoveryRead(caller), why))
                    }
                    Err(why) => Err((Self::RecoveryRead(caller), why)),
                }
            }
            (Self::Entries(caller, collected), Answer::Run(run)) => {
                collect(caller, collected, run, decode_entries, Self::Entries)
            }
            (Self::Heads(caller, collected), Answer::Run(run)) => {
                collect(caller, collected, run, decode_heads, Self::Heads)
            }
            (Self::Held(caller), Answer::Held(held)) => answered(caller, held),
            (reply, _) => Err((reply, Malformed("an answer to another question".to_owned()))),
        }
    }

    /// Gives the caller an error.
    pub(super) fn fail(self, error: BookieError) {
        // The caller may have gone: dropping the future drops the answer.
        match self {
            Self::Done(caller) => drop(caller.send(Err(error))),
            Self::Fenced(caller) => drop(caller.send(Err(error))),
            Self::RecoveryRead(caller) => drop(caller.send(Err(error))),
            Self::Entries(caller, _) => drop(caller.send(Err(error))),
            Self::Heads(caller, _) => drop(caller.send(Err(error))),
            Self::Held(caller) => drop(caller.send(Err(error))),
        }
    }
}

fn answered<T>(caller: Sender<T>, value: T) -> Result<Fed, (Reply, Malformed)> {
    let _ = caller.send(Ok(value));
    Ok(Fed::Answered)
}

fn collect<T>(
    caller: Sender<Vec<T>>,
    mut collected: Collected<T>,
    run: Run,
    decode: fn(Vec<bytes::Bytes>) -> Result<Vec<T>, Malformed>,
    again: fn(Sender<Vec<T>>, Collected<T>) -> Reply,
) -> Result<Fed, (Reply, Malformed)> {
    let more = run.more;
    match collected.take(run, decode) {
        Ok(()) if more => Ok(Fed::More(again(caller, collected))),
        Ok(()) => answered(caller, collected.items),
        Err(why) => Err((again(caller, collected), why)),
    }
}

/// The caller's side of a reply; `keep` lives until the answer is there.
pub(super) fn waiting<T: Send + 'static>(
    receiver: oneshot::Receiver<Result<T, BookieError>>,
    keep: Arc<impl Send + Sync + ?Sized + 'static>,
) -> Call<T> {
    Box::pin(async move {
        let answer = receiver.await;
        drop(keep);
        answer.unwrap_or_else(|_| Err(no_answer("the connection was given up")))
    })
}

/// An answer that claims nothing.
pub(super) fn no_answer(why: impl Into<String>) -> BookieError {
    BookieError::NoAnswer { why: why.into() }
}
