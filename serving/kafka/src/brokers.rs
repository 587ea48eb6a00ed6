//! The brokers of the cluster as Kafka's clients hear of them.

use std::collections::BTreeMap;

use hulse_proto::error::Fault;
use hulse_proto::id::NodeName;
use serving_broker::{BrokerView, KafkaPlace};

use crate::link::Link;

/// A broker that clients may dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The nodes of one answer: this broker, and the others that serve this wire.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    us: Node,
    others: BTreeMap<NodeName, Node>,
}

impl Nodes {
    /// Every node, this one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.us).chain(self.others.values())
    }

    /// The number of an owner, `None` meaning this broker; `None` where it does not serve this wire.
    pub(crate) fn id_of(&self, owner: Option<&NodeName>) -> Option<i32> {
        match owner {
            None => Some(self.us.id),
            Some(name) => self.others.get(name).map(|node| node.id),
        }
    }
}

impl Link {
    /// The nodes, as a client of this connection reaches them. Where another one's number cannot be read it is left out: its partitions
    /// have no leader for this answer.
    pub(crate) async fn nodes(&self) -> Nodes {
        let us = Node {
            id: self.served.node_id,
            host: self.host.clone(),
            port: self.port,
        };
        let mut others = BTreeMap::new();
        for broker in self.front().brokers() {
            if broker.name == self.front().config().name {
                continue;
            }
            let Some(place) = place_of(&broker, &self.served.listener) else {
                continue;
            };
            if let Ok(id) = self.number_of(&broker.name).await {
                let node = Node {
                    id,
                    host: place.host.clone(),
                    port: place.port,
                };
                others.insert(broker.name.clone(), node);
            }
        }
        Nodes { us, others }
    }

    /// A broker's number, which never changes. Bounded by the names of the cell.
    async fn number_of(&self, name: &NodeName) -> Result<i32, Fault> {
        let numbers = || {
            self.served
                .numbers
                .lock()
                .expect("no code panics while it holds this lock")
        };
        let known = numbers().get(name).copied();
        match known {
            Some(number) => Ok(number),
            None => {
                let number = self.front().node_id_of(name).await?;
                numbers().insert(name.clone(), number);
                Ok(number)
            }
        }
    }
}

/// Where a broker has the listener of this name, which is what the client can reach; else its first.
fn place_of<'a>(broker: &'a BrokerView, listener: &str) -> Option<&'a KafkaPlace> {
    let mut places = broker.kafka.iter();
    let named = places.find(|place| place.listener == listener);
    named.or_else(|| broker.kafka.first())
}
