//! Case ST-02: retention by size and by time lets go what it may, and nothing that a subscription still needs. Case LD-07, step 2: a
//! producer outlives its records.

use std::time::{Duration, Instant};

use hulse_sdk::{
    Admin, Client, CursorSelection, CursorState, Keep, NewSubscription, NewTopic, Offset,
    Retention, Start, TopicChange, TrimTo,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::time::timeout;

use super::kafka_producers::KafkaProducers;
use super::numbers::{Counting, read_all, send};
use super::report::{report, rounds};
use super::server::{Server, restarted};

const PORT: u16 = 17_576;
const MIB: u64 = 1 << 20;
const RECORD: usize = 10 << 10;
/// Records of a MiB, with what the log adds to each.
const RECORDS_PER_MIB: u64 = 102;
/// What the case asks to stay, MiB.
const STAYS: u64 = 5;
/// A ledger is rolled at a MiB and takes one entry more, which on a slow machine is of two: of whole ledgers so much more may stay than
/// what is to stay, in records.
const COARSE: u64 = 3 * RECORDS_PER_MIB + RECORDS_PER_MIB / 4;
/// Ends a wait that would not end.
const WITHIN: Duration = Duration::from_secs(120);
/// Two rounds of retention, and some.
const TWO_CYCLES: Duration = Duration::from_millis(2_300);

const SETTINGS: [(&str, &str); 4] = [
    ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
    ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB"),
    ("HULSE_RETENTION__CHECK_INTERVAL", "1s"),
];

fn client(server: &Server) -> Client {
    Client::builder(server.address()).build().unwrap()
}

async fn with_retention(admin: &Admin, topic: &str, time: Keep<Duration>, bytes: Keep<u64>) {
    let retention = Retention { time, bytes };
    let new = NewTopic {
        partitions: 1,
        retention,
        ..NewTopic::default()
    };
    admin.create_topic_with(topic, new).await.unwrap();
}

/// Where the log starts and ends.
async fn bounds(admin: &Admin, topic: &str) -> (u64, u64) {
    let found = admin.offsets(topic, 0, None).await.unwrap();
    (found.start.0, found.end.0)
}

async fn until_start(admin: &Admin, topic: &str, what: &str, holds: impl Fn(u64, u64) -> bool) {
    let begun = Instant::now();
    loop {
        let (start, end) = bounds(admin, topic).await;
        if holds(start, end) {
            return;
        }
        let waited = begun.elapsed();
        assert!(
            waited < WITHIN,
            "{what}: the log is {start} to {end} after {waited:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn subscribe(admin: &Admin, topic: &str, name: &str, start: Start) {
    let mut new = NewSubscription::new(name, topic);
    new.start = start;
    assert!(admin.create_subscription(new).await.unwrap().1);
}

async fn cursor(admin: &Admin, topic: &str, name: &str) -> CursorState {
    let (_, cursors) = admin
        .describe_subscription(name, topic, false)
        .await
        .unwrap();
    cursors[0].state.clone().unwrap()
}

async fn to_the_end(admin: &Admin, topic: &str, name: &str) {
    let which = CursorSelection::new(name).topic(topic);
    let moved = admin
        .seek_subscription(&which, Start::Latest, false)
        .await
        .unwrap();
    assert!(moved[0].fault.is_none(), "{moved:?}");
}

/// The cursor points at what is there.
async fn points_at_something(admin: &Admin, topic: &str, name: &str) -> CursorState {
    let seen = cursor(admin, topic, name).await;
    let words = "the cursor points at what is gone";
    assert!(seen.base >= seen.log_start, "{words}: {seen:?}");
    seen
}

/// While nobody sends: the backlog is what a reader would find.
async fn backlog_is_real(admin: &Admin, topic: &str, name: &str) {
    let seen = points_at_something(admin, topic, name).await;
    let real = seen.high_watermark.0 - seen.base.0 - seen.acked_records;
    assert_eq!(seen.backlog_records, real, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn size_retention_keeps_its_size_and_what_a_subscription_needs() {
    let mut server = Server::start_with(PORT, &SETTINGS);
    let client = client(&server);
    let admin = client.admin();
    with_retention(&admin, "sized", Keep::All, Keep::UpTo(STAYS * MIB)).await;
    subscribe(&admin, "sized", "a", Start::Earliest).await;
    let mut sent = Counting::into_existing(&client, "sized").await;
    sent.send_many(10 * RECORDS_PER_MIB, RECORD).await;
    sent.producer.flush().await.unwrap();
    tokio::time::sleep(TWO_CYCLES).await;
    assert_eq!(bounds(&admin, "sized").await.0, 0, "a has consumed nothing");

    to_the_end(&admin, "sized", "a").await;
    let least = STAYS * RECORDS_PER_MIB * 95 / 100;
    let most = STAYS * RECORDS_PER_MIB + COARSE;
    until_start(&admin, "sized", "size", |start, end| end - start <= most).await;
    tokio::time::sleep(TWO_CYCLES).await;
    let (start, end) = bounds(&admin, "sized").await;
    assert!((least..=most).contains(&(end - start)), "{start} to {end}");
    let found = read_all(&client, "sized").await;
    assert_eq!(
        (found[0].1, found.len() as u64),
        (start, end - start),
        "the oldest went first"
    );

    // A subscription stands somewhat behind the start: nothing from there on goes.
    let stands = start + RECORDS_PER_MIB + 20;
    subscribe(&admin, "sized", "b", Start::Offset(Offset(stands))).await;
    sent.send_many(8 * RECORDS_PER_MIB, RECORD).await;
    sent.producer.flush().await.unwrap();
    to_the_end(&admin, "sized", "a").await;
    tokio::time::sleep(TWO_CYCLES).await;
    server = restarted(server).await;
    tokio::time::sleep(TWO_CYCLES).await;
    let (held, end) = bounds(&admin, "sized").await;
    assert!(held <= stands, "{held} is beyond {stands}, where b stands");
    backlog_is_real(&admin, "sized", "b").await;
    assert_eq!(
        cursor(&admin, "sized", "b").await.backlog_records,
        end - stands
    );
    to_the_end(&admin, "sized", "b").await;
    until_start(&admin, "sized", "b has gone on", |start, end| {
        end - start <= most
    })
    .await;
    let (start, end) = bounds(&admin, "sized").await;
    assert!(end - start >= least, "{start} to {end}");
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_made_at_earliest_while_a_trim_runs_never_points_at_what_is_gone() {
    let mut server = Server::start_with(PORT + 2, &SETTINGS);
    let client = client(&server);
    let admin = client.admin();
    with_retention(&admin, "trimmed", Keep::All, Keep::UpTo(MIB)).await;
    let mut sent = Counting::into_existing(&client, "trimmed").await;
    let loops = rounds(8, 200);
    let (mut starts, mut random) = (Vec::new(), ChaCha8Rng::seed_from_u64(11_241));
    for round in 0..loops {
        sent.send_many(2 * RECORDS_PER_MIB, RECORD).await;
        // Nothing holds now: the next round of retention falls due somewhere in here.
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1_200))).await;
        sent.send_many(RECORDS_PER_MIB / 2, RECORD).await;
        let name = format!("s-{round}");
        subscribe(&admin, "trimmed", &name, Start::Earliest).await;
        let _others_send = points_at_something(&admin, "trimmed", &name).await;
        sent.producer.flush().await.unwrap();
        if round % 4 == 3 {
            server = restarted(server).await;
        }
        let base = cursor(&admin, "trimmed", &name).await.base;
        starts.push(base.0);
        backlog_is_real(&admin, "trimmed", &name).await;
        let builder = client.consumer("trimmed").subscription(&name).build();
        let consumer = timeout(WITHIN, builder).await.unwrap().unwrap();
        let first = timeout(WITHIN, consumer.receive())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(first.offset, base);
        let _one_is_left = consumer.close().await.unwrap();
        admin
            .delete_subscription(&name, "trimmed", true)
            .await
            .unwrap();
    }
    assert!(
        starts.is_sorted() && starts.last() > starts.first(),
        "{starts:?}"
    );
    report(&format!("subscriptions made while a trim runs: {loops}"));
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_retention_keeps_the_young_and_whichever_limit_is_reached_first_counts() {
    const TIME: Duration = Duration::from_secs(3);
    let server = Server::start_with(PORT + 4, &SETTINGS);
    let client = client(&server);
    let admin = client.admin();
    with_retention(&admin, "timed", Keep::UpTo(TIME), Keep::All).await;
    let mut sent = Counting::into_existing(&client, "timed").await;
    let begun = Instant::now();
    sent.send_many(4 * RECORDS_PER_MIB, RECORD).await;
    sent.producer.flush().await.unwrap();
    while begun.elapsed() < TIME - Duration::from_millis(500) {
        let (start, _) = bounds(&admin, "timed").await;
        assert!(
            start == 0 || begun.elapsed() >= TIME,
            "a young record is gone"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // What is closed goes; the ledger that is written to stays until it is rolled.
    until_start(&admin, "timed", "time", |start, _| {
        start >= 2 * RECORDS_PER_MIB
    })
    .await;

    let both = TopicChange {
        retention_time: Some(Keep::UpTo(Duration::from_secs(3_600))),
        retention_bytes: Some(Keep::UpTo(MIB)),
        ..TopicChange::default()
    };
    admin.update_topic("timed", both).await.unwrap();
    sent.send_many(6 * RECORDS_PER_MIB, RECORD).await;
    sent.producer.flush().await.unwrap();
    let most = RECORDS_PER_MIB + COARSE;
    until_start(&admin, "timed", "size of both", |start, end| {
        end - start <= most
    })
    .await;
    let (start, end) = bounds(&admin, "timed").await;
    assert!(
        end - start >= RECORDS_PER_MIB * 95 / 100,
        "{start} to {end}"
    );
    let both = TopicChange {
        retention_time: Some(Keep::UpTo(Duration::from_millis(1))),
        retention_bytes: Some(Keep::UpTo(1_000 * MIB)),
        ..TopicChange::default()
    };
    admin.update_topic("timed", both).await.unwrap();
    until_start(&admin, "timed", "time of both", |now, _| now > start).await;
}

/// Everything that the producers sent so far goes: by a trim and a restart, which ends the ledger.
async fn all_gone(server: Server, admin: &Admin, topic: &str) -> Server {
    let (_, end) = bounds(admin, topic).await;
    let trimmed = admin.trim(topic, &[(0, TrimTo::End)]).await.unwrap();
    assert_eq!(trimmed[0].log_start, Ok(Offset(end)));
    let server = restarted(server).await;
    assert_eq!(bounds(admin, topic).await, (end, end));
    let begun = Instant::now();
    loop {
        let ledgers = admin.list_ledgers(topic).await.unwrap();
        let stores =
            |ledger: &&hulse_sdk::Ledger| ledger.kind == "log" && ledger.record_count > Some(0);
        if !ledgers.iter().any(|ledger| stores(&ledger)) {
            return server;
        }
        assert!(begun.elapsed() < WITHIN, "{ledgers:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_whose_records_were_all_trimmed_goes_on_where_it_was() {
    let kafka = format!("127.0.0.1:{}", PORT + 8);
    let settings = [&SETTINGS[..], &[("HULSE_LISTEN__KAFKA", kafka.as_str())]].concat();
    let mut server = Server::start_with(PORT + 6, &settings);
    let client = client(&server);
    let admin = client.admin();
    admin.create_topic("own", 1).await.unwrap();
    let producer = client.producer("own").build().await.unwrap();
    let mut others = KafkaProducers::start(&kafka);
    for group in 0..4_u64 {
        let numbers = 10 * group..10 * group + 10;
        for number in numbers.clone() {
            let ticket = send(&producer, number, 8, None).await.unwrap();
            let receipt = timeout(WITHIN, ticket).await.unwrap().unwrap();
            assert_eq!(
                (receipt.offset, receipt.duplicate),
                (Some(Offset(number)), false)
            );
        }
        for other in &mut others {
            assert_eq!(
                other.send(10),
                numbers.clone().collect::<Vec<_>>(),
                "{}",
                other.topic
            );
        }
        let topics = others.iter().map(|other| other.topic.clone());
        for topic in topics.chain(["own".to_owned()]) {
            let found = read_all(&client, &topic).await;
            let found: Vec<u64> = found.iter().map(|(place, _)| place.1).collect();
            assert_eq!(found, numbers.clone().collect::<Vec<_>>(), "{topic}");
            server = all_gone(server, &admin, &topic).await;
        }
    }
    producer.close().await.unwrap();
    report(&format!(
        "producers that outlived their records: {}",
        1 + others.len()
    ));
}
