//! Log.Read and Log.Offsets.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, BatchHeader, Compression, RecordRef};
use hulse_proto::entry::crc32c;
use hulse_proto::error::Reason;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::wire::v1::{self, read_response::Item};
use tonic::Streaming;

use super::session::Session;
use super::world::{World, fault, partition, plain, reason};

fn request(topic: &Bytes, start: u64, follow: bool) -> v1::ReadRequest {
    v1::ReadRequest {
        partition: partition(topic, 0),
        start,
        max_bytes_in_flight: 0,
        follow,
    }
}

/// What a read answers until its end or until it caught up: base offsets of the batches, and where the log ended.
async fn until_end(stream: &mut Streaming<v1::ReadResponse>) -> (Vec<u64>, u64) {
    let mut bases = Vec::new();
    loop {
        match stream.message().await.unwrap().unwrap().item.unwrap() {
            Item::Batches(batches) => {
                assert_eq!(batches.batches.len(), batches.append_times.len());
                let views = batches
                    .batches
                    .iter()
                    .map(|b| BatchHeader::view(b).unwrap());
                bases.extend(views.map(|view| view.base_offset.0));
            }
            Item::EndOfLog(end) => return (bases, end.offset),
        }
    }
}

async fn produce(session: &mut Session, seqs: std::ops::Range<u64>, batch: &Bytes) {
    for seq in seqs {
        session.batch(0, seq, batch.clone()).await;
        assert!(session.word().await.starts_with("ack"));
    }
}

#[tokio::test]
async fn read_gives_whole_batches_from_the_one_that_holds_the_start() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    produce(&mut session, 0..4, &plain(3, 10)).await;
    let mut stream = world
        .log()
        .read(request(&topic, 4, false))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(until_end(&mut stream).await, (vec![3, 6, 9], 12));
    assert!(
        stream.message().await.unwrap().is_none(),
        "the stream ends at the end of the log"
    );
    let offsets = v1::OffsetsRequest {
        partition: partition(&topic, 0),
        at_time: Some(2),
        start_only: false,
    };
    let offsets = world.log().offsets(offsets).await.unwrap().into_inner();
    assert_eq!((offsets.log_start, offsets.high_watermark), (0, 12));
    assert_eq!(
        (offsets.offset_at_time, offsets.timestamp_at_time),
        (Some(2), Some(2))
    );
}

/// A batch of one record at `time` whose header names `max` as its latest time.
fn timed(time: i64, max: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    let record = RecordRef {
        timestamp: time,
        key: None,
        value: Some(b"x"),
        headers: &[],
    };
    builder.push(&record).unwrap();
    let mut bytes = builder.build(None).to_vec();
    bytes[35..43].copy_from_slice(&max.to_be_bytes());
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[tokio::test]
async fn header_that_names_a_later_time_does_not_hide_the_records_behind_it() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    for (seq, (time, max)) in [(5, i64::MAX), (7, 7), (9, 9)].into_iter().enumerate() {
        produce(&mut session, seq as u64..seq as u64 + 1, &timed(time, max)).await;
    }
    for (asked, found) in [(4, Some(0)), (6, Some(1)), (8, Some(2)), (10, None)] {
        let request = v1::OffsetsRequest {
            partition: partition(&topic, 0),
            at_time: Some(asked),
            start_only: false,
        };
        let offsets = world.log().offsets(request).await.unwrap().into_inner();
        assert_eq!(offsets.offset_at_time, found, "at {asked}");
    }
}

#[tokio::test]
async fn offsets_out_of_range_are_refused_with_the_range() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    produce(&mut session, 0..1, &plain(3, 10)).await;
    let fault = fault(world.log().read(request(&topic, 4, true)).await);
    assert_eq!(fault.reason, Reason::OffsetOutOfRange);
    assert_eq!(
        (
            &*fault.details["log_start"],
            &*fault.details["high_watermark"]
        ),
        ("0", "3")
    );
    let huge = world.log().read(request(&topic, u64::MAX, false)).await;
    assert_eq!(reason(huge), Reason::OffsetOutOfRange);
    let unknown = world
        .log()
        .read(request(&Bytes::from(vec![7; 16]), 0, false))
        .await;
    assert_eq!(reason(unknown), Reason::TopicNotFound);
    let short = world
        .log()
        .read(request(&Bytes::from_static(b"x"), 0, false))
        .await;
    assert_eq!(reason(short), Reason::InvalidRequest);
    let mut greedy = request(&topic, 0, false);
    greedy.max_bytes_in_flight = u32::MAX;
    assert_eq!(
        reason(world.log().read(greedy).await),
        Reason::InvalidRequest
    );
}

#[tokio::test]
async fn readers_that_do_not_listen_are_bounded_together_and_stop_nobody() {
    let world = World::with(|config| config.read_ahead_bytes = 2 << 20).await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    produce(&mut session, 0..64, &plain(8, 16 << 10)).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut request = request(&topic, 0, true);
        request.max_bytes_in_flight = 32 << 20;
        silent.push(world.log().read(request).await.unwrap());
    }
    // On a connection of its own: within one, HTTP/2 gives its window to all streams together.
    let mut listening = world.another().await;
    let stream = listening.read(request(&topic, 0, false)).await.unwrap();
    let mut stream = stream.into_inner();
    let (_, end) = tokio::time::timeout(Duration::from_secs(20), until_end(&mut stream))
        .await
        .expect("who listens is served");
    assert_eq!(end, 64 * 8);
    let metrics = world.get("/metrics").await;
    let sent = metrics
        .lines()
        .find_map(|line| line.strip_prefix("hulse_bytes_out_total "))
        .expect("it is counted");
    // 8 MiB for who listens; for each of the others a batch in the room and one in its connection.
    let sent: u64 = sent.parse().unwrap();
    assert!(sent < 40 << 20, "{sent} bytes were read ahead");
    drop(silent);
}

