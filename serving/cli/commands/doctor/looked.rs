//! How far the doctor looked, for the one who is told that all is well.

use crate::output::grouped;

/// What was looked at.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) topics: usize,
    pub(super) of_topics: usize,
    pub(super) partitions: usize,
    pub(super) subscriptions: usize,
    pub(super) of_subscriptions: usize,
    pub(super) ledgers: usize,
    /// Disk, clock and sync mode.
    pub(super) metrics: bool,
}

impl Looked {
    /// In a sentence, and what was not looked at.
    pub(super) fn words(&self) -> String {
        let mut at = vec![
            part(self.topics, self.of_topics, "topic"),
            part(self.partitions, self.partitions, "partition"),
            part(self.subscriptions, self.of_subscriptions, "subscription"),
            part(self.ledgers, self.ledgers, "ledger"),
        ];
        if self.metrics {
            at.push("disk, clock and sync mode".to_owned());
        }
        format!(
            "looked at {}; records were not read (hulse verify TOPIC reads those of one)",
            at.join(", ")
        )
    }
}

/// "3 topics", "the first 1,000 of 2,500 topics".
fn part(looked: usize, of: usize, one: &str) -> String {
    let many = if of == 1 { "" } else { "s" };
    let count = |count: usize| grouped(count as u64);
    match looked < of {
        true => format!("the first {} of {} {one}{many}", count(looked), count(of)),
        false => format!("{} {one}{many}", count(of)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_is_counted_and_what_was_left_out_too() {
        let looked = Looked {
            topics: 1_000,
            of_topics: 2_500,
            partitions: 1,
            ..Looked::default()
        };
        let words = looked.words();
        for part in [
            "the first 1,000 of 2,500 topics, 1 partition, 0 subscriptions",
            "not read",
        ] {
            assert!(words.contains(part), "{words}");
        }
        assert!(!words.contains("disk"), "{words}");
    }
}
