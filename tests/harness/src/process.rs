//! A process of a simulation: everything it sends and hears passes its gate, so that killing it is closing the gate.
//!
//! Tasks of a killed process may still run, but nothing they do reaches anyone, and nothing reaches them.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

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
    life: Arc<watch::Sender<Life>>,
}

impl Process {
    /// A running one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            life: Arc::new(watch::Sender::new(Life::Running)),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SIGKILL.
    pub fn kill(&self) {
        self.life.send_replace(Life::Dead);
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
        self.life.send_if_modified(|life| {
            let turns = *life == from;
            if turns {
                *life = to;
            }
            turns
        });
    }

    /// True after [`Process::kill`].
    pub fn is_dead(&self) -> bool {
        *self.life.borrow() == Life::Dead
    }

    /// True when it neither is paused nor dead.
    pub fn is_running(&self) -> bool {
        *self.life.borrow() == Life::Running
    }

    /// Waits until it runs; for ever when it is dead.
    pub async fn running(&self) {
        let mut life = self.life.subscribe();
        // The sender lives as long as this process.
        let _ = life.wait_for(|life| *life == Life::Running).await;
    }

    /// Waits for its death.
    pub async fn dead(&self) {
        let mut life = self.life.subscribe();
        // The sender lives as long as this process.
        let _ = life.wait_for(|life| *life == Life::Dead).await;
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
