//! The listeners of the Kafka wire, from their configuration and their sockets.

use serving_broker::WireListener;
use serving_kafka::{Advertise, KafkaListener, ListenerConfig};
use tokio::net::TcpListener;

use super::seams::{connections_max, open_files_max};
use crate::config::KafkaListen;

/// Makes listeners of bound sockets, of one of so many brokers of this process; `seed` gives each its chance.
pub(super) fn listeners(
    bound: Vec<(KafkaListen, TcpListener)>,
    brokers: u32,
    mut seed: impl FnMut() -> [u8; 32],
) -> Vec<Box<dyn WireListener>> {
    let (_, connections) = connections_max(open_files_max() / u64::from(brokers), bound.len());
    let one = |(listener, socket): (KafkaListen, TcpListener)| -> Box<dyn WireListener> {
        let config = ListenerConfig {
            name: listener.name,
            advertise: advertise(&listener.advertise),
            connections_max: connections,
            seed: seed(),
        };
        Box::new(KafkaListener::new(config, socket))
    };
    bound.into_iter().map(one).collect()
}

fn advertise(text: &str) -> Advertise {
    let parts = text.rsplit_once(':');
    match parts.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        // An IPv6 address stands in brackets beside a port, and without them where clients read it.
        Some((host, port)) => Advertise::Fixed(host.trim_matches(['[', ']']).to_owned(), port),
        None => Advertise::Auto,
    }
}
