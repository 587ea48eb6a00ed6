//! L and M together: what needs both (ARCHITECTURE D3, D10).

use hulse_proto::id::ProducerId;

use super::log::LogTransactions;
use super::state::StateTransactions;

/// Both halves of a partition, as they are confirmed.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// L's.
    pub log: &'a LogTransactions,
    /// M's.
    pub state: &'a StateTransactions,
}

impl View<'_> {
    /// The epoch below which a producer is fenced; −1: nothing is known.
    pub fn epoch(&self, id: ProducerId) -> i16 {
        let log = self.log.get(id).map_or(-1, |known| known.epoch);
        let state = self.state.get(id).map_or(-1, |known| known.epoch);
        log.max(state)
    }

    /// The highest epoch of a coordinator of this producer; −1: none.
    pub fn coordinator_epoch(&self, id: ProducerId) -> i32 {
        let log = self.log.get(id).map_or(-1, |known| known.coordinator_epoch);
        let state = self
            .state
            .get(id)
            .map_or(-1, |known| known.coordinator_epoch);
        log.max(state)
    }
}
