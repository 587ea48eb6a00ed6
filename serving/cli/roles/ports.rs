//! The addresses of a server: all are bound before anything else is done, and all that cannot be are told at once.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::failures;
use super::serving::local;
use crate::config::{Config, KafkaListen};
use crate::failure::Failure;

/// Connections that wait to be accepted, of one listener; the operating system may allow fewer.
const WAITING_CONNECTIONS_MAX: u32 = 4_096;

/// What a server listens on.
pub(super) struct Ports {
    pub(super) grpc: TcpListener,
    pub(super) http: TcpListener,
    pub(super) kafka: Vec<(KafkaListen, TcpListener)>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) kafka: Vec<SocketAddr>,
}

/// An address that is not ours.
pub(super) struct Taken {
    /// Its key in the configuration.
    pub(super) key: &'static str,
    /// And on the command line.
    pub(super) flag: &'static str,
    pub(super) at: SocketAddr,
    pub(super) why: io::Error,
}

impl Ports {
    /// Where they are, with the ports that the operating system chose.
    ///
    /// # Errors
    /// A listener has no address.
    pub(super) fn places(&self) -> Result<Places, Failure> {
        let kafka = self.kafka.iter().map(|(_, listener)| local(listener));
        Ok(Places {
            grpc: local(&self.grpc)?,
            http: local(&self.http)?,
            kafka: kafka.collect::<Result<_, _>>()?,
        })
    }

    /// Binds them all; needs a runtime.
    ///
    /// # Errors
    /// Every address that is not ours.
    pub(super) fn bind(config: &Config) -> Result<Self, Failure> {
        let mut taken = Vec::new();
        let bound = Self::bind_or_note(config, &mut taken);
        bound.ok_or_else(|| failures::addresses(&taken))
    }

    /// As [`Ports::bind`], for one of several parts of a process: adds what is not ours to `taken`.
    pub(super) fn bind_or_note(config: &Config, taken: &mut Vec<Taken>) -> Option<Self> {
        let before = taken.len();
        let mut bind = |key, flag, at| bind_one(taken, (key, flag, at));
        let listen = &config.listen;
        let grpc = bind("listen.grpc", "--grpc", listen.grpc);
        let http = bind("listen.http", "--http", listen.http);
        let kafka = listen.kafka.iter().filter_map(|listener| {
            let bound = bind("listen.kafka", "--kafka", listener.bind)?;
            Some((listener.clone(), bound))
        });
        let kafka = kafka.collect();
        match (grpc, http) {
            (Some(grpc), Some(http)) if taken.len() == before => Some(Self { grpc, http, kafka }),
            _ => None,
        }
    }
}

/// The addresses of a bookie: its calls, and HTTP.
///
/// # Errors
/// Every address that is not ours.
pub(super) fn bind_bookie(config: &Config) -> Result<BookiePorts, Failure> {
    let mut taken = Vec::new();
    let bound = bind_bookie_or_note(config, "--listen", &mut taken);
    bound.ok_or_else(|| failures::addresses(&taken))
}

/// A bookie's listeners: its calls, and HTTP.
pub(super) type BookiePorts = (TcpListener, TcpListener);

/// As [`bind_bookie`], for one of several parts of a process: adds what is not ours to `taken`. `flag` moves its calls.
pub(super) fn bind_bookie_or_note(
    config: &Config,
    flag: &'static str,
    taken: &mut Vec<Taken>,
) -> Option<BookiePorts> {
    let listen = &config.listen;
    let calls = bind_one(taken, ("listen.bookie", flag, listen.bookie));
    let http = bind_one(taken, ("listen.http", "--http", listen.http));
    calls.zip(http)
}

fn bind_one(
    taken: &mut Vec<Taken>,
    (key, flag, at): (&'static str, &'static str, SocketAddr),
) -> Option<TcpListener> {
    match bound(at) {
        Ok(listener) => Some(listener),
        Err(why) => {
            taken.push(Taken { key, flag, at, why });
            None
        }
    }
}

/// Listens with a queue that holds a whole fleet connecting again at once; in one of 128 the rest would wait for TCP's second try.
fn bound(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = match at.is_ipv4() {
        true => TcpSocket::new_v4()?,
        false => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(WAITING_CONNECTIONS_MAX)
}