#[tokio::test]
async fn following_read_tells_each_time_that_it_caught_up_until_the_topic_goes() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    let mut stream = world
        .log()
        .read(request(&topic, 0, true))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(until_end(&mut stream).await, (vec![], 0));
    produce(&mut session, 0..1, &plain(2, 10)).await;
    assert_eq!(until_end(&mut stream).await, (vec![0], 2));
    produce(&mut session, 1..2, &plain(2, 10)).await;
    assert_eq!(until_end(&mut stream).await, (vec![2], 4));
    let request = v1::DeleteTopicRequest {
        name: "a".to_owned(),
        topic_uuid: bytes::Bytes::new(),
    };
    world.admin().delete_topic(request).await.unwrap();
    assert_eq!(reason(stream.message().await), Reason::TopicDeleting);
}

#[tokio::test]
async fn large_log_comes_in_small_messages_through_a_small_window() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    produce(&mut session, 0..20, &plain(1, 700_000)).await;
    let mut small = request(&topic, 0, false);
    small.max_bytes_in_flight = 100_000;
    let mut stream = world.log().read(small).await.unwrap().into_inner();
    let mut next = 0;
    while let Some(message) = stream.message().await.unwrap() {
        match message.item.unwrap() {
            Item::Batches(batches) => {
                assert_eq!(batches.prev_end_offset, next);
                next += batches.batches.len() as u64;
                let bytes: usize = batches.batches.iter().map(Bytes::len).sum();
                assert!(bytes <= 1_000_000, "{bytes}");
            }
            Item::EndOfLog(end) => assert_eq!((end.offset, next), (20, 20)),
        }
    }
    assert_eq!(next, 20);
}

#[tokio::test]
async fn reader_that_hangs_up_leaves_nothing_behind() {
    let mut world = World::new().await;
    let topic = world.topic("a", 1).await;
    for _ in 0..20 {
        drop(world.log().read(request(&topic, 0, true)).await.unwrap());
    }
    let mut last = world
        .log()
        .read(request(&topic, 0, true))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(until_end(&mut last).await, (vec![], 0));
    world.stop();
    assert_eq!(reason(last.message().await), Reason::ShuttingDown);
    world.stopped().await;
}

/// The newest ledger is lost: what is below it is read, and then, and wherever a read begins above, the reader hears why there is no
/// more; never that this is the end.
#[tokio::test]
async fn read_of_a_damaged_partition_gives_what_is_below_and_says_where_the_doubt_begins() {
    let mut world = World::new().await;
    let topic = world.topic("a", 1).await;
    for life in 0..2 {
        let mut session = Session::on(&world, &topic).await;
        produce(&mut session, 0..3, &plain(1, 10)).await;
        if life == 1 {
            let request = v1::ListLedgersRequest::default();
            let listed = world.admin().list_ledgers(request).await.unwrap();
            let mut logs = listed.into_inner().ledgers.into_iter();
            let newest = logs.rfind(|ledger| ledger.kind == "log");
            let newest = LedgerId(newest.unwrap().ledger);
            world.stop();
            world.stopped().await;
            world.bookie.lose_tail(newest, EntryId(0));
        } else {
            world.stop();
            world.stopped().await;
        }
        world = World::over(world.memory.clone(), |_| {}).await;
    }
    for follow in [false, true] {
        let read = world.log().read(request(&topic, 0, follow)).await;
        let mut stream = read.unwrap().into_inner();
        let mut bases = Vec::new();
        let end = loop {
            match stream.message().await {
                Ok(item) => match item.unwrap().item.unwrap() {
                    Item::Batches(found) => bases.extend(
                        found
                            .batches
                            .iter()
                            .map(|batch| BatchHeader::view(batch).unwrap().base_offset.0),
                    ),
                    Item::EndOfLog(end) => panic!("this is no end: {end:?}"),
                },
                Err(status) => break reason(Err::<(), _>(status)),
            }
        };
        assert_eq!((bases, end), (vec![0, 1, 2], Reason::DataDamaged));
    }
    for start in [3, 5, 6, 7, 1_000] {
        let read = world.log().read(request(&topic, start, false)).await;
        let said = match read {
            Ok(answer) => answer.into_inner().message().await,
            Err(status) => Err(status),
        };
        assert_eq!(reason(said), Reason::DataDamaged, "from {start}");
    }
    let offsets = |start_only| v1::OffsetsRequest {
        partition: partition(&topic, 0),
        at_time: None,
        start_only,
    };
    let start = world.log().offsets(offsets(true)).await.unwrap();
    assert_eq!(start.into_inner().log_start, 0);
    let all = world.log().offsets(offsets(false)).await;
    assert_eq!(reason(all), Reason::DataDamaged);
}
