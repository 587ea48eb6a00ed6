//! Whose records go when records are removed: those that a subscription has not acknowledged, in words for prompts and dry runs.

use std::collections::BTreeMap;

use hulse_sdk::{Admin, CursorState, Topic, UpdateEffect};

use crate::failure::Failure;
use crate::output::{bytes, grouped};

/// Subscriptions, and how many records each loses that it has not acknowledged.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    by_subscription: BTreeMap<String, u64>,
    /// Partitions of which nobody can tell.
    unknown: u64,
}

impl Losses {
    /// Of a topic, when each partition loses what lies below its entry of `ends`; without `ends` when all goes.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn find(
        admin: &Admin,
        topic: &str,
        ends: Option<&BTreeMap<u32, u64>>,
    ) -> Result<Self, Failure> {
        let failed = |error: hulse_sdk::Error| {
            Failure::from_sdk("cannot look at the subscriptions", topic, &error)
        };
        let mut losses = Self::default();
        for subscription in admin.list_subscriptions("", topic).await.map_err(failed)? {
            let described = admin
                .describe_subscription(&subscription.name, topic, true)
                .await;
            let cursors = match described {
                Ok((_, cursors)) => cursors,
                // It was deleted meanwhile.
                Err(error) if error.kind() == hulse_sdk::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            let lost = losses.by_subscription.entry(subscription.name).or_default();
            for cursor in cursors {
                let end = ends.map_or(Some(u64::MAX), |ends| ends.get(&cursor.partition).copied());
                match (&cursor.state, end) {
                    (Ok(state), Some(end)) => *lost += unacknowledged(state, end),
                    (Err(_), Some(_)) => losses.unknown += 1,
                    (_, None) => {}
                }
            }
        }
        Ok(losses)
    }

    /// What rules let go, as the server says.
    pub(super) fn of_effects(effects: &[UpdateEffect]) -> Self {
        let mut losses = Self::default();
        for effect in effects {
            losses.unknown += u64::from(effect.fault.is_some());
            for (subscription, records) in &effect.losses {
                let lost = losses.by_subscription.entry(subscription.clone());
                *lost.or_default() += records;
            }
        }
        losses
    }

    /// Nobody loses anything, for certain.
    pub(super) fn is_empty(&self) -> bool {
        self.unknown == 0 && self.by_subscription.values().all(|records| *records == 0)
    }

    /// To stand behind what is done; empty where there are no subscriptions.
    pub(super) fn words(&self) -> String {
        let lost = self.by_subscription.iter();
        let lost: Vec<String> = lost
            .filter(|(_, records)| **records > 0)
            .map(|(subscription, records)| format!("{subscription} {}", grouped(*records)))
            .collect();
        let mut words = match (&lost[..], self.by_subscription.is_empty()) {
            ([], true) => String::new(),
            ([], false) => "; its subscriptions have acknowledged these".to_owned(),
            _ => format!("; not acknowledged of these yet: {}", lost.join(", ")),
        };
        if self.unknown > 0 {
            words.push_str(&format!(
                "; {} partitions do not answer, so more may go",
                self.unknown
            ));
        }
        words
    }
}

/// What a change of a topic's rules lets go, in words; `None`: nothing.
pub(super) fn effect_words(topic: &str, effects: &[UpdateEffect]) -> Option<String> {
    let removed: u64 = effects.iter().map(|effect| effect.removed_records).sum();
    let size: u64 = effects.iter().map(|effect| effect.removed_bytes).sum();
    let losses = Losses::of_effects(effects);
    if removed == 0 && losses.is_empty() {
        return None;
    }
    let removed = match removed {
        0 => format!("let records of {topic} be passed over unread"),
        _ => format!(
            "let up to {} records of {topic} go, {}",
            grouped(removed),
            bytes(size)
        ),
    };
    Some(removed + &losses.words())
}

/// What a topic holds: "1,004 records, 12.0 KiB".
pub(super) fn held_words(topic: &Topic) -> String {
    let known = || {
        let all = topic.partition.iter();
        all.filter_map(|one| {
            Some((
                one.high_watermark?.0 - one.log_start?.0.min(one.high_watermark?.0),
                one.stored_bytes,
            ))
        })
    };
    let records: u64 = known().map(|(records, _)| records).sum();
    let size: u64 = known().filter_map(|(_, size)| size).sum();
    held(records, size, topic.partition.len() - known().count())
}

fn held(records: u64, size: u64, unknown: usize) -> String {
    let records = match records {
        1 => "1 record".to_owned(),
        records => format!("{} records", grouped(records)),
    };
    let words = format!("{records}, {}", bytes(size));
    match unknown {
        0 => words,
        _ => format!("{words}, and what is in {unknown} partitions that do not answer"),
    }
}

/// Records of a cursor below `end` that are not acknowledged. Ranges beyond those that the server lists count as not acknowledged.
fn unacknowledged(cursor: &CursorState, end: u64) -> u64 {
    let first = cursor.base.0.max(cursor.log_start.0);
    let end = end.min(cursor.high_watermark.0);
    let within = |range: &std::ops::Range<u64>| {
        let (from, to) = (range.start.max(first), range.end.min(end));
        to.saturating_sub(from)
    };
    let acked: u64 = cursor.acked.iter().map(within).sum();
    end.saturating_sub(first).saturating_sub(acked)
}

#[cfg(test)]
mod tests {
    use hulse_sdk::Offset;

    use super::*;

    #[test]
    fn records_below_an_end_count_but_for_those_that_are_acknowledged() {
        let mut cursor = CursorState::default();
        cursor.base = Offset(10);
        cursor.log_start = Offset(12);
        cursor.high_watermark = Offset(100);
        cursor.acked = vec![14..16, 50..60];
        assert_eq!(unacknowledged(&cursor, 12), 0);
        assert_eq!(unacknowledged(&cursor, 15), 2);
        assert_eq!(unacknowledged(&cursor, 52), 36);
        assert_eq!(unacknowledged(&cursor, u64::MAX), 76);
    }

    #[test]
    fn what_is_held_says_where_nobody_knows() {
        assert_eq!(held(1, 0, 0), format!("1 record, {}", bytes(0)));
        let words = held(2_000, 4_096, 3);
        assert!(words.starts_with("2,000 records, ") && words.contains("3 partitions"));
    }

    #[test]
    fn words_name_those_that_lose_and_say_when_nobody_does() {
        let losses = |list: &[(&str, u64)], unknown| Losses {
            by_subscription: list
                .iter()
                .map(|(name, records)| ((*name).to_owned(), *records))
                .collect(),
            unknown,
        };
        assert_eq!(losses(&[], 0).words(), "");
        let none = losses(&[("a", 0)], 0);
        assert!(none.is_empty() && none.words().contains("have acknowledged"));
        let some = losses(&[("a", 0), ("b", 2_000), ("c", 1)], 0);
        assert_eq!(
            some.words(),
            "; not acknowledged of these yet: b 2,000, c 1"
        );
        assert!(losses(&[], 3).words().contains("3 partitions"));
    }
}
