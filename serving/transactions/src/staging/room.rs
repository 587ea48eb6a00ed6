//! Items that have grown old are appended anew, so that the ledgers below can go (ARCHITECTURE D3).

use hulse_proto::id::Offset;

use super::change::Change;
use super::core::Staging;
use super::item::ItemId;
use super::request::Effect;
use crate::limits::RENEWING_MAX;

impl Staging {
    /// The log below could go.
    pub(super) fn make_room(&mut self, below: Offset) {
        self.room = self.room.max(below);
        self.renew();
    }

    /// Asks for the oldest payloads to be appended anew, a few at a time. One that was not appended is asked for again with the next tick.
    pub(super) fn renew(&mut self) {
        let room = RENEWING_MAX.saturating_sub(self.renewing.len());
        let below = self.state.placed_below(self.room);
        let below = below.filter(|id| !self.renewing.contains(id));
        let below: Vec<ItemId> = below.take(room).collect();
        for id in below {
            if let Some(item) = self.state.get(id) {
                self.renewing.insert(id);
                let place = item.place;
                self.out.push(Effect::Renew { id, place });
            }
        }
    }

    pub(super) fn on_renewed(&mut self, id: ItemId, place: Option<Offset>) {
        if !self.renewing.remove(&id) {
            return;
        }
        let needed = self
            .state
            .get(id)
            .is_some_and(|item| item.status.needs_payload());
        if let Some(place) = place.filter(|_| needed) {
            self.propose(Some(id), Change::Renewed { id, place });
            self.renew();
        }
    }
}
