//! Accepts connections, and waits for them at the end.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hulse_proto::error::Fault;
use hulse_proto::id::CellId;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serving_broker::{Door, Front, WireListener};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::Connection;
use crate::fetch::Sessions;
use crate::link::{Advertise, Served};
use crate::requests::DECODED_BYTES;
use crate::wire::LargeFrames;

/// The broker's number is asked for again after this, while metadata do not answer.
const NUMBER_AGAIN: Duration = Duration::from_millis(500);
/// What the decoded requests of waiting fetches may take, bytes.
const WAITING_BYTES: usize = 64 << 20;
/// Answers of many rows that may be made at the same time.
const LARGE_MAX: usize = 4;

/// What a listener is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Its name, in logs.
    pub name: String,
    /// What its clients are told to dial.
    pub advertise: Advertise,
    /// Connections at once; more wait in the operating system's queue.
    pub connections_max: usize,
    /// Seeds the numbers of fetch sessions; from the operating system in production.
    pub seed: [u8; 32],
}

/// A listener of the Kafka wire.
pub struct KafkaListener {
    config: ListenerConfig,
    listener: TcpListener,
}

impl KafkaListener {
    /// Over a socket that listens.
    pub fn new(config: ListenerConfig, listener: TcpListener) -> Self {
        Self { config, listener }
    }

    async fn run(self, front: Arc<Front>) {
        let name = self.config.name.clone();
        let serving = async {
            let served = Arc::new(served(&self.config, &front).await);
            let mut door = Door::new(self.listener, self.config.connections_max);
            tracing::info!(listener = %name, node_id = served.node_id, "Kafka wire is served");
            loop {
                let (socket, place) = door.next().await;
                spawn(&served, socket, place);
            }
        };
        tokio::select! {
            biased;
            () = front.kill().cancelled() => {}
            () = front.drain().cancelled() => {}
            () = serving => {}
        }
    }
}

/// What connections share. Waits for the broker's number, without which nothing can be answered.
pub(crate) async fn served(config: &ListenerConfig, front: &Arc<Front>) -> Served {
    let mut told = false;
    let (node_id, cell) = loop {
        match identity(front).await {
            Ok(identity) => break identity,
            Err(fault) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%fault, "the Kafka wire waits for the broker's number");
                }
                tokio::time::sleep(NUMBER_AGAIN).await;
            }
        }
    };
    let mut rng = ChaCha12Rng::from_seed(config.seed);
    Served {
        front: front.clone(),
        node_id,
        cluster_id: cluster_id(cell),
        advertise: config.advertise.clone(),
        listener: config.name.clone(),
        numbers: Mutex::default(),
        sessions: Sessions::new(rng.random()),
        waiting: Arc::new(Semaphore::new(WAITING_BYTES)),
        decoded: Arc::new(Semaphore::new(DECODED_BYTES)),
        large: Arc::new(Semaphore::new(LARGE_MAX)),
        large_frames: LargeFrames::new(front.config().ingress_bytes),
        longest: Arc::new(Semaphore::new(1)),
        complained: Mutex::default(),
    }
}

impl WireListener for KafkaListener {
    fn serve(self: Box<Self>, front: Arc<Front>) -> BoxFuture<'static, ()> {
        self.run(front).boxed()
    }
}

/// The broker's number and the cell.
async fn identity(front: &Front) -> Result<(i32, Option<CellId>), Fault> {
    Ok((front.node_id().await?, front.cell_id().await?))
}

/// The cell's identity as text.
fn cluster_id(cell: Option<CellId>) -> String {
    cell.map_or_else(|| "hulse".to_owned(), |cell| cell.0.simple().to_string())
}

fn spawn(served: &Arc<Served>, socket: TcpStream, place: OwnedSemaphorePermit) {
    let front = served.front.clone();
    let served = served.clone();
    front.tasks().clone().spawn(async move {
        let _place = place;
        let (Ok(peer), Ok(local)) = (socket.peer_addr(), socket.local_addr()) else {
            return;
        };
        let connection = Connection::new(served, socket, peer, local);
        if AssertUnwindSafe(connection.run())
            .catch_unwind()
            .await
            .is_err()
        {
            tracing::error!(%peer, "a panic ended a connection of the Kafka wire");
            front.metrics().panicked();
        }
    });
}
