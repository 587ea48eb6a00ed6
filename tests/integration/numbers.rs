//! Numbered records: what was sent, what was acknowledged, what came back.
//!
//! Number what is sent, check the numbers on arrival: LOST, DUP, ORDER and GHOST of the cases' common ground.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Error, Producer, Record, Start, Ticket};

/// A refusal that lasts so long is the answer.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// A server answers by then, if it does at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// Where a record is: partition and offset.
pub(crate) type Place = (u32, u64);

/// Sends `number` padded to `bytes`.
pub(crate) async fn send(
    producer: &Producer,
    number: u64,
    bytes: usize,
    partition: Option<u32>,
) -> Result<Ticket, Error> {
    let mut record = Record::new(format!("{number:0bytes$}"));
    if let Some(partition) = partition {
        record = record.partition(partition);
    }
    producer.send(record).await
}

/// Numbers of a topic from its start up to its end or an error. One that only says that the server does not answer is asked again for
/// long: the machine may be busy.
pub(crate) async fn read_until_error(
    client: &Client,
    topic: &str,
) -> (Vec<(Place, u64)>, Option<Error>) {
    let begun = Instant::now();
    loop {
        match read_once(client, topic).await {
            (_, Some(error)) if error.reason().is_none() && begun.elapsed() < ANSWERS_WITHIN => {}
            read => return read,
        }
    }
}

async fn read_once(client: &Client, topic: &str) -> (Vec<(Place, u64)>, Option<Error>) {
    let mut found = Vec::new();
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = match reader.retry_timeout(REFUSED_FOR).build().await {
        Ok(reader) => reader,
        Err(error) => return (found, Some(error)),
    };
    loop {
        match reader.next().await {
            Ok(Some(record)) => {
                let text = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
                found.push(((record.partition, record.offset.0), text.parse().unwrap()));
            }
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

/// A producer of numbers, and what is known of them.
pub(crate) struct Counting {
    pub(crate) producer: Producer,
    /// The number that comes next.
    pub(crate) next: u64,
    tickets: Vec<(u64, Ticket)>,
}

impl Counting {
    /// Into a topic of one partition, which is made.
    pub(crate) async fn begin(client: &Client, topic: &str) -> Self {
        client.admin().create_topic(topic, 1).await.unwrap();
        Self::into_existing(client, topic).await
    }

    /// Into a topic that is there.
    pub(crate) async fn into_existing(client: &Client, topic: &str) -> Self {
        Self {
            producer: client.producer(topic).build().await.unwrap(),
            next: 0,
            tickets: Vec::new(),
        }
    }

    /// Sends the next number, padded.
    pub(crate) async fn send(&mut self, bytes: usize) {
        let ticket = send(&self.producer, self.next, bytes, None).await;
        self.tickets.push((self.next, ticket.unwrap()));
        self.next += 1;
    }

    /// Sends so many.
    pub(crate) async fn send_many(&mut self, records: u64, bytes: usize) {
        for _ in 0..records {
            self.send(bytes).await;
        }
    }

    /// What became of all of them; each must be acknowledged.
    pub(crate) async fn finish(self) -> BTreeMap<u64, Place> {
        let (acknowledged, failed) = settle(self.tickets).await;
        assert!(failed.is_empty(), "{:?}", failed.first_key_value());
        self.producer.close().await.unwrap();
        acknowledged
    }
}

/// Everything that was acknowledged is there, once, in its place and in order, and nothing else.
pub(crate) async fn all_there(client: &Client, topic: &str, acknowledged: &BTreeMap<u64, Place>) {
    check(
        acknowledged,
        &BTreeMap::new(),
        &read_all(client, topic).await,
        true,
    );
}

/// Waits for all tickets. Acknowledged numbers and their places; the others with their errors.
pub(crate) async fn settle(
    tickets: Vec<(u64, Ticket)>,
) -> (BTreeMap<u64, Place>, BTreeMap<u64, Error>) {
    let (mut acknowledged, mut failed) = (BTreeMap::new(), BTreeMap::new());
    for (number, ticket) in tickets {
        match ticket.await {
            Ok(receipt) => {
                let offset = receipt.offset.expect("a quorum answers with an offset").0;
                acknowledged.insert(number, (receipt.partition, offset));
            }
            Err(error) => {
                failed.insert(number, error);
            }
        }
    }
    (acknowledged, failed)
}

/// Everything in the topic, in order per partition.
pub(crate) async fn read_all(client: &Client, topic: &str) -> Vec<(Place, u64)> {
    let mut reader = client
        .reader(topic)
        .start(Start::Earliest)
        .follow(false)
        .build()
        .await
        .unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        let text = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
        let number = text
            .parse()
            .unwrap_or_else(|_| panic!("{text:?} was never sent"));
        found.push(((record.partition, record.offset.0), number));
    }
    found
}

/// Panics on a lost, doubled, displaced or reordered number. `in_order`: numbers of one partition must ascend.
pub(crate) fn check(
    acknowledged: &BTreeMap<u64, Place>,
    failed: &BTreeMap<u64, Error>,
    found: &[(Place, u64)],
    in_order: bool,
) {
    let mut places: BTreeMap<u64, Place> = BTreeMap::new();
    let mut last: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (place, number) in found {
        let (partition, offset) = *place;
        let before = places.insert(*number, *place);
        assert!(
            before.is_none(),
            "DUP: {number} stands at {before:?} and at {place:?}"
        );
        let known = acknowledged.contains_key(number)
            || failed.get(number).is_some_and(Error::possibly_written);
        assert!(
            known,
            "GHOST: {number} at {place:?} was reported as not written, or never sent"
        );
        let before = last.insert(partition, (offset, *number));
        let dense = before.is_none_or(|(before, _)| before + 1 == offset);
        assert!(
            dense,
            "offsets of partition {partition} jump from {before:?} to {offset}"
        );
        let ascends = before.is_none_or(|(_, before)| before < *number);
        assert!(
            ascends || !in_order,
            "ORDER: {number} follows {before:?} in partition {partition}"
        );
    }
    for (number, place) in acknowledged {
        assert_eq!(
            places.get(number),
            Some(place),
            "LOST or displaced: {number} was acknowledged at {place:?}"
        );
    }
}
