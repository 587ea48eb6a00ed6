//! With which partition a fetch begins, so that none starves (serving.md D2.7).
//!
//! It is the first one asked for, as clients expect, which rotate their order themselves. Not all do: where the limits of a fetch left
//! partitions out that had records, and the next one asks in the same order, it begins with the first of those.

use super::spot::{Spot, TopicKey};

/// What a connection's last fetch was.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// What it asked for first.
    first: Option<(TopicKey, i32)>,
    /// The first one in its order that was left out.
    left_out: Option<usize>,
}

impl Turn {
    /// Where a fetch of these spots begins.
    pub(super) fn begin(&mut self, spots: &[Spot]) -> usize {
        let same = match (&self.first, spots.first()) {
            (Some((topic, index)), Some(spot)) => spot.topic == *topic && spot.index == *index,
            _ => false,
        };
        let left_out = self.left_out.take();
        if same {
            return left_out.filter(|at| *at < spots.len()).unwrap_or(0);
        }
        let first = spots.first();
        self.first = first.map(|spot| (spot.topic.to_owned(), spot.index));
        0
    }

    /// A fetch left partitions out that had records, this one first.
    pub(super) fn left_out(&mut self, at: usize) {
        self.left_out = Some(at);
    }
}
