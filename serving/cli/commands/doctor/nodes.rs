//! The other nodes of a cluster: what metadata say of them, and what each says of itself. Who is slow or full is found here.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::Cluster;

use super::finding::{Ailment, Finding};
use super::metrics::Metrics;
use super::{http, numbers};
use crate::commands::cluster::findings;

/// Nodes that are asked: each takes its time.
const NODES_MAX: usize = 64;

/// Asks every node that tells where. `asked`: the one whose metrics were looked at already. `here`: the cluster is on this machine;
/// otherwise what listens on loopback only cannot be asked, and is passed over.
pub(super) fn examine(
    info: &Cluster,
    asked: Option<&str>,
    here: bool,
    wait: Duration,
) -> Vec<Finding> {
    let mut found = findings(info);
    let brokers = info.brokers.iter();
    let brokers = brokers.map(|one| ("broker", &one.name, one.http.as_str()));
    let bookies = info.bookies.iter().map(|one| {
        let http = one.live.as_ref().map_or("", |live| live.http.as_str());
        ("bookie", &one.name, http)
    });
    let mut seen: BTreeSet<&str> = asked.into_iter().collect();
    let told = brokers
        .chain(bookies)
        .filter(|(_, _, at)| !at.is_empty() && (here || !loopback(at)) && seen.insert(at));
    for (role, name, at) in told.take(NODES_MAX) {
        let object = format!("{role} {name}");
        match http::get(at, "/metrics", wait) {
            Ok(answer) => {
                let metrics = Metrics::parse(&answer.body);
                let ours = env!("CARGO_PKG_VERSION");
                found.extend(numbers::of_metrics(&metrics, &object, ours));
            }
            Err(why) => found.push(
                Ailment::SilentNode
                    .found("a node does not answer, though its lease stands", object)
                    .why(why)
                    .next("look at its log; it may be frozen, or just have been killed"),
            ),
        }
    }
    found
}

/// True for an address that only this machine reaches.
pub(super) fn loopback(at: &str) -> bool {
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    ip.map_or(host == "localhost", |ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_told_from_others() {
        for here in ["127.0.0.1:7480", "[::1]:7480", "localhost:1"] {
            assert!(loopback(here), "{here}");
        }
        for there in ["10.0.0.7:7480", "broker-1.cell:7480"] {
            assert!(!loopback(there), "{there}");
        }
    }
}
