//! What a handle hands out of what its member read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hulse_proto::batch::{BatchBuilder, BatchHeader, Compression, RecordRef};
use hulse_proto::id::{Offset, PartitionId, TopicId};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use super::StreamConsumer;
use super::book::Given;
use super::feed::{Fed, What};
use super::shared::Shared;
use crate::Client;
use crate::reader::{Chunk, RecordBatch};

const AT: PartitionId = PartitionId {
    topic: TopicId(Uuid::from_u128(1)),
    index: 0,
};
const WAIT: Duration = Duration::from_millis(50);

/// A batch of three records from `base` on.
fn batch(base: u64, damaged: bool) -> RecordBatch {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for _ in 0..3 {
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value: Some(b"x"),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    let built = builder.build(None);
    let mut header = BatchHeader::view(&built).unwrap();
    header.base_offset = Offset(base);
    let mut bytes = built.to_vec();
    if damaged && let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    RecordBatch {
        partition: 0,
        header,
        bytes: Bytes::from(bytes),
        append_time: 1,
    }
}

/// A member that has one partition, of which `batches` are here.
async fn member(batches: Vec<RecordBatch>) -> (Arc<Shared>, StreamConsumer) {
    let client = Client::builder("localhost:1").build().unwrap();
    let (shared, consumer) = client.stream_consumer(["t"]).group("g").parts();
    let given = Given {
        at: AT,
        topic: "public/default/t".into(),
        begin: 0,
    };
    let number = {
        let mut book = shared.book();
        book.assigned(1, vec![given], Instant::now());
        book.reading()[&AT].number
    };
    let end = batches.last().map_or(0, |last| last.header.end_offset().0);
    let chunk = Chunk {
        partition: 0,
        batches,
        skipped: Vec::new(),
        end,
        high_watermark: end,
        lost: 0,
        bytes: 0,
    };
    let room = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
    let fed = Fed {
        at: AT,
        number,
        what: What::Chunk(chunk, room),
    };
    assert!(shared.fed.send(fed).await.is_ok(), "the handle takes it");
    (shared, consumer)
}

fn offsets(records: &[super::StreamRecord]) -> Vec<u64> {
    records.iter().map(|record| record.offset.0).collect()
}

#[tokio::test]
async fn call_for_records_that_is_dropped_takes_none_with_it() {
    let (_shared, consumer) = member(vec![batch(0, false)]).await;
    let polled_once = consumer.receive(10, WAIT).now_or_never();
    let mut records = polled_once.transpose().unwrap().unwrap_or_default();
    records.extend(consumer.receive(10, WAIT).await.unwrap());
    assert_eq!(offsets(&records), [0, 1, 2]);
}

#[tokio::test]
async fn damaged_batch_behind_records_is_told_of_by_the_next_call_and_passed_over_then() {
    let batches = vec![batch(0, false), batch(3, true), batch(6, false)];
    let (_shared, consumer) = member(batches).await;
    let records = consumer.receive(10, WAIT).await.unwrap();
    assert_eq!(offsets(&records), [0, 1, 2]);
    let error = consumer.receive(10, WAIT).await.unwrap_err();
    let own = batch(3, true).records().unwrap_err();
    assert_eq!(error.to_string(), own.to_string());
    let records = consumer.receive(10, WAIT).await.unwrap();
    assert_eq!(offsets(&records), [6, 7, 8]);
}
