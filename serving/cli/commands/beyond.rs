//! What is said where a position lies behind everything that is stored: nothing is read there, and silence could mean anything.

use hulse_proto::time::WallClock as _;
use hulse_sdk::{Client, Offset, Start};

use crate::format::date_and_time;
use crate::output::grouped;
use crate::position::Place;
use crate::roles::SystemClock;

/// Partitions that are named; the others are counted.
const NAMED_MAX: usize = 3;
/// Partitions whose last record is looked at for its time.
const LAST_MAX: usize = 64;

/// The offsets of a partition that was looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) partition: u32,
    pub(crate) start: u64,
    /// Exclusive.
    pub(crate) end: u64,
}

/// Why nothing is at `place` or behind it, in any of the partitions that are read.
pub(crate) async fn words(client: &Client, topic: &str, place: Place, all: &[Held]) -> String {
    let filled: Vec<Held> = all
        .iter()
        .copied()
        .filter(|held| held.start < held.end)
        .collect();
    if filled.is_empty() {
        return match all {
            [only] => format!("partition {} of {topic} holds no records", only.partition),
            _ => format!("{topic} holds no records"),
        };
    }
    let Some(time) = place.time(SystemClock.now_ms()) else {
        return format!(
            "nothing of {topic} stands at {place} or behind it: {}",
            holding(&filled)
        );
    };
    let last = last_time(client, topic, &filled).await;
    let last = last.map_or_else(String::new, |last| {
        format!("; its last record carries {}", date_and_time(last))
    });
    format!(
        "no record of {topic} carries {} or a later time{last} (records are found by the time that they carry, which their producer may have set)",
        date_and_time(time)
    )
}

/// "partition 0 holds 0 to 2, 1 holds 5 to 9, and 6 others end as well".
fn holding(filled: &[Held]) -> String {
    let named = filled.iter().take(NAMED_MAX).map(|held| {
        format!(
            "partition {} holds offsets {} to {}",
            held.partition,
            grouped(held.start),
            grouped(held.end - 1)
        )
    });
    let named: Vec<String> = named.collect();
    match filled.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{}, and {more} more end before it too", named.join(", ")),
    }
}

/// The latest time that a last record carries; `None` where nobody can tell.
async fn last_time(client: &Client, topic: &str, filled: &[Held]) -> Option<i64> {
    let looked = || filled.iter().take(LAST_MAX);
    let mut builder = client.reader(topic).follow(false);
    for held in looked() {
        let last = Start::Offset(Offset(held.end - 1));
        builder = builder.start_at(held.partition, last);
    }
    let partitions = looked().map(|held| held.partition);
    let mut reader = builder.partitions(partitions).build().await.ok()?;
    let mut latest = None;
    while let Ok(Some(record)) = reader.next().await {
        latest = latest.max(Some(record.timestamp));
    }
    latest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_up_to_some_and_counted_then() {
        let held = |partition| Held {
            partition,
            start: 0,
            end: 1_500,
        };
        let all: Vec<Held> = (0..5).map(held).collect();
        assert_eq!(holding(&all[..1]), "partition 0 holds offsets 0 to 1,499");
        assert!(holding(&all).ends_with("and 2 more end before it too"));
    }
}
