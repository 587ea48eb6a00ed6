//! Commands for something that has a task only while there is work: thousands of ledgers and partitions are open, and nearly all rest.
//!
//! A [`Sender`] puts commands in; the task takes them from its [`Inbox`]. A task with nothing to do leaves its state in the mailbox and
//! ends; the next command starts it again. So what rests costs its state and nothing else: no task, no timer, no queue.
//!
//! # Invariants
//! 1. Commands are taken in the order in which they were put in, by one task at a time.
//! 2. State rests only while no command waits and a sender is left; it is dropped with the last sender.
//! 3. When an inbox is dropped (its task ended, or panicked), what waits is dropped with it, and everything later is refused.
//!
//! Unbounded as a type; the owner bounds what is under way.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use tokio::task::coop::cooperative;

/// How a task is started with its state; must not wait, and must not panic where no runtime is entered.
pub type Start<C, S> = fn(S, Inbox<C, S>);

struct State<C, S> {
    queue: VecDeque<C>,
    resting: Option<S>,
    /// Of the task that waits for a command.
    waker: Option<Waker>,
    senders: usize,
    closed: bool,
    start: Start<C, S>,
}

struct Mailbox<C, S>(Mutex<State<C, S>>);

impl<C, S> Mailbox<C, S> {
    fn lock(&self) -> MutexGuard<'_, State<C, S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mailbox: who puts in, and who takes out. `start` starts the task again after a rest.
pub fn mailbox<C, S>(start: Start<C, S>) -> (Sender<C, S>, Inbox<C, S>) {
    let mailbox = Arc::new(Mailbox(Mutex::new(State {
        queue: VecDeque::new(),
        resting: None,
        waker: None,
        senders: 1,
        closed: false,
        start,
    })));
    (Sender(mailbox.clone()), Inbox(Some(mailbox)))
}

/// Puts commands in. Clones are counted: with the last one the task is told that nobody is left.
pub struct Sender<C, S>(Arc<Mailbox<C, S>>);

impl<C, S> Sender<C, S> {
    /// Puts one behind those that wait, and starts the task if it rests.
    ///
    /// # Errors
    /// The command, when the task has ended.
    pub fn send(&self, command: C) -> Result<(), C> {
        put(&self.0, command)
    }

    /// Knows the mailbox, and does not count as a sender.
    pub fn downgrade(&self) -> WeakSender<C, S> {
        WeakSender(Arc::downgrade(&self.0))
    }
}

fn put<C, S>(mailbox: &Arc<Mailbox<C, S>>, command: C) -> Result<(), C> {
    let mut state = mailbox.lock();
    if state.closed || state.senders == 0 {
        return Err(command);
    }
    state.queue.push_back(command);
    let (waker, resting, start) = (state.waker.take(), state.resting.take(), state.start);
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
    if let Some(resting) = resting {
        start(resting, Inbox(Some(mailbox.clone())));
    }
    Ok(())
}

impl<C, S> Clone for Sender<C, S> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<C, S> Drop for Sender<C, S> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        if state.senders > 0 {
            return;
        }
        let (waker, resting) = (state.waker.take(), state.resting.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        // Outside the lock: it may hold senders of other mailboxes.
        drop(resting);
    }
}

impl<C, S> fmt::Debug for Sender<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// Knows a mailbox, keeps nothing of it, and does not count as a sender.
pub struct WeakSender<C, S>(Weak<Mailbox<C, S>>);

impl<C, S> WeakSender<C, S> {
    /// As [`Sender::send`], while a sender is left.
    ///
    /// # Errors
    /// The command: nobody is left who would hear of it.
    pub fn send(&self, command: C) -> Result<(), C> {
        match self.0.upgrade() {
            Some(mailbox) => put(&mailbox, command),
            None => Err(command),
        }
    }

    /// True while it rests, and its state is one that is asked for.
    pub fn rests_as(&self, is_asked_for: impl FnOnce(&S) -> bool) -> bool {
        let Some(mailbox) = self.0.upgrade() else {
            return false;
        };
        let state = mailbox.lock();
        state.resting.as_ref().is_some_and(is_asked_for)
    }

    /// True once nothing is left of the mailbox.
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// Takes what rests, with its inbox, to look after it; `None` when it has a task, or is gone.
    pub fn take_resting(&self) -> Option<(S, Inbox<C, S>)> {
        let mailbox = self.0.upgrade()?;
        let resting = mailbox.lock().resting.take()?;
        Some((resting, Inbox(Some(mailbox))))
    }
}

impl<C, S> Clone for WeakSender<C, S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Takes commands out. There is one, in the hands of the task, while the state does not rest.
pub struct Inbox<C, S>(Option<Arc<Mailbox<C, S>>>);

impl<C, S> Inbox<C, S> {
    fn mailbox(&self) -> &Arc<Mailbox<C, S>> {
        self.0.as_ref().expect("only rest() and drop() take it out")
    }

