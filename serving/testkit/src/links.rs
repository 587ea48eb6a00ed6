//! The connections between clients and brokers, and what happens to them.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_sdk::{Connect, Connecting, TcpConnect, Transport};
use tokio::io::duplex;
use tokio::sync::watch;

use crate::frames::Way;
use crate::pump::{Limits, pump};

/// Bytes that may wait in a connection between its two ends.
const PIPE_BYTES: usize = 64 << 10;

/// The connections of all clients of one cluster. Cheap to clone; clones are one. What is said counts at once, for connections that are
/// and for those that will be made.
#[derive(Clone)]
pub struct Links(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    pace: watch::Sender<Pace>,
    /// How often everything was cut.
    cuts: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    refusing: bool,
    /// Addresses that nobody reaches.
    lost: BTreeSet<String>,
    /// Limits of the next connections, in order.
    next: VecDeque<(Way, u64)>,
    made: u64,
    ended_by_limit: u64,
}

/// How fast bytes pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pace {
    pub(crate) stalled: bool,
    pub(crate) delay: Duration,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            pace: watch::Sender::default(),
            cuts: watch::Sender::default(),
        }))
    }

    /// Breaks every connection now. Clients make new ones by themselves.
    pub fn cut(&self) {
        self.0.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on no connection can be made, or it can again. Those that are stay.
    pub fn refuse(&self, refuse: bool) {
        self.lock().refusing = refuse;
    }

    /// From now on nothing passes in any connection, though none breaks; or it does again.
    pub fn stall(&self, stall: bool) {
        self.0.pace.send_modify(|pace| pace.stalled = stall);
    }

    /// From now on each piece of at most 64 KiB takes so long, each way; zero: none does.
    pub fn delay(&self, delay: Duration) {
        self.0.pace.send_modify(|pace| pace.delay = delay);
    }

    /// Connections to come break behind their first `frames` HTTP/2 frames in this direction: one connection for each call, in the order
    /// of the calls. Those after them are whole.
    pub fn cut_next(&self, way: Way, frames: u64) {
        self.lock().next.push_back((way, frames));
    }

    /// Connections that were made so far.
    pub fn made(&self) -> u64 {
        self.lock().made
    }

    /// Connections that broke as [`Links::cut_next`] had said.
    pub fn cut_by_frames(&self) -> u64 {
        self.lock().ended_by_limit
    }

    /// Connections that are still to break so.
    pub fn to_be_cut(&self) -> usize {
        self.lock().next.len()
    }

    /// Nobody reaches this address any more.
    pub(crate) fn lose(&self, address: &str) {
        self.lock().lost.insert(address.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a connection to this address is to expect.
    fn admit(&self, address: &str) -> io::Result<Limits> {
        let mut state = self.lock();
        if state.refusing || state.lost.contains(address) {
            let words = "the test refuses connections to this address";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, words));
        }
        state.made += 1;
        let (mut up, mut down) = (u64::MAX, u64::MAX);
        match state.next.pop_front() {
            Some((Way::Up, frames)) => up = frames,
            Some((Way::Down, frames)) => down = frames,
            None => {}
        }
        Ok(Limits { up, down })
    }
}

impl Connect for Links {
    fn connect(&self, authority: &str) -> Connecting {
        let (links, authority) = (self.clone(), authority.to_owned());
        Box::pin(async move {
            let mut cuts = links.0.cuts.subscribe();
            cuts.mark_unchanged();
            let limits = links.admit(&authority)?;
            let broker = TcpConnect.connect(&authority).await?;
            let (client, ours) = duplex(PIPE_BYTES);
            let pace = links.0.pace.subscribe();
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    // Its sender lives as long as this.
                    _ = cuts.changed() => {}
                    limited = pump(ours, broker, limits, pace) => {
                        links.lock().ended_by_limit += u64::from(limited);
                    }
                }
            });
            Ok(Box::new(client) as Box<dyn Transport>)
        })
    }
}
