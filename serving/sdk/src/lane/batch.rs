//! A sealed batch: wire bytes, and the tickets that wait for its fate.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::batch::{ProducerStamp, stamp};

use super::event::Payload;
use crate::producer::BatchFate;

pub(crate) struct Batch {
    bytes: Bytes,
    records: u32,
    fate: Arc<BatchFate>,
}

impl Batch {
    /// `bytes` is one batch without a stamp, as `BatchBuilder::build` makes it, or one whose stamp is not to be changed.
    pub(crate) fn new(bytes: Bytes, records: u32, fate: Arc<BatchFate>) -> Self {
        Self {
            bytes,
            records,
            fate,
        }
    }
}

impl Payload for Batch {
    type Tag = Arc<BatchFate>;

    fn tag(&self) -> Arc<BatchFate> {
        Arc::clone(&self.fate)
    }

    fn records(&self) -> u32 {
        self.records
    }

    fn stamp(&mut self, producer: ProducerStamp) {
        if !self.fate.is_raw() {
            self.bytes = stamp(std::mem::take(&mut self.bytes), producer);
        }
    }

    fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}
