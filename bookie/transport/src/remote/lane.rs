//! The calls of one lane: in order, numbered, counted, each with the time until it is given up.
//!
//! ```text
//! Resting ─call─► Dialling ─opened─► Open ─breaks─► Broken ─call, once the wait is over─► Dialling
//!                    └──────fails──────────────────►┘
//! ```
//!
//! A call that is made while the lane is broken is answered at once; one that is made while it is being dialled waits for that. What
//! waits or is out when the lane breaks is answered `NoAnswer`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use hulse_proto::bookie::{BookieError, Origin};
use hulse_proto::entry::EntryClass;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::RemoteConfig;
use super::reply::{Fed, Reply, no_answer};
use crate::wire::{Answer, Call, Malformed};

/// How much of what a lane takes and sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Bytes that wait or are out; more are refused.
    pub(super) admitted: usize,
    /// Bytes that are out; more wait.
    pub(super) sent: usize,
}

impl Room {
    /// What closes ledgers and frees space has a quarter more than records (storage.md W2, amended).
    fn of(&self, call: &Call) -> usize {
        match call {
            Call::Add(add)
                if add.origin == Origin::Normal && add.entry.header().class == EntryClass::Data =>
            {
                self.admitted
            }
            _ => self.admitted.saturating_add(self.admitted / 4),
        }
    }
}

/// A lane, shared by its callers, what is sent and the task of its link.
pub(super) struct Lane {
    pub(super) config: RemoteConfig,
    room: Room,
    state: Mutex<State>,
    /// Somebody wants the lane to be dialled.
    wanted: Notify,
    /// The last caller is gone.
    pub(super) closed: CancellationToken,
}

struct State {
    phase: Phase,
    queue: VecDeque<Queued>,
    /// Queued ones and sent ones, by number.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    admitted: usize,
    sent: usize,
    /// Of what is sent, while it waits for a call or for room.
    sender: Option<Waker>,
    /// Dials in a row that failed.
    failures: u32,
    /// Grows with each dial.
    session: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Resting,
    Dialling,
    Open,
    Broken { until: Instant, why: Arc<str> },
}

struct Queued {
    number: u64,
    call: Call,
}

struct Waiting {
    reply: Reply,
    bytes: usize,
    since: Instant,
    sent: bool,
}

/// What is to be sent next.
pub(super) enum Next {
    Call(u64, Call),
    /// Nothing now; the waker is kept.
    Wait,
    /// The session is over.
    Ended,
}

