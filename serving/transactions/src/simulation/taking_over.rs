//! An owner that dies, and a reader of committed records, who knows nothing but what the owner gives it.

use std::collections::BTreeSet;

use bytes::BytesMut;
use hulse_proto::id::Offset;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use serving_dispatch::OffsetRanges;

use super::message::{Sent, unknown};
use super::partitions::{Partition, apply_log, apply_state};
use crate::Marker;
use crate::partition::{Door, LogTransactions, StateChange, StateTransactions};

impl Partition {
    /// Another owner takes over, with what has landed of what was on its way.
    pub(super) fn kill(&mut self, rng: &mut ChaCha12Rng) -> Sent {
        let log = rng.random_range(0..=self.log_way.len());
        let landed: Vec<_> = self.log_way.drain(..).take(log).collect();
        for (_, entry, _) in landed {
            self.fold(&entry);
            self.log.push(entry);
        }
        let state = rng.random_range(0..=self.state_way.len());
        let landed: Vec<_> = self.state_way.drain(..).take(state).collect();
        for (_, entry, _) in landed {
            apply_state(&mut self.m, &mut self.acked, &entry);
            self.states.push(entry);
        }
        let (l, m, acked) = self.replay(rng);
        assert_eq!(
            (&l, &m, &acked),
            (&self.l, &self.m, &self.acked),
            "live is not replay"
        );
        (self.l, self.m, self.acked) = (l, m, acked);
        self.door = Door::mutated(self.mutation);
        self.waiting.clear();
        self.life += 1;
        self.check_stable();
        let marking = std::mem::take(&mut self.marking).into_iter();
        marking
            .filter_map(|marking| unknown(marking.told))
            .collect()
    }

    /// From snapshots at two points.
    fn replay(&self, rng: &mut ChaCha12Rng) -> (LogTransactions, StateTransactions, OffsetRanges) {
        let mut l = LogTransactions::default();
        let at = rng.random_range(0..=self.log.len());
        for (number, entry) in self.log.iter().enumerate() {
            if number == at {
                l = LogTransactions::decode_from(&mut &l.encode()[..]).unwrap();
            }
            apply_log(&mut l, entry);
        }
        let (mut m, mut acked) = (StateTransactions::default(), OffsetRanges::default());
        let at = rng.random_range(0..=self.states.len());
        for (number, (change, acks)) in self.states.iter().enumerate() {
            if number == at {
                m = StateTransactions::decode(&m.encode()).unwrap();
            }
            let mut out = BytesMut::new();
            change.encode_into(&mut out);
            let change = StateChange::decode_from(&mut &out[..]).unwrap();
            apply_state(&mut m, &mut acked, &(change, acks.clone()));
        }
        (l, m, acked)
    }

    /// A reader of committed records goes on, at most so far.
    pub(super) fn read(&mut self, most: u64) {
        let end = self.door.stable(self.view());
        let end = end.min(Offset(self.position.0 + most));
        let read = self.committed(self.position, end);
        self.seen.extend(read);
        self.position = end;
    }

    /// What a client makes of `from..end` and the list of what was aborted: it knows nothing but these.
    pub(super) fn committed(&self, from: Offset, end: Offset) -> Vec<u64> {
        let aborted = self.door.aborted(self.view(), from, end);
        assert!(aborted.is_sorted_by_key(|aborted| aborted.first));
        let mut aborted = aborted.into_iter().peekable();
        let mut dropped = BTreeSet::new();
        let mut values = Vec::new();
        for entry in &self.log[from.0 as usize..end.0 as usize] {
            while let Some(next) = aborted.next_if(|next| next.first.0 <= entry.first) {
                dropped.insert(next.producer);
            }
            let batch = &entry.envelope.batches[0];
            match entry.value {
                None => {
                    if Marker::of_summary(batch).is_some_and(|marker| !marker.commit) {
                        dropped.remove(&batch.producer_id);
                    }
                }
                Some(value) if !dropped.contains(&batch.producer_id) => values.push(value),
                Some(_) => {}
            }
        }
        values
    }
}
