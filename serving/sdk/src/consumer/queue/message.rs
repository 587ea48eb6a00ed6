//! A record that the application has, until it answers it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::lane::Order;
use crate::consumer::core::Amount;
use crate::reader::ReadRecord;

/// A record of a shared subscription. It reads as a [`ReadRecord`]. While it lives its lock is renewed; dropped without an answer it comes
/// again when its lock ends.
pub struct QueueMessage {
    pub(super) record: ReadRecord,
    /// Which delivery of the record this is, from 1.
    pub(super) delivery_count: u32,
    /// In which attachment of its partition it came.
    pub(super) attachment: u64,
    pub(super) state_epoch: u32,
    pub(super) alive: Arc<AtomicBool>,
    /// Until it is handed out.
    pub(super) room: Option<Arc<UnitRoom>>,
}

impl QueueMessage {
    /// Which delivery of the record this is, from 1; above 1: somebody was given it before.
    pub fn delivery_count(&self) -> u32 {
        self.delivery_count
    }

    /// True for the first answer.
    pub(super) fn answers(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }
}

impl Deref for QueueMessage {
    type Target = ReadRecord;

    fn deref(&self) -> &ReadRecord {
        &self.record
    }
}

impl fmt::Debug for QueueMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueMessage")
            .field("record", &self.record)
            .field("delivery_count", &self.delivery_count)
            .finish_non_exhaustive()
    }
}

/// What a stored batch takes of the receive queue, until its last record was taken out.
pub(super) struct UnitRoom {
    pub(super) attachment: u64,
    pub(super) amount: Amount,
    pub(super) orders: mpsc::UnboundedSender<Order>,
}

impl Drop for UnitRoom {
    fn drop(&mut self) {
        let (attachment, amount) = (self.attachment, self.amount);
        // A partition that has ended needs no room.
        let _ = self.orders.send(Order::Room { attachment, amount });
    }
}
