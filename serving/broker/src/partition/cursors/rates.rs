//! How fast a cursor's backlog grows and shrinks: a small history of each cursor, from which people are told what has changed.
//!
//! The partition's task notes, at most once a second and only when something happens, where the log ends and how many records have left
//! the backlog. A history is bounded: what is older is kept more thinly, so that it reaches back for minutes. It begins anew with a seek.

use std::collections::{BTreeMap, VecDeque};

use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;

use super::view::CursorView;
use crate::partition::task::Task;

/// Between two notes.
const EVERY_MS: TimestampMs = 1_000;
/// Notes of one cursor; the older half of them is thinned when there are more.
const NOTES_MAX: usize = 64;
/// What happened in this time is told as of now …
const NOW_MS: TimestampMs = 10_000;
/// … once it was watched for so long …
const NOW_MS_MIN: TimestampMs = 2_000;
/// … and what happened before that, within this time, as of before …
const BEFORE_MS: TimestampMs = 600_000;
/// … if it lasted for so long.
const BEFORE_MS_MIN: TimestampMs = 5_000;

/// Records per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// That were appended.
    pub incoming: f64,
    /// That left the backlog.
    pub outgoing: f64,
    /// Both in the time before; `None`: it is too short.
    pub before: Option<(f64, f64)>,
}

/// Where a cursor stood.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Note {
    at: TimestampMs,
    /// The log's end.
    end: u64,
    /// Records that have left the backlog: all from offset 0 on that are not in it.
    gone: u64,
}

/// Of one cursor.
#[derive(Debug, Default)]
struct History {
    state_epoch: u32,
    notes: VecDeque<Note>,
}

impl History {
    fn note(&mut self, state_epoch: u32, note: Note) {
        let back = self.notes.back().is_some_and(|last| last.gone > note.gone);
        if self.state_epoch != state_epoch || back {
            self.notes.clear();
            self.state_epoch = state_epoch;
        }
        self.notes.push_back(note);
        if self.notes.len() > NOTES_MAX {
            let half = NOTES_MAX / 2;
            let mut at = 0;
            self.notes.retain(|_| {
                at += 1;
                at > half || at % 2 == 1
            });
        }
    }

    /// Where it stood at a time of late: between a note and the next one nothing happens, but for less than a second.
    fn at(&self, at: TimestampMs) -> Option<Note> {
        let before = self.notes.iter().rev().find(|note| note.at <= at)?;
        Some(Note { at, ..*before })
    }

    fn rates(&self, now: Note) -> Option<Rates> {
        let first = self.notes.front()?;
        let recent = self.at(now.at - NOW_MS).unwrap_or(*first);
        let (incoming, outgoing) = per_second(recent, now, NOW_MS_MIN)?;
        // Old notes are thin: what happened between two of them is not known, so one of them is taken as it is.
        let since = recent.at - BEFORE_MS;
        let oldest = self.notes.iter().find(|note| note.at >= since);
        Some(Rates {
            incoming,
            outgoing,
            before: oldest.and_then(|oldest| per_second(*oldest, recent, BEFORE_MS_MIN)),
        })
    }
}

fn per_second(from: Note, to: Note, ms_min: TimestampMs) -> Option<(f64, f64)> {
    let ms = to.at - from.at;
    let rate = |from: u64, to: u64| to.saturating_sub(from) as f64 * 1_000.0 / ms as f64;
    (ms >= ms_min).then(|| (rate(from.end, to.end), rate(from.gone, to.gone)))
}

/// Of all cursors of a partition, and what has become too old since the partition was opened.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    all: BTreeMap<SubscriptionId, History>,
    next_at: TimestampMs,
    expired: BTreeMap<SubscriptionId, u64>,
}

impl Histories {
    /// Records of a cursor became too old.
    pub(crate) fn expired(&mut self, id: SubscriptionId, records: u64) {
        *self.expired.entry(id).or_default() += records;
    }

    /// Adds what is known to views of cursors.
    pub(super) fn view(&self, views: &mut [CursorView], now: TimestampMs) {
        for view in views {
            let id = view.subscription;
            view.expired = self.expired.get(&id).copied().unwrap_or(0);
            let now = Note {
                at: now,
                end: view.end.0,
                gone: view.end.0 - view.backlog,
            };
            let history = self.all.get(&id);
            let history = history.filter(|history| history.state_epoch == view.state_epoch);
            view.rates = history.and_then(|history| history.rates(now));
        }
    }
}

impl Task {
    /// Notes where the cursors stand, if it is time.
    pub(super) fn note_rates(&mut self) {
        let now = self.clock.now_ms();
        let (cursors, offsets) = (&mut self.cursors, self.shown.offsets());
        let histories = &mut cursors.histories;
        if histories.next_at > now {
            return;
        }
        histories.next_at = now + EVERY_MS;
        let known = &self.core.state().meta;
        histories.all.retain(|id, _| known.get(*id).is_some());
        histories.expired.retain(|id, _| known.get(*id).is_some());
        let end = offsets.high_watermark;
        for (id, cursor) in known.iter() {
            let backlog = cursor.backlog(Offset(0).max(offsets.log_start), end);
            let note = Note {
                at: now,
                end: end.0,
                gone: end.0 - backlog,
            };
            let history = histories.all.entry(id).or_default();
            history.note(cursor.state_epoch, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(at: TimestampMs, end: u64, gone: u64) -> Note {
        Note { at, end, gone }
    }

    /// 100 in and out per second for `seconds`.
    fn steady(seconds: u64) -> History {
        let mut history = History::default();
        for second in 0..=seconds {
            let records = second * 100;
            history.note(0, note(second as i64 * 1_000, records, records));
        }
        history
    }

    #[test]
    fn what_is_new_is_told_beside_what_was_before() {
        let mut history = steady(30);
        assert_eq!(
            history.rates(note(30_000, 3_000, 3_000)).unwrap().before,
            Some((100.0, 100.0))
        );
        for second in 31..=40 {
            history.note(
                0,
                note(second * 1_000, 3_000 + (second as u64 - 30) * 300, 3_000),
            );
        }
        let rates = history.rates(note(40_000, 6_000, 3_000)).unwrap();
        assert_eq!((rates.incoming, rates.outgoing), (300.0, 0.0));
        assert_eq!(rates.before, Some((100.0, 100.0)));
        // Nothing happens any more, and so nothing is noted.
        let rates = history.rates(note(60_000, 6_000, 3_000)).unwrap();
        assert_eq!((rates.incoming, rates.outgoing), (0.0, 0.0));
    }

    #[test]
    fn short_histories_say_less_and_long_ones_stay_small() {
        assert_eq!(steady(0).rates(note(1_000, 5, 5)), None);
        let short = steady(5).rates(note(5_000, 500, 500)).unwrap();
        assert_eq!((short.incoming, short.before), (100.0, None));
        let long = steady(5_000);
        assert!(long.notes.len() <= NOTES_MAX);
        let rates = long.rates(note(5_000_000, 500_000, 500_000)).unwrap();
        assert_eq!(rates.before, Some((100.0, 100.0)));
        assert!(long.notes.front().unwrap().at <= 5_000_000 - 60_000);
    }

    #[test]
    fn history_begins_anew_with_a_seek() {
        let mut history = steady(30);
        history.note(1, note(31_000, 3_000, 10));
        assert_eq!(history.rates(note(32_000, 3_000, 10)), None);
        history.note(1, note(32_000, 3_000, 5));
        assert_eq!(history.notes.len(), 1);
    }
}
