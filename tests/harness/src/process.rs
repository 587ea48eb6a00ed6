//! A process of a simulation: everything it sends and hears passes its gate, so that killing it is closing the gate.
//!
//! Tasks of a killed process may still run, but nothing they do reaches anyone, and nothing reaches them.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::crash_point::Side;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    Paused,
    Dead,
}

/// A gate. Clones share it.
#[derive(Debug, Clone)]
pub struct Process {
    name: Arc<str>,
    shared: Arc<Shared>,
}

/// Not a watch channel: that wakes its waiters in a random order.
#[derive(Debug)]
struct Shared {
    life: Mutex<Life>,
    turned: Notify,
    /// Effects left before it dies, and on which side of the last one.
    doom: Mutex<Option<(u64, Side)>>,
}

impl Process {
    /// A running one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            shared: Arc::new(Shared {
                life: Mutex::new(Life::Running),
                turned: Notify::new(),
                doom: Mutex::default(),
            }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.shared
            .life
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// SIGKILL.
    pub fn kill(&self) {
        *self.life() = Life::Dead;
        self.shared.turned.notify_waiters();
    }

    /// It will be killed at its `effects`-th effect from now on: a message sent or a call of metadata.
    pub fn doom(&self, effects: u64, side: Side) {
        let mut doom = self
            .shared
            .doom
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *doom = Some((effects, side));
    }

    /// It lives on.
    pub fn pardon(&self) {
        let mut doom = self
            .shared
            .doom
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *doom = None;
    }

    /// It is about to have an effect; `Some`: its last, and whether that happens.
    pub fn effect(&self) -> Option<Side> {
        let mut doom = self
            .shared
            .doom
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (left, side) = doom.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        let side = *side;
        *doom = None;
        Some(side)
    }

    /// SIGSTOP, as the world sees it: silent for a while. A dead one stays dead.
    pub fn pause(&self) {
        self.turn(Life::Running, Life::Paused);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.turn(Life::Paused, Life::Running);
    }

    fn turn(&self, from: Life, to: Life) {
        let mut life = self.life();
        if *life == from {
            *life = to;
            drop(life);
            self.shared.turned.notify_waiters();
        }
    }

    /// True after [`Process::kill`].
    pub fn is_dead(&self) -> bool {
        *self.life() == Life::Dead
    }

    /// True when it neither is paused nor dead.
    pub fn is_running(&self) -> bool {
        *self.life() == Life::Running
    }

    async fn until(&self, wanted: Life) {
        loop {
            let turned = self.shared.turned.notified();
            if *self.life() == wanted {
                return;
            }
            turned.await;
        }
    }

    /// Waits until it runs; for ever when it is dead.
    pub async fn running(&self) {
        self.until(Life::Running).await;
    }

    /// Waits for its death.
    pub async fn dead(&self) {
        self.until(Life::Dead).await;
    }

    /// What somebody outside hears of work inside: `None` when the process died first.
    pub async fn heard<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let heard = async {
            let answer = work.await;
            self.running().await;
            answer
        };
        tokio::select! {
            biased;
            () = self.dead() => None,
            answer = heard => Some(answer),
        }
    }
}