    /// Waits for commands and moves all of them to the end of `into`. False when none waits and no sender is left. Cancel-safe.
    pub async fn receive(&mut self, into: &mut VecDeque<C>) -> bool {
        let mailbox = self.mailbox();
        cooperative(poll_fn(|cx| {
            let mut state = mailbox.lock();
            if !state.queue.is_empty() {
                if into.is_empty() {
                    // The room of both is used again.
                    std::mem::swap(&mut state.queue, into);
                } else {
                    into.append(&mut state.queue);
                }
                return Poll::Ready(true);
            }
            if state.senders == 0 || state.closed {
                return Poll::Ready(false);
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        }))
        .await
    }

    /// Takes all that waits, to the end of `into`.
    pub fn take(&mut self, into: &mut VecDeque<C>) {
        into.append(&mut self.mailbox().lock().queue);
    }

    /// To look after what will rest, without keeping it.
    pub fn downgrade(&self) -> WeakSender<C, S> {
        WeakSender(Arc::downgrade(self.mailbox()))
    }

    /// Takes no more commands; those that wait can still be taken.
    pub fn close(&mut self) {
        self.mailbox().lock().closed = true;
    }

    /// Leaves `state` until the next command; the task that calls this has to end.
    ///
    /// # Errors
    /// Both back: a command waits, or no sender is left.
    pub fn rest(mut self, resting: S) -> Result<(), (Self, S)> {
        let Some(mailbox) = self.0.take() else {
            return Err((self, resting));
        };
        let mut state = mailbox.lock();
        if !state.queue.is_empty() || state.senders == 0 || state.closed {
            drop(state);
            self.0 = Some(mailbox);
            return Err((self, resting));
        }
        state.queue = VecDeque::new();
        state.waker = None;
        state.resting = Some(resting);
        Ok(())
    }
}

impl<C, S> Drop for Inbox<C, S> {
    fn drop(&mut self) {
        let Some(mailbox) = self.0.take() else {
            return;
        };
        let mut state = mailbox.lock();
        state.closed = true;
        let late = std::mem::take(&mut state.queue);
        drop(state);
        // Outside the lock: who waits for them is told.
        drop(late);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    type Ask = oneshot::Sender<u32>;

    /// Answers each command with how many came before, and rests after each turn.
    struct Counting {
        asked: u32,
        starts: Arc<AtomicUsize>,
    }

    fn start(mut state: Counting, mut inbox: Inbox<Ask, Counting>) {
        state.starts.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let mut commands = VecDeque::new();
            loop {
                if !inbox.receive(&mut commands).await {
                    return;
                }
                for ask in commands.drain(..) {
                    let _ = ask.send(state.asked);
                    state.asked += 1;
                }
                (inbox, state) = match inbox.rest(state) {
                    Ok(()) => return,
                    Err(back) => back,
                };
            }
        });
    }

    fn resting() -> (Sender<Ask, Counting>, Arc<AtomicUsize>) {
        let starts = Arc::new(AtomicUsize::new(0));
        let (sender, inbox) = mailbox(start);
        let state = Counting {
            asked: 0,
            starts: starts.clone(),
        };
        assert!(inbox.rest(state).is_ok());
        (sender, starts)
    }

    #[tokio::test]
    async fn commands_start_what_rests_and_come_in_order() {
        let (sender, starts) = resting();
        for round in 0..3 {
            let mut answers = Vec::new();
            for _ in 0..10 {
                let (ask, answer) = oneshot::channel();
                assert!(sender.send(ask).is_ok());
                answers.push(answer);
            }
            for (number, answer) in answers.into_iter().enumerate() {
                assert_eq!(answer.await, Ok(round * 10 + number as u32));
            }
        }
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn no_command_is_left_behind_by_a_task_that_goes_to_rest() {
        let (sender, _) = resting();
        let callers = (0..4).map(|_| {
            let sender = sender.clone();
            tokio::spawn(async move {
                for _ in 0..1_000 {
                    let (ask, answer) = oneshot::channel();
                    assert!(sender.send(ask).is_ok());
                    assert!(answer.await.is_ok());
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        let (ask, answer) = oneshot::channel();
        assert!(sender.send(ask).is_ok());
        assert_eq!(answer.await, Ok(4_000));
    }

    #[tokio::test]
    async fn state_that_rests_goes_with_the_last_sender() {
        let (sender, starts) = resting();
        let weak = WeakSender(Arc::downgrade(&sender.0));
        assert_eq!(Arc::strong_count(&starts), 2);
        drop(sender);
        assert_eq!(Arc::strong_count(&starts), 1);
        assert!(weak.take_resting().is_none());
    }

    #[tokio::test]
    async fn task_hears_that_no_sender_is_left() {
        let (sender, mut inbox) = mailbox::<(), ()>(|(), _| {});
        let task = tokio::spawn(async move {
            let mut commands = VecDeque::new();
            while inbox.receive(&mut commands).await {
                commands.clear();
            }
            inbox.rest(()).is_err()
        });
        assert!(sender.send(()).is_ok());
        tokio::task::yield_now().await;
        drop(sender);
        assert!(task.await.unwrap(), "nobody could ever wake it");
    }

    #[tokio::test]
    async fn commands_for_a_task_that_is_gone_are_dropped_and_refused() {
        let (sender, inbox) = mailbox::<Ask, ()>(|(), _| {});
        let (ask, answer) = oneshot::channel();
        assert!(sender.send(ask).is_ok());
        drop(inbox);
        assert!(answer.await.is_err());
        let (ask, _) = oneshot::channel();
        assert!(sender.send(ask).is_err());
    }
}
