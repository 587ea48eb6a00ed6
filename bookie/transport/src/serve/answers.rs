//! One stream: takes requests, makes calls of them in their order, sends answers as they are ready.
//!
//! It works when it is polled, and it is polled when its connection can send. So a caller that takes no answers is read no further,
//! and neither is one of whose calls the node has too much already.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, Stream, StreamExt as _};
use hulse_proto::bookie::{
    BookieCalls, BookieError, HeldRun, INVENTORY_RUNS_MAX, RecoveryReadAnswer,
};
use hulse_proto::limits::{ENTRY_BYTES_MAX, PROTOCOL_VERSION};
use hulse_proto::wire::bookie as wire;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::Status;

use super::server::Served;
use crate::wire::{
    Answer, Call, Refusal, Request, Run, decode_request, encode_answer, encode_entries,
    encode_heads,
};

/// What a call without a payload counts.
const SMALL_BYTES: usize = 128;
/// Requests taken before others have their turn.
const BATCH_MAX: usize = 64;

/// The answer to a call, its number, and what it counted.
type Made = BoxFuture<'static, (u64, usize, Reply)>;

/// An answer in as many messages as it takes.
enum Reply {
    One(Answer),
    Runs(Vec<Run>),
}

/// The answers of one stream. Ends when the caller has ended its requests and all are answered, or when the bookie leaves.
pub(crate) struct Answers<S> {
    served: Arc<Served>,
    requests: S,
    leaving: Pin<Box<WaitForCancellationFutureOwned>>,
    phase: Phase,
    /// Why it is over, if its requests made no sense.
    broken: Option<Status>,
    /// Number of the last call.
    last: u64,
    made: FuturesUnordered<Made>,
    /// Bytes that they count.
    held: usize,
    /// Ready to be sent.
    ready: VecDeque<wire::Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    /// No more requests are taken; what was taken is answered.
    Ending,
    Over,
}

