//! `--delivery at_most_once`: acknowledges first, prints then, and acknowledges no more than it prints.
//!
//! Records are gathered in a piece; its acknowledgements have their receipts before the first of its records is printed. A record that
//! comes again, after a broken link or a seek, takes the place of its copy in the piece, which was never acknowledged.

use std::collections::BTreeMap;

use hulse_sdk::{Error, ReceivedRecord, SubscriptionConsumer};

use super::printing::PIECE_BYTES;

/// What a record costs beside its key and value, bytes.
const RECORD_COST: usize = 64;

/// Records that were received and are not acknowledged: each with the number of its topic.
#[derive(Default)]
pub(super) struct Ahead {
    records: Vec<(usize, ReceivedRecord)>,
    bytes: usize,
}

/// Records that are not printed, since they may be anybody's.
pub(super) struct Withheld {
    /// Number of the topic.
    pub(super) topic: usize,
    pub(super) partition: u32,
    pub(super) records: u64,
    pub(super) why: Error,
}

impl Ahead {
    /// Takes a record; answers how many it takes the place of.
    pub(super) fn push(&mut self, topic: usize, record: ReceivedRecord) -> u64 {
        let before = self.records.len();
        self.records.retain(|(of, held)| {
            *of != topic || held.partition != record.partition || held.offset < record.offset
        });
        let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len());
        self.bytes += RECORD_COST + length(&record.key) + length(&record.value);
        self.records.push((topic, record));
        (before + 1 - self.records.len()) as u64
    }

    /// There is enough to be printed.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= PIECE_BYTES
    }

    /// Acknowledges all of it and waits for the receipts. What may be printed, in the order in which it came, and what may not. Dropped
    /// while it waits, nothing is printed of it.
    pub(super) async fn acknowledged(
        &mut self,
        consumers: &[&SubscriptionConsumer],
    ) -> (Vec<(usize, ReceivedRecord)>, Vec<Withheld>) {
        self.bytes = 0;
        let records = std::mem::take(&mut self.records);
        let mut last: BTreeMap<(usize, u32), (u64, &ReceivedRecord)> = BTreeMap::new();
        for (topic, record) in &records {
            let place = last.entry((*topic, record.partition));
            let (count, newest) = place.or_insert((0, record));
            (*count, *newest) = (*count + 1, record);
        }
        // All are sent before the first is waited for.
        let sent: Vec<_> = last
            .iter()
            .map(|((topic, partition), (count, record))| {
                let receipt = consumers[*topic].ack_cumulative(record);
                (*topic, *partition, *count, receipt)
            })
            .collect();
        let mut withheld = Vec::new();
        for (topic, partition, records, receipt) in sent {
            if let Err(why) = receipt.await {
                withheld.push(Withheld {
                    topic,
                    partition,
                    records,
                    why,
                });
            }
        }
        let is_withheld = |topic: usize, partition: u32| {
            let mut all = withheld.iter();
            all.any(|one| one.topic == topic && one.partition == partition)
        };
        let mut records = records;
        records.retain(|(topic, record)| !is_withheld(*topic, record.partition));
        (records, withheld)
    }
}
