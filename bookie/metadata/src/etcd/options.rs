//! How a cell's etcd is reached.

use std::time::Duration;

/// Where etcd is, and what is ours in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Members, `http://host:port`; at least one. The first that answers is used until it no longer does.
    pub endpoints: Vec<String>,
    /// Prefix of every key, ASCII; two cells in one etcd have different ones, neither a beginning of the other.
    pub prefix: String,
    /// How long one request may take, all members together.
    pub request_timeout: Duration,
}

impl EtcdOptions {
    /// The usual settings for one cell.
    pub fn new(endpoints: impl IntoIterator<Item = String>, prefix: impl Into<String>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            prefix: prefix.into(),
            request_timeout: Duration::from_secs(5),
        }
    }
}
