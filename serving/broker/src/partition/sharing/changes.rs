//! A dispatcher's delta, as the cursor's changes in the state chain.

use hulse_proto::id::Offset;
use hulse_proto::time::TimestampMs;
use serving_dispatch::QueueDelta;

use crate::state::Change;

/// In the order in which the cursor is to fold them: the move, the marks, the acks. `at` is the owner's clock.
pub(crate) fn changes_of(delta: QueueDelta, at: TimestampMs) -> Vec<Change> {
    let mut changes = Vec::with_capacity(2);
    if let Some(moved) = delta.moved {
        changes.push(Change::Moved {
            at,
            base: moved.base,
            state_epoch: moved.state_epoch,
            keep_acked: false,
        });
    }
    if !delta.marks.is_empty() {
        changes.push(Change::Marked(delta.marks));
    }
    if !delta.acked.is_empty() {
        changes.push(Change::Acked {
            at,
            to: Offset(0),
            ranges: delta.acked,
        });
    }
    changes.extend(delta.letters.map(Change::Letters));
    changes
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::SubscriptionId;
    use proptest::prelude::*;
    use serving_dispatch::{Letter, Mark, Moved, OffsetRange, QueueState, Why};
    use uuid::Uuid;

    use super::*;
    use crate::state::{CursorDelta, Cursors, MetaState, NewCursor};

    fn deltas() -> impl Strategy<Value = Vec<QueueDelta>> {
        let range = || (0..60_u64, 1..9_u64).prop_map(|(at, n)| OffsetRange::new(at, at + n));
        let mark = (0..3_u16, any::<bool>(), 0..5_i64).prop_map(|(failed, dead, retry_at)| Mark {
            failed,
            why: if failed > 0 { Why::Rejected } else { Why::None },
            letter: if dead { Letter::Wanted } else { Letter::None },
            retry_at,
        });
        let moved = prop::option::weighted(0.1, (0..50_u64, 1..9_u32));
        let marks = prop::collection::vec((range(), mark), 0..3);
        let acked = prop::collection::vec(range(), 0..4);
        let delta = (moved, marks, acked, prop::option::of(0..9_u64));
        let delta = delta.prop_map(|(moved, marks, acked, letters)| QueueDelta {
            moved: moved.map(|(base, state_epoch)| Moved {
                base: Offset(base),
                state_epoch,
            }),
            marks,
            acked,
            letters,
        });
        prop::collection::vec(delta, 1..12)
    }

    proptest! {
        /// What the dispatcher folds and what the state chain folds is one and the same, also from bytes and over a snapshot.
        #[test]
        fn cursor_folds_a_dispatchers_deltas_as_the_dispatcher_does(deltas in deltas()) {
            let id = SubscriptionId(Uuid::from_u128(1));
            let (mut cursors, mut queue) = (Cursors::default(), QueueState::new(Offset(4)));
            let new = NewCursor { name: "s".into(), hold: true, base: Offset(4), at: 1 };
            cursors.apply(&CursorDelta(vec![(id, Change::Made(new))]));
            for delta in deltas {
                queue.apply(&delta);
                let changes = changes_of(delta, 5).into_iter().map(|change| (id, change));
                let bytes = Cursors::encode_delta(&CursorDelta(changes.collect()));
                cursors.apply(&Cursors::decode_delta(&bytes).unwrap());
                let found = cursors.get(id).unwrap().queue_state();
                prop_assert_eq!(&found, &queue);
                let again = Cursors::decode(&cursors.encode()).unwrap();
                prop_assert_eq!(&again, &cursors);
            }
        }
    }
}