impl Lane {
    pub(super) fn new(config: RemoteConfig, room: Room) -> Self {
        Self {
            config,
            room,
            state: Mutex::new(State {
                phase: Phase::Resting,
                queue: VecDeque::new(),
                waiting: BTreeMap::new(),
                next: 1,
                admitted: 0,
                sent: 0,
                sender: None,
                failures: 0,
                session: 0,
            }),
            wanted: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Gives a call its place. It will be answered, unless it is refused here.
    ///
    /// # Errors
    /// The reply, and why the call was not taken: it certainly had no effect.
    pub(super) fn submit(
        &self,
        call: Call,
        bytes: usize,
        reply: Reply,
    ) -> Result<(), (Reply, BookieError)> {
        let now = Instant::now();
        let mut state = self.lock();
        if let Some(why) = state.refuses(now) {
            return Err((reply, no_answer(why)));
        }
        let room = self.room.of(&call);
        let full = state.admitted > 0 && state.admitted.saturating_add(bytes) > room;
        if full || state.waiting.len() >= self.config.calls_max {
            let queued_bytes = state.admitted as u64;
            return Err((reply, BookieError::Busy { queued_bytes }));
        }
        let number = state.next;
        state.next += 1;
        state.admitted += bytes;
        let waiting = Waiting {
            reply,
            bytes,
            since: now,
            sent: false,
        };
        state.waiting.insert(number, waiting);
        state.queue.push_back(Queued { number, call });
        if state.phase == Phase::Open {
            let sender = state.sender.take();
            drop(state);
            sender.into_iter().for_each(Waker::wake);
        } else {
            let begins = state.phase != Phase::Dialling;
            state.phase = Phase::Dialling;
            drop(state);
            if begins {
                self.wanted.notify_one();
            }
        }
        Ok(())
    }

    /// Waits until a call wants the lane to be dialled; the number of the session to open.
    pub(super) async fn wanted(&self) -> u64 {
        loop {
            {
                let mut state = self.lock();
                if state.phase == Phase::Dialling {
                    state.session += 1;
                    return state.session;
                }
            }
            self.wanted.notified().await;
        }
    }

    /// The stream is open: what waits is sent.
    pub(super) fn opened(&self) {
        let mut state = self.lock();
        state.phase = Phase::Open;
        state.failures = 0;
        let sender = state.sender.take();
        drop(state);
        sender.into_iter().for_each(Waker::wake);
    }

    /// The stream broke, or could not be opened: every call is answered.
    pub(super) fn broke(&self, why: &str) {
        let mut state = self.lock();
        let doubled = 1_u32.checked_shl(state.failures).unwrap_or(u32::MAX);
        let wait = self.config.redial_initial.saturating_mul(doubled);
        state.failures = (state.failures + 1).min(31);
        state.phase = Phase::Broken {
            until: Instant::now() + wait.min(self.config.redial_max),
            why: why.into(),
        };
        state.queue.clear();
        let waiting = std::mem::take(&mut state.waiting);
        (state.admitted, state.sent) = (0, 0);
        let sender = state.sender.take();
        drop(state);
        sender.into_iter().for_each(Waker::wake);
        for waiting in waiting.into_values() {
            waiting.reply.fail(no_answer(why));
        }
    }

    /// What session `session` sends next, in order. A call that waited longer than it may is given up unsent.
    pub(super) fn next(&self, session: u64, waker: &Waker) -> Next {
        let mut late = Vec::new();
        let next = self.lock().next(session, self.room.sent, waker, &mut late);
        for reply in late {
            reply.fail(no_answer("it could not be sent in time"));
        }
        next
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// It is none to the call: the other end makes no sense.
    pub(super) fn answered(&self, number: u64, answer: Answer) -> Result<(), Malformed> {
        let mut state = self.lock();
        if number == 0 || number >= state.next {
            return Err(Malformed(format!(
                "an answer to call {number}, which was never made"
            )));
        }
        let waiting = match state.waiting.entry(number) {
            Entry::Occupied(waiting) if waiting.get().sent => waiting.remove(),
            Entry::Occupied(_) => {
                return Err(Malformed(format!(
                    "an answer to call {number}, which was not sent"
                )));
            }
            // An answer to a call that was given up says nothing any more.
            Entry::Vacant(_) => return Ok(()),
        };
        drop(state);
        let Waiting {
            reply,
            bytes,
            since,
            sent,
        } = waiting;
        let (kept, result) = match reply.feed(answer) {
            Ok(Fed::Answered) => (None, Ok(())),
            Ok(Fed::More(reply)) => (Some(reply), Ok(())),
            // Kept, for the break to answer it.
            Err((reply, why)) => (Some(reply), Err(why)),
        };
        let mut state = self.lock();
        match kept {
            Some(reply) => {
                let waiting = Waiting {
                    reply,
                    bytes,
                    since,
                    sent,
                };
                state.waiting.insert(number, waiting);
            }
            None => state.leave(bytes, sent),
        }
        let sender = state.sender.take();
        drop(state);
        sender.into_iter().for_each(Waker::wake);
        result
    }

    /// Gives up the calls that have had no answer for too long.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        let mut late = Vec::new();
        let mut state = self.lock();
        // Numbers and times grow together.
        while let Some(first) = state.waiting.first_entry()
            && now.duration_since(first.get().since) >= self.config.answer_timeout
        {
            let waiting = first.remove();
            state.leave(waiting.bytes, waiting.sent);
            late.push(waiting.reply);
        }
        let sender = state.sender.take();
        drop(state);
        sender.into_iter().for_each(Waker::wake);
        for reply in late {
            reply.fail(no_answer("no answer in time"));
        }
    }
}

impl State {
    /// Why no call is taken now.
    fn refuses(&self, now: Instant) -> Option<String> {
        match &self.phase {
            Phase::Broken { until, why } if now < *until => Some(why.to_string()),
            _ => None,
        }
    }

    /// A call is out no more.
    fn leave(&mut self, bytes: usize, sent: bool) {
        self.admitted -= bytes;
        if sent {
            self.sent -= bytes;
        }
    }

    fn next(&mut self, session: u64, room: usize, waker: &Waker, late: &mut Vec<Reply>) -> Next {
        if self.session != session || matches!(self.phase, Phase::Broken { .. }) {
            return Next::Ended;
        }
        if self.phase == Phase::Open {
            while let Some(queued) = self.queue.front() {
                let Some(waiting) = self.waiting.get_mut(&queued.number) else {
                    self.queue.pop_front();
                    continue;
                };
                if self.sent > 0 && self.sent + waiting.bytes > room {
                    break;
                }
                let Queued { number, mut call } =
                    self.queue.pop_front().expect("there is a first one");
                if shorten(&mut call, waiting.since.elapsed()) {
                    waiting.sent = true;
                    self.sent += waiting.bytes;
                    return Next::Call(number, call);
                }
                let waiting = self.waiting.remove(&number).expect("it was there above");
                self.leave(waiting.bytes, false);
                late.push(waiting.reply);
            }
        }
        self.sender = Some(waker.clone());
        Next::Wait
    }
}

/// Takes off what an add has waited here; false when nothing is left of its time (storage.md E3).
fn shorten(call: &mut Call, waited: Duration) -> bool {
    let Call::Add(add) = call else {
        return true;
    };
    add.timeout = add.timeout.saturating_sub(waited);
    !add.timeout.is_zero()
}
