//! The node's live key `node/bookie/{name}`: what the role that runs it keeps renewed (storage.md C5).

use bookie_metadata::{LeaseId, Op};
use hulse_proto::wire::metadata as wire;
use prost::Message;

use super::node::BookieNode;
use crate::core::{Event, Level};

impl BookieNode {
    /// The key, as an operation bound to a lease. Written again whenever [`BookieNode::mode`] changes, and with each new
    /// lease; a renewal leaves it as it is.
    pub fn lease_op(&self, lease: LeaseId, endpoint: &str) -> Op {
        let value = wire::Node {
            boot_uuid: self.boot_uuid.as_bytes().to_vec().into(),
            endpoint: endpoint.to_owned(),
            boot_counter: self.boot_counter,
            clock_ms: self.clock.now_ms(),
            mode: self.mode().to_owned(),
            http: String::new(),
            kafka: Vec::new(),
        };
        Op::Put {
            key: format!("node/bookie/{}", self.member().bookie),
            value: value.encode_to_vec().into(),
            lease: Some(lease),
        }
    }

    /// What placement should know: `failed`, or how full the disk is: `normal`, `low`, `readonly` or `reserve` (storage.md D5).
    pub fn mode(&self) -> &'static str {
        let inner = self.shared.lock();
        match (inner.core.failed(), inner.core.level()) {
            (Some(_), _) => "failed",
            (None, level) if level < Level::ReadOnly && inner.core.read_only().is_some() => {
                Level::ReadOnly.name()
            }
            (None, level) => level.name(),
        }
    }

    /// Refuses (or with `None` takes again) new data; META, CONTROL, fences and recovery go on. For a node whose lease is lost by
    /// metadata's word, until a new one is granted; silence is no loss (C5, ARCHITECTURE D6).
    pub fn refuse_data(&self, why: Option<String>) {
        self.shared.feed(Event::ReadOnly(why));
    }
}
