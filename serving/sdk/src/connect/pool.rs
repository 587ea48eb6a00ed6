//! One lazily dialled channel per broker and purpose.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Uri};

use super::dial::Connect;
use super::settings;
use crate::error::Error;

/// Most channels kept; beyond that each call dials its own.
const CHANNELS_MAX: usize = 4096;

/// Address of a broker's gRPC listener, `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Broker(Arc<str>);

impl Broker {
    /// Takes `host:port`, `grpc://host:port` or `http://host:port`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let authority = text
            .strip_prefix("grpc://")
            .or_else(|| text.strip_prefix("http://"))
            .unwrap_or(text)
            .trim_end_matches('/');
        let parsed = Uri::builder()
            .scheme("http")
            .authority(authority)
            .path_and_query("/")
            .build();
        match parsed {
            Ok(uri) if uri.port_u16().is_some() && uri.host().is_some_and(|h| !h.is_empty()) => {
                Ok(Self(authority.into()))
            }
            _ => Err(Error::invalid(format!(
                "broker address {text:?} is not host:port; write it like 127.0.0.1:7400 or grpc://host:7400"
            ))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Control,
    Produce,
}

pub(crate) struct Pool {
    connect: Arc<dyn Connect>,
    channels: Mutex<BTreeMap<(Broker, Purpose), Channel>>,
}

impl Pool {
    pub(crate) fn new(connect: Arc<dyn Connect>) -> Self {
        Self {
            connect,
            channels: Mutex::default(),
        }
    }

    /// The channel of this purpose. Dials at its first call, and again after it broke.
    pub(crate) fn channel(&self, broker: &Broker, purpose: Purpose) -> Result<Channel, Error> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (broker.clone(), purpose);
        if let Some(channel) = channels.get(&key) {
            return Ok(channel.clone());
        }
        let channel = self.dedicated(broker)?;
        if channels.len() < CHANNELS_MAX {
            channels.insert(key, channel.clone());
        }
        Ok(channel)
    }

    /// A channel of one's own: each reader has its own, since a reader that stops reading fills the connection's window.
    pub(crate) fn dedicated(&self, broker: &Broker) -> Result<Channel, Error> {
        let connect = Arc::clone(&self.connect);
        let connector = tower::service_fn(move |uri: Uri| {
            let connect = Arc::clone(&connect);
            async move {
                let authority = uri.authority().map_or("", |authority| authority.as_str());
                connect.connect(authority).await.map(TokioIo::new)
            }
        });
        Ok(settings::endpoint(broker.as_str())?.connect_with_connector_lazy(connector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_scheme() {
        for text in ["grpc://h:7400", "h:7400", " http://h:7400/ "] {
            assert_eq!(Broker::parse(text).unwrap().as_str(), "h:7400");
        }
        assert_eq!(Broker::parse("[::1]:7400").unwrap().as_str(), "[::1]:7400");
        for text in [
            "",
            "h",
            "grpc://",
            "h:",
            "h:99999",
            ":7400",
            "https://h:1",
            "h h:1",
        ] {
            let error = Broker::parse(text).unwrap_err().to_string();
            assert!(error.contains("host:port"), "{text:?}: {error}");
        }
    }
}