impl<S> Answers<S>
where
    S: Stream<Item = Result<wire::Request, Status>> + Send + Unpin + 'static,
{
    pub(crate) fn new(served: Arc<Served>, requests: S) -> Self {
        let leaving = Box::pin(served.leaving.clone().cancelled_owned());
        Self {
            served,
            requests,
            leaving,
            phase: Phase::Opening,
            broken: None,
            last: 0,
            made: FuturesUnordered::new(),
            held: 0,
            ready: VecDeque::new(),
        }
    }

    /// Takes requests while there is room. An error ends the stream.
    fn take(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        let limits = self.served.limits;
        for _ in 0..BATCH_MAX {
            let full = self.made.len() >= limits.calls_max || self.held >= limits.bytes_max;
            if full || !matches!(self.phase, Phase::Opening | Phase::Open) {
                return Ok(());
            }
            match self.requests.poll_next_unpin(cx) {
                Poll::Ready(Some(request)) => self.taken(request?)?,
                Poll::Ready(None) => self.phase = Phase::Ending,
                Poll::Pending => return Ok(()),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn taken(&mut self, request: wire::Request) -> Result<(), Status> {
        let wrong = |why: String| Status::invalid_argument(why);
        let request = decode_request(request).map_err(|error| wrong(error.to_string()))?;
        match (self.phase, request) {
            (
                Phase::Opening,
                Request::Open {
                    protocol_version,
                    bookie,
                },
            ) => {
                let opening = self.open(protocol_version, &bookie);
                self.ready.push_back(encode_answer(0, opening));
                Ok(())
            }
            (Phase::Open, Request::Call(number, call)) => {
                self.number(number)?;
                self.make(number, call);
                Ok(())
            }
            (Phase::Open, Request::Invalid(number, why)) => {
                self.number(number)?;
                let why = why.to_string();
                let fault = Answer::Fault(BookieError::Invalid { why });
                self.ready.push_back(encode_answer(number, fault));
                Ok(())
            }
            _ => Err(wrong("a stream begins with Open, once".to_owned())),
        }
    }

    fn open(&mut self, protocol_version: u32, bookie: &str) -> Answer {
        let refusal = if protocol_version != PROTOCOL_VERSION {
            Refusal::Version {
                found: PROTOCOL_VERSION,
            }
        } else if bookie != self.served.name.as_str() {
            Refusal::OtherBookie {
                found: self.served.name.to_string(),
            }
        } else {
            self.phase = Phase::Open;
            return Answer::Opened;
        };
        self.phase = Phase::Ending;
        Answer::Refused(refusal)
    }

    fn number(&mut self, number: u64) -> Result<(), Status> {
        if number <= self.last {
            let why = format!("call {number} came after call {}", self.last);
            return Err(Status::invalid_argument(why));
        }
        self.last = number;
        Ok(())
    }

    /// Makes a call: it has its place in the node's order when this returns.
    fn make(&mut self, number: u64, call: Call) {
        let bytes = weight(&call);
        let reply = call_node(&*self.served.calls, call);
        self.held += bytes;
        let made = reply.map(move |reply| (number, bytes, reply));
        self.made.push(made.boxed());
    }

    fn answer(&mut self, number: u64, reply: Reply) {
        match reply {
            Reply::One(answer) => self.ready.push_back(encode_answer(number, answer)),
            Reply::Runs(runs) => {
                let messages = runs
                    .into_iter()
                    .map(|run| encode_answer(number, Answer::Run(run)));
                self.ready.extend(messages);
            }
        }
    }
}

/// What a call takes of the node's memory until it is answered.
fn weight(call: &Call) -> usize {
    match call {
        Call::Add(add) => add.entry.header().entry_len() + SMALL_BYTES,
        Call::RecoveryRead(_) => ENTRY_BYTES_MAX / 16,
        Call::Read(read) | Call::ReadHeads(read) => read.max_bytes as usize + SMALL_BYTES,
        // Of one ledger, or of many: as much as it may be.
        Call::Inventory(_) => INVENTORY_RUNS_MAX * size_of::<HeldRun>(),
        Call::Fence(_) | Call::Delete(_) => SMALL_BYTES,
    }
}

fn call_node(calls: &dyn BookieCalls, call: Call) -> BoxFuture<'static, Reply> {
    let done = |answer: Result<(), _>| answer.map_or_else(fault, |()| Reply::One(Answer::Done));
    match call {
        Call::Add(add) => calls.add(add).map(done).boxed(),
        Call::Delete(to) => calls.delete(to).map(done).boxed(),
        Call::Inventory(request) => {
            let held = |held| Reply::One(Answer::Held(held));
            let reply = move |answer: Result<_, _>| answer.map_or_else(fault, held);
            calls.inventory(request).map(reply).boxed()
        }
        Call::Fence(request) => {
            let fenced = |answer| Reply::One(Answer::Fenced(answer));
            let reply = move |answer: Result<_, _>| answer.map_or_else(fault, fenced);
            calls.fence(request).map(reply).boxed()
        }
        Call::RecoveryRead(request) => {
            let reply = move |answer: Result<_, _>| answer.map_or_else(fault, recovered);
            calls.recovery_read(request).map(reply).boxed()
        }
        Call::Read(request) => {
            let runs = move |found: Vec<_>| Reply::Runs(encode_entries(&found, request.max_bytes));
            let reply = move |answer: Result<_, _>| answer.map_or_else(fault, runs);
            calls.read(request).map(reply).boxed()
        }
        Call::ReadHeads(request) => {
            let runs = move |found: Vec<_>| Reply::Runs(encode_heads(&found, request.max_bytes));
            let reply = move |answer: Result<_, _>| answer.map_or_else(fault, runs);
            calls.read_heads(request).map(reply).boxed()
        }
    }
}

fn fault(error: BookieError) -> Reply {
    Reply::One(Answer::Fault(error))
}

fn recovered(answer: RecoveryReadAnswer) -> Reply {
    match answer {
        RecoveryReadAnswer::Positive(entry) => Reply::Runs(encode_entries(&[entry], 0)),
        RecoveryReadAnswer::Negative { unsynced_limbo } => {
            Reply::One(Answer::Negative { unsynced_limbo })
        }
    }
}

impl<S> Stream for Answers<S>
where
    S: Stream<Item = Result<wire::Request, Status>> + Send + Unpin + 'static,
{
    type Item = Result<wire::Answer, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(answer) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(answer)));
            }
            if this.phase == Phase::Over {
                return Poll::Ready(this.broken.take().map(Err));
            }
            if let Poll::Ready(Some((number, bytes, reply))) = this.made.poll_next_unpin(cx) {
                this.held -= bytes;
                this.answer(number, reply);
                continue;
            }
            if this.phase != Phase::Ending && this.leaving.poll_unpin(cx).is_ready() {
                this.phase = Phase::Ending;
            }
            if let Err(status) = this.take(cx) {
                this.phase = Phase::Over;
                this.broken = Some(status);
                continue;
            }
            if !this.ready.is_empty() {
                continue;
            }
            if this.phase == Phase::Ending && this.made.is_empty() {
                this.phase = Phase::Over;
                continue;
            }
            // What was just made may be ready already, and must wake us in any case.
            match this.made.poll_next_unpin(cx) {
                Poll::Ready(Some((number, bytes, reply))) => {
                    this.held -= bytes;
                    this.answer(number, reply);
                }
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
