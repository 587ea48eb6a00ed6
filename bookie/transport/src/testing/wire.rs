//! A bookie, its server, and the wire to it.

use std::io;
use std::sync::Arc;

use futures::StreamExt as _;
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::pipe::{Accepted, Switch, Weather};
use crate::remote::{Connect, Connecting, RemoteBookie, RemoteConfig, Transport};
use crate::serve::{ServeLimits, Served, serve};

/// Bytes that a pipe holds in each direction.
const PIPE_BYTES: usize = 64 << 10;

/// The network between one bookie and its callers. Clones share it.
#[derive(Clone)]
pub struct Wire {
    switch: Switch,
    incoming: mpsc::UnboundedSender<io::Result<Accepted>>,
    /// Cancelled: the bookie leaves.
    pub leaving: CancellationToken,
}

impl Wire {
    /// Breaks every connection there is.
    pub fn cut(&self) {
        self.switch.cut();
    }

    /// Holds every byte from now on, or lets them go on.
    pub fn freeze(&self, frozen: bool) {
        self.switch.set(match frozen {
            true => Weather::Frozen,
            false => Weather::Fair,
        });
    }

    /// Connections that were made so far.
    pub fn dialled(&self) -> u64 {
        self.switch.dialled()
    }
}

impl Connect for Wire {
    fn connect(&self, _: &str) -> Connecting {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let taken = self.incoming.send(Ok(Accepted(far)));
        let pipe = self.switch.join(near);
        Box::pin(async move {
            match taken {
                Ok(()) => Ok(Box::new(pipe) as Box<dyn Transport>),
                Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

/// A bookie that is served, and the bookie as its callers see it.
pub struct Loopback {
    /// The callers' end.
    pub remote: Arc<RemoteBookie>,
    /// What lies between.
    pub wire: Wire,
    /// The task of the server.
    pub server: tokio::task::JoinHandle<()>,
}

impl Loopback {
    /// Serves `calls` under `name`, with the usual settings. Needs a tokio runtime.
    pub fn start(name: &NodeName, calls: Arc<dyn BookieCalls>) -> Self {
        let limits = ServeLimits::default();
        Self::with(name, calls, (RemoteConfig::default(), limits))
    }

    /// As [`Loopback::start`], with these bounds.
    pub fn with(
        name: &NodeName,
        calls: Arc<dyn BookieCalls>,
        (config, limits): (RemoteConfig, ServeLimits),
    ) -> Self {
        // Bounded by the dials of the tests.
        let (incoming, mut queue) = mpsc::unbounded_channel();
        let wire = Wire {
            switch: Switch::default(),
            incoming,
            leaving: CancellationToken::new(),
        };
        let served = Served {
            name: name.clone(),
            calls,
            limits,
            leaving: wire.leaving.clone(),
        };
        let incoming = futures::stream::poll_fn(move |cx| queue.poll_recv(cx)).boxed();
        let server = tokio::spawn(async move {
            // A pipe's listener does not fail.
            let _ = serve(incoming, served).await;
        });
        let remote = RemoteBookie::new(name.clone(), "bookie:7410", config, Arc::new(wire.clone()));
        Self {
            remote: Arc::new(remote),
            wire,
            server,
        }
    }
}
