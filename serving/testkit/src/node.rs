//! One broker of the cluster: the server's own, on a port of the loopback address.

use std::io;

use hulse_proto::id::NodeName;
use serving_broker::testing::MemoryBroker;
use serving_broker::{BrokerConfig, ServeError, serve};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::builder::Change;

/// A served broker. Ends when dropped.
pub(crate) struct Node {
    pub(crate) name: String,
    /// `host:port` of its listener.
    pub(crate) address: String,
    shutdown: CancellationToken,
    serving: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Node {
    /// The broker of this number, from 1, in its life `life` of the cluster: lives are counted over all brokers.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) async fn start(
        memory: &MemoryBroker,
        number: u8,
        life: u8,
        change: &Change,
    ) -> io::Result<Self> {
        let grpc = TcpListener::bind("127.0.0.1:0").await?;
        let http = TcpListener::bind("127.0.0.1:0").await?;
        let (name, address) = (format!("broker-{number}"), grpc.local_addr()?.to_string());
        let node = NodeName::new(&name).expect("a letter, a line and digits are a name");
        let mut config = BrokerConfig::new(node, address.clone());
        change(&mut config);
        let shutdown = CancellationToken::new();
        let broker = memory.broker(config);
        let serving = tokio::spawn(serve(broker, grpc, http, shutdown.clone()));
        memory.register(&name, life, &address, None).await;
        Ok(Self {
            name,
            address,
            shutdown,
            serving: Some(serving),
        })
    }

    /// Drains it and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.shutdown.cancel();
        if let Some(serving) = self.serving.take() {
            // A listener that failed at the end of a test is nobody's concern.
            drop(serving.await);
        }
    }

    /// Begins its end, and does not wait.
    pub(crate) fn begin_stop(&self) {
        self.shutdown.cancel();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
