//! One session as the core sees it: its lanes, its credit, the numbers of its deliveries.

use std::collections::BTreeMap;

use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_up::Item;

use super::acks::AckLimits;
use super::credit::{Amount, Credit};
use super::event::{Out, SessionId};
use crate::error::Error;

#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    pub(super) credit: Credit,
    credit_epoch: u64,
    pub(super) limits: AckLimits,
    /// Number of the last delivery.
    seen: u64,
    /// Partition of each lane.
    pub(super) lanes: BTreeMap<u32, u32>,
    next_lane: u32,
}

impl Session {
    pub(super) fn new(id: SessionId, welcome: &v1::ConsumeWelcome) -> Self {
        Self {
            id,
            credit: Credit::new(Amount::default()),
            credit_epoch: welcome.credit_epoch,
            limits: AckLimits::of(welcome),
            seen: 0,
            lanes: BTreeMap::new(),
            next_lane: 0,
        }
    }

    /// The number of a new lane.
    pub(super) fn begin_lane(&mut self, partition: u32) -> u32 {
        let lane = self.next_lane;
        self.next_lane += 1;
        self.lanes.insert(lane, partition);
        lane
    }

    /// A delivery came.
    ///
    /// # Errors
    /// One before it did not.
    pub(super) fn counts(&mut self, delivery_seq: u64) -> Result<(), Error> {
        self.seen += 1;
        self.hears(delivery_seq)
    }

    /// The broker says how many deliveries it has sent.
    ///
    /// # Errors
    /// Not all of them came.
    pub(super) fn hears(&self, last: u64) -> Result<(), Error> {
        match last == self.seen {
            true => Ok(()),
            false => Err(Error::wrong_answer(&format!(
                "delivery {last} where {} had to be the last",
                self.seen
            ))),
        }
    }

    /// Grants what there is to grant.
    pub(super) fn grant(&mut self, out: &mut Out) {
        if let Some(amount) = self.credit.grant() {
            let credit = v1::ConsumeCredit {
                credit_epoch: self.credit_epoch,
                records: amount.records.unsigned_abs(),
                bytes: amount.bytes.unsigned_abs(),
                lane: None,
            };
            out.sends.push((self.id, Item::Credit(credit)));
        }
    }

    /// What the heartbeat says.
    pub(super) fn heartbeat(&self) -> Item {
        Item::Heartbeat(v1::ConsumeHeartbeat {
            last_delivery_seq: self.seen,
        })
    }
}
