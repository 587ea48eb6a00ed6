//! What these tests share.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::timeout;

use crate::testing::Server;
use crate::{Client, Producer, ReadRecord, Record, Start};

pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn client(server: &Server) -> Client {
    Client::builder(server.address())
        .seed([7; 32])
        .build()
        .unwrap()
}

pub(super) async fn read_all(client: &Client, topic: &str) -> Vec<ReadRecord> {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.unwrap();
    let mut records = Vec::new();
    while let Some(record) = timeout(PATIENCE, reader.next()).await.unwrap().unwrap() {
        records.push(record);
    }
    assert!(reader.at_end());
    records
}

pub(super) fn number(record: &ReadRecord) -> u64 {
    String::from_utf8(record.value.clone().unwrap().to_vec())
        .unwrap()
        .parse()
        .unwrap()
}

/// Checks that records of a key stand in order, none twice, and returns how many there are.
pub(super) fn check_order(records: &[ReadRecord]) -> usize {
    let mut last: BTreeMap<_, u64> = BTreeMap::new();
    for record in records {
        let before = last.insert(record.key.clone(), number(record));
        assert!(
            before.is_none_or(|before| before < number(record)),
            "order or duplicate"
        );
    }
    records.len()
}

pub(super) async fn send(producer: &Producer, count: u64) -> Vec<crate::Ticket> {
    let mut tickets = Vec::new();
    for number in 0..count {
        let key = format!("key {}", number % 13);
        let record = Record::new(number.to_string()).key(key);
        tickets.push(
            timeout(PATIENCE, producer.send(record))
                .await
                .unwrap()
                .unwrap(),
        );
    }
    tickets
}
