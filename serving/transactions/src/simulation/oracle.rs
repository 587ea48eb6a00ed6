//! What must have come of each transaction.

use std::collections::{BTreeMap, BTreeSet};

use super::client::Op;
use super::groups::{GroupShard, Record};
use super::partitions::Partition;
use crate::group::StageChange;

/// What is known of a transaction.
#[derive(Debug, Default)]
struct Known {
    done: Vec<Op>,
    /// Its client wanted it to end so.
    asked: Option<bool>,
    /// Its client heard that it did.
    told: Option<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    txns: Vec<Known>,
    pub(super) visible: u64,
    pub(super) invisible: u64,
}

impl Oracle {
    pub(super) fn begin(&mut self) -> u64 {
        self.txns.push(Known::default());
        self.txns.len() as u64 - 1
    }

    pub(super) fn count(&self) -> usize {
        self.txns.len()
    }

    pub(super) fn does(&mut self, number: u64, op: Op) {
        let known = &mut self.txns[number as usize];
        if !matches!(op, Op::Add(_)) && !known.done.contains(&op) {
            known.done.push(op);
        }
    }

    pub(super) fn ends(&mut self, number: u64, commit: bool) {
        self.txns[number as usize].asked = Some(commit);
    }

    pub(super) fn ended(&mut self, number: u64, commit: bool) {
        self.txns[number as usize].told = Some(commit);
    }

    pub(super) fn judge(&mut self, partitions: &[Partition], groups: &GroupShard) {
        let shown: Vec<Vec<u64>> = partitions.iter().map(shown).collect();
        let settled = Settled::of(groups);
        let mut acked = BTreeMap::new();
        for (number, known) in self.txns.iter().enumerate() {
            let mut seen = BTreeSet::new();
            for op in &known.done {
                seen.extend(match *op {
                    Op::Add(_) => None,
                    Op::Write { partition, value } => {
                        let copies = shown[partition].iter().filter(|other| **other == value);
                        let copies = copies.count();
                        assert!(copies <= 1, "{value} stands {copies} times in {partition}");
                        Some(copies == 1)
                    }
                    // Records that nobody else took; who took one is judged below.
                    Op::Ack { .. } => None,
                    Op::Offset(value) => {
                        Some(settled.committed.get(&value).copied().unwrap_or(false))
                    }
                });
            }
            assert!(
                seen.len() <= 1,
                "transaction {number} is seen in part: {known:?}"
            );
            let shows = seen.first().copied();
            let shows = shows.unwrap_or(known.told == Some(true));
            match known.told {
                Some(told) => assert_eq!(told, shows, "transaction {number}: {known:?}"),
                None => assert!(!shows || known.asked == Some(true), "{number}: {known:?}"),
            }
            match shows {
                true => self.visible += 1,
                false => self.invisible += 1,
            }
            if shows {
                for op in &known.done {
                    if let Op::Ack { partition, record } = *op {
                        let other = acked.insert((partition, record), number);
                        assert_eq!(other, None, "{record} of {partition} is taken twice");
                        let held = &partitions[partition].acked;
                        let range = serving_dispatch::OffsetRange::new(record, record + 1);
                        assert!(
                            held.within(range).next().is_some(),
                            "the ack of {number} is lost"
                        );
                    }
                }
            }
        }
        assert_eq!(groups.offset, settled.offset, "another offset is committed");
    }
}

/// All that a reader of committed records sees; what it saw on its way is the same.
fn shown(partition: &Partition) -> Vec<u64> {
    let all = partition.committed(hulse_proto::id::Offset(0), partition.end());
    assert_eq!(all, partition.seen, "a reader saw something else");
    all
}

/// What follows from the chain of groups by the rule alone: the last commit that was recorded wins.
#[derive(Default)]
struct Settled {
    offset: Option<u64>,
    /// Staged values, and whether their transaction was committed.
    committed: BTreeMap<u64, bool>,
}

impl Settled {
    fn of(groups: &GroupShard) -> Self {
        let mut this = Self::default();
        let mut staged: BTreeMap<i64, (usize, u64)> = BTreeMap::new();
        let mut last = 0;
        for (place, record) in groups.records().enumerate() {
            let mut commit = |place, value, offset: &mut Option<u64>| {
                if place >= last {
                    (last, *offset) = (place, Some(value));
                }
            };
            match record {
                Record::Plain(value) => commit(place, *value, &mut this.offset),
                Record::Change(StageChange::Staged {
                    producer, offsets, ..
                }) => {
                    let value = offsets[0].1.offset.0;
                    staged.insert(producer.id.0, (place, value));
                    this.committed.insert(value, false);
                }
                Record::Change(StageChange::Settled { marker, .. }) => {
                    if let Some((place, value)) = staged.remove(&marker.producer.id.0)
                        && marker.commit
                    {
                        commit(place, value, &mut this.offset);
                        this.committed.insert(value, true);
                    }
                }
                Record::Change(_) => {}
            }
        }
        this
    }
}
