//! What a client is made from.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::time::WallClock;

use super::handle::{Client, Parts};
use crate::clock::SystemClock;
use crate::connect::{Broker, Connect, TcpConnect};
use crate::error::Error;
use crate::interceptor::Interceptor;

/// How long look-ups and admin calls go on trying.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest client id.
const CLIENT_ID_BYTES_MAX: usize = 249;

/// Makes a [`Client`]. Values have methods of their own; collaborators (connector, clock, seed) are replaced in simulations.
#[must_use = "a builder does nothing until build()"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    client_id: String,
    request_timeout: Duration,
    connect: Arc<dyn Connect>,
    clock: Arc<dyn WallClock>,
    seed: Option<[u8; 32]>,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl ClientBuilder {
    pub(super) fn new(endpoints: &str) -> Self {
        Self {
            endpoints: endpoints.split(',').map(str::to_owned).collect(),
            client_id: "hulse-sdk".to_owned(),
            request_timeout: REQUEST_TIMEOUT,
            connect: Arc::new(TcpConnect),
            clock: Arc::new(SystemClock),
            seed: None,
            interceptors: Vec::new(),
        }
    }

    /// The name under which brokers log this client. Default `hulse-sdk`; at most 249 bytes.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = client_id.into();
        self
    }

    /// How long look-ups and admin calls go on trying before they answer an error. Default 30 s.
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// How connections are made. Default [`TcpConnect`].
    pub fn connector(mut self, connect: impl Connect) -> Self {
        self.connect = Arc::new(connect);
        self
    }

    /// Where record timestamps come from. Default: the operating system.
    pub fn clock(mut self, clock: Arc<dyn WallClock>) -> Self {
        self.clock = clock;
        self
    }

    /// Fixes every random choice (jitter, sticky partitions). Default: from the operating system.
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds an interceptor: it sees the records of every producer, reader and consumer of this client, in the order of these calls
    /// and before those that they were given themselves.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// The client. Nothing is dialled before the first call.
    ///
    /// # Errors
    /// Invalid: no endpoint, one that is not `host:port`, or a client id that is too long.
    pub fn build(self) -> Result<Client, Error> {
        let brokers = self.endpoints.iter().map(|text| Broker::parse(text));
        let brokers = brokers.collect::<Result<Vec<_>, _>>()?;
        if self.client_id.len() > CLIENT_ID_BYTES_MAX {
            return Err(Error::invalid(format!(
                "client id of {} bytes is longer than {CLIENT_ID_BYTES_MAX}",
                self.client_id.len()
            )));
        }
        Ok(Client::from_parts(Parts {
            brokers,
            client_id: self.client_id,
            request_timeout: self.request_timeout,
            connect: self.connect,
            clock: self.clock,
            seed: self.seed,
            interceptors: self.interceptors,
        }))
    }
}
