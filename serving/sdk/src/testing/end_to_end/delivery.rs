//! What becomes of records when links break and brokers refuse.

use std::time::Duration;

use tokio::time::timeout;

use super::common::{PATIENCE, check_order, client, read_all, send};
use crate::testing::{Faults, Server};
use crate::{Acks, ErrorKind, Fault, Offset, Reason, Record};

#[tokio::test]
async fn broken_links_and_refusals_lose_duplicate_and_reorder_nothing() {
    for seed in 0..4 {
        let server = Server::start(seed, 3).await;
        server.set_faults(Faults {
            refuse: 20,
            cut_after: 15,
            cut_before: 15,
            cut_read: 15,
            refuse_finally: 0,
        });
        let client = client(&server);
        let producer = client.producer("t").max_bytes(2048).build().await.unwrap();
        let tickets = send(&producer, 20_000).await;
        for ticket in tickets {
            timeout(PATIENCE, ticket).await.unwrap().unwrap();
        }
        let stats = producer.stats();
        assert_eq!((stats.records_stored, stats.unacked_bytes), (20_000, 0));
        assert!(stats.lanes_opened > 3 && stats.refusals > 0 && stats.batches_duplicate > 0);
        producer.close().await.unwrap();
        let records = read_all(&client, "t").await;
        assert_eq!(check_order(&records), 20_000, "seed {seed}");
    }
}

#[tokio::test]
async fn final_refusals_are_told_and_the_rest_is_stored_in_order() {
    let server = Server::start(9, 2).await;
    server.set_faults(Faults {
        refuse_finally: 30,
        cut_after: 10,
        ..Faults::default()
    });
    let client = client(&server);
    let producer = client.producer("t").max_bytes(1024).build().await.unwrap();
    let tickets = send(&producer, 5000).await;
    let (mut stored, mut unknown) = (0, 0);
    for ticket in tickets {
        match timeout(PATIENCE, ticket).await.unwrap() {
            Ok(_) => stored += 1,
            Err(error) => {
                assert_eq!(error.reason(), Some(Reason::InvalidRecord));
                unknown += usize::from(error.possibly_written());
            }
        }
    }
    assert!(stored < 5000);
    producer.close().await.unwrap();
    server.set_faults(Faults::default());
    let records = read_all(&client, "t").await;
    let count = check_order(&records);
    assert!(
        (stored..=stored + unknown).contains(&count),
        "{stored} {unknown} {count}"
    );
}

#[tokio::test]
async fn dropped_tickets_are_told_by_flush_and_close() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let producer = client.producer("t").build().await.unwrap();
    drop(producer.send(Record::new("stored")).await.unwrap());
    producer.flush().await.unwrap();
    server.set_faults(Faults {
        refuse_finally: 1000,
        ..Faults::default()
    });
    drop(producer.send(Record::new("refused")).await.unwrap());
    let error = producer.flush().await.unwrap_err();
    assert_eq!((error.lost_tickets(), error.possibly_written()), (1, false));
    producer.flush().await.unwrap();
    drop(producer.send(Record::new("refused")).await.unwrap());
    assert_eq!(producer.close().await.unwrap_err().lost_tickets(), 1);
    assert_eq!(producer.stats().tickets_lost, 2);
    let error = producer.send(Record::new("late")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    producer.close().await.unwrap();
}

#[tokio::test]
async fn acks_none_hands_over_and_flush_waits_for_the_broker() {
    let server = Server::start(1, 2).await;
    let client = client(&server);
    let producer = client.producer("t").acks(Acks::None).build().await.unwrap();
    for ticket in send(&producer, 1000).await {
        assert_eq!(ticket.await.unwrap().offset, None);
    }
    producer.close().await.unwrap();
    assert_eq!(check_order(&read_all(&client, "t").await), 1000);
}

#[tokio::test]
async fn server_that_is_down_gives_the_delivery_timeout_and_certainty() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let builder = client
        .producer("t")
        .delivery_timeout(Duration::from_millis(300));
    let producer = builder.build().await.unwrap();
    producer
        .send(Record::new("a"))
        .await
        .unwrap()
        .await
        .unwrap();
    server.set_faults(Faults {
        cut_before: 1000,
        ..Faults::default()
    });
    let error = producer
        .send(Record::new("b"))
        .await
        .unwrap()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(error.possibly_written() && error.is_retryable());
    // It goes on in a higher epoch.
    server.set_faults(Faults::default());
    let receipt = producer
        .send(Record::new("c"))
        .await
        .unwrap()
        .await
        .unwrap();
    assert_eq!(receipt.offset, Some(Offset(1)));
    producer.close().await.unwrap();
}

#[tokio::test]
async fn record_that_is_refused_until_its_time_is_over_names_the_last_refusal_as_the_cause() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    server.set_faults(Faults {
        refuse: 1000,
        ..Faults::default()
    });
    let builder = client
        .producer("t")
        .delivery_timeout(Duration::from_millis(300));
    let producer = builder.build().await.unwrap();
    let ticket = producer.send(Record::new("a")).await.unwrap();
    let error = ticket.await.unwrap_err();
    assert_eq!(error.reason(), None);
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<Fault>());
    assert_eq!(cause.map(|fault| fault.reason), Some(Reason::Overloaded));
}

#[tokio::test]
async fn back_pressure_waits_and_try_send_does_not() {
    let server = Server::start(1, 1).await;
    server.set_faults(Faults {
        cut_before: 1000,
        ..Faults::default()
    });
    let client = client(&server);
    let builder = client.producer("t").max_unacked_bytes(2 << 20);
    let producer = builder.build().await.unwrap();
    let record = || Record::new(vec![0; 700 << 10]);
    let tickets = [
        producer.try_send(record()).unwrap(),
        producer.try_send(record()).unwrap(),
    ];
    let error = producer.try_send(record()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let waits = timeout(Duration::from_millis(50), producer.send(record())).await;
    assert!(waits.is_err());
    server.set_faults(Faults::default());
    timeout(PATIENCE, producer.send(record()))
        .await
        .unwrap()
        .unwrap()
        .await
        .unwrap();
    for ticket in tickets {
        ticket.await.unwrap();
    }
    let too_large = producer
        .send(Record::new(vec![0; 2 << 20]))
        .await
        .unwrap_err();
    assert_eq!(too_large.reason(), Some(Reason::BatchTooLarge));
    timeout(PATIENCE, producer.flush()).await.unwrap().unwrap();
    assert_eq!(producer.stats().unacked_bytes, 0);
}

#[tokio::test]
async fn dropped_producer_leaves_nobody_waiting() {
    let server = Server::start(1, 1).await;
    server.set_faults(Faults {
        cut_before: 1000,
        ..Faults::default()
    });
    let client = client(&server);
    let producer = client.producer("t").build().await.unwrap();
    let tickets = send(&producer, 10).await;
    drop(producer);
    for ticket in tickets {
        let error = timeout(PATIENCE, ticket).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
}
