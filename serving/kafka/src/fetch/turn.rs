//! With which partition a fetch begins, so that none starves (serving.md D2.7).
//!
//! It is the first one asked for, as clients expect, which rotate their order themselves. Not all do: where the limits of a fetch left
//! partitions out that had records, and the next one asks in the same order, it begins one further.

use super::spot::{Spot, TopicKey};

/// What a connection's last fetch began with.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    first: Option<(TopicKey, i32)>,
    start: usize,
    /// It left partitions out.
    short: bool,
}

impl Turn {
    /// Where a fetch of these spots begins.
    pub(super) fn begin(&mut self, spots: &[Spot]) -> usize {
        let same = match (&self.first, spots.first()) {
            (Some((topic, index)), Some(spot)) => spot.topic == *topic && spot.index == *index,
            _ => false,
        };
        let start = match same && self.short {
            true => (self.start + 1) % spots.len(),
            false => 0,
        };
        if !same {
            let first = spots.first();
            self.first = first.map(|spot| (spot.topic.to_owned(), spot.index));
        }
        self.start = start;
        self.short = false;
        start
    }

    /// A fetch left partitions out that had records.
    pub(super) fn left_out(&mut self) {
        self.short = true;
    }
}
