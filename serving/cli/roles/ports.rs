//! The addresses of a server: all are bound before anything else is done, and all that cannot be are told at once.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::failures;
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
    /// Binds them all; needs a runtime.
    ///
    /// # Errors
    /// Every address that is not ours.
    pub(super) fn bind(config: &Config) -> Result<Self, Failure> {
        let mut taken = Vec::new();
        let mut bind = |key, flag, at| bind_one(&mut taken, (key, flag, at));
        let listen = &config.listen;
        let grpc = bind("listen.grpc", "--grpc", listen.grpc);
        let http = bind("listen.http", "--http", listen.http);
        let kafka = listen.kafka.iter().filter_map(|listener| {
            let bound = bind("listen.kafka", "--kafka", listener.bind)?;
            Some((listener.clone(), bound))
        });
        let kafka = kafka.collect();
        match (grpc, http) {
            (Some(grpc), Some(http)) if taken.is_empty() => Ok(Self { grpc, http, kafka }),
            _ => Err(failures::addresses(&taken)),
        }
    }
}

/// The addresses of a bookie: its calls, and HTTP.
///
/// # Errors
/// Every address that is not ours.
pub(super) fn bind_bookie(config: &Config) -> Result<(TcpListener, TcpListener), Failure> {
    let mut taken = Vec::new();
    let listen = &config.listen;
    let calls = bind_one(&mut taken, ("listen.bookie", "--listen", listen.bookie));
    let http = bind_one(&mut taken, ("listen.http", "--http", listen.http));
    match (calls, http) {
        (Some(calls), Some(http)) => Ok((calls, http)),
        _ => Err(failures::addresses(&taken)),
    }
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
