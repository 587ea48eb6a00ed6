//! Public troubles, by their number in the collection of cases.

use hulse_proto::batch::{BatchBuilder, ProducerStamp, RecordRef};
use tokio::time::timeout;

use super::common::{PATIENCE, check_order, client, number, read_all};
use crate::testing::{Faults, Server};
use crate::{Compression, Reason, Record};

/// Case OR-03: idempotence off, batches of alternating size, five in flight, refusals between them.
#[tokio::test]
async fn pipelined_batches_without_idempotence_keep_their_order() {
    let server = Server::start(3, 1).await;
    server.set_faults(Faults {
        refuse: 50,
        ..Faults::default()
    });
    let client = client(&server);
    let builder = client.producer("t").idempotent(false);
    let producer = builder.build().await.unwrap();
    assert_eq!(producer.identity().await.unwrap(), None);
    let mut tickets = Vec::new();
    let mut next = 0;
    for count in [9, 1].into_iter().cycle().take(2000) {
        let mut builder = BatchBuilder::new(Compression::None).unwrap();
        for _ in 0..count {
            let value = next.to_string();
            let record = RecordRef {
                timestamp: 1,
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
            };
            builder.push(&record).unwrap();
            next += 1;
        }
        tickets.push(crate::raw::send(&producer, 0, builder.build(None), count).unwrap());
    }
    for ticket in tickets {
        timeout(PATIENCE, ticket).await.unwrap().unwrap();
    }
    let records = read_all(&client, "t").await;
    assert!(records.iter().map(number).eq(0..10_000));
}

fn raw_batch(id: i64, base_sequence: i32, count: u32) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for index in 0..count {
        let value = (base_sequence as u32 + index + 1).to_string();
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder.build(Some(ProducerStamp {
        id: hulse_proto::id::ProducerId(id),
        epoch: 0,
        base_sequence,
    }))
}

/// Case LD-04.
#[tokio::test]
async fn mixed_batch_is_refused_and_a_resumed_producer_goes_on() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let first = client.producer("t").build().await.unwrap();
    let identity = first.identity().await.unwrap().unwrap();
    let resumed = || client.producer("t").resume(identity).build();
    let raw = |base, count| raw_batch(identity.id.0, base, count);
    crate::raw::send(&first, 0, raw(0, 3), 3)
        .unwrap()
        .await
        .unwrap();
    let wrong = [
        (1, 4, Reason::SequenceOverlap),
        (4, 2, Reason::OutOfOrderSequence),
        (0, 7, Reason::SequenceOverlap),
        (7, 1, Reason::OutOfOrderSequence),
    ];
    for (base, count, reason) in wrong {
        let producer = resumed().await.unwrap();
        let error = crate::raw::send(&producer, 0, raw(base, count), count)
            .unwrap()
            .await;
        assert_eq!(error.unwrap_err().reason(), Some(reason));
    }
    let producer = resumed().await.unwrap();
    assert_eq!(producer.last_sequence(0).await.unwrap(), 2);
    for value in 4..=9 {
        let ticket = producer.send(Record::new(value.to_string())).await.unwrap();
        ticket.await.unwrap();
    }
    assert_eq!(producer.last_sequence(0).await.unwrap(), 8);
    producer.close().await.unwrap();
    let records = read_all(&client, "t").await;
    assert_eq!(
        records.iter().map(number).collect::<Vec<_>>(),
        (1..=9).collect::<Vec<_>>()
    );
}

/// Case LD-07, step 1.
#[tokio::test]
async fn producer_goes_on_after_its_state_expired() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let producer = client.producer("t").build().await.unwrap();
    for round in 0..3 {
        for number in 0..10 {
            let record = Record::new((round * 10 + number).to_string());
            producer.send(record).await.unwrap().await.unwrap();
        }
        server.forget_producers();
        // The second time with a new link.
        if round == 1 {
            server.set_faults(Faults {
                cut_after: 500,
                ..Faults::default()
            });
        }
    }
    server.set_faults(Faults::default());
    producer.close().await.unwrap();
    assert_eq!(check_order(&read_all(&client, "t").await), 30);
}
