//! One node for an hour (`tests/run --long`; some rounds otherwise): records are produced, followed and let go by retention, topics come
//! and go, and meanwhile the process is killed, stopped, started on a full disk, and its files are flipped (in a copy).
//!
//! What must hold: a follower of each lasting topic sees every number once, in order, without a gap, whatever happened; a copy with
//! a flipped bit serves right records or says what is damaged; disk and memory stay flat.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Producer, Record, Start};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::numbers::send;
use super::report::{report, rounds};
use super::server::{Server, log_files};

const PORT: u16 = 17_790;
/// Topics that last.
const LASTING: u64 = 3;
const RECORD_BYTES: usize = 1_000;
/// What producers send between two looks at the clock, per topic: about 1 MB/s.
const BURST: u64 = 20;
const PAUSE: Duration = Duration::from_millis(20);
/// Unanswered records of one producer.
const UNANSWERED_MAX: usize = 20_000;
/// Everything acknowledged must have come to the follower within this time after the last trouble.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(120);

/// Samples in a quarter of a run that is long enough to be judged.
const QUARTER_MIN: usize = 10;

const SETTINGS: [(&str, &str); 6] = [
    ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "4MiB"),
    ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
    ("HULSE_BOOKIE__COMPACTION_RATE", "64MiB"),
    ("HULSE_RETENTION__SIZE", "16MiB"),
    ("HULSE_RETENTION__CHECK_INTERVAL", "2s"),
];

/// A reserve that no disk has: the node takes no records (storage.md D1).
const FULL: (&str, &str) = ("HULSE_BOOKIE__DISK_RESERVE", "1000TiB");

/// What the tasks share.
struct Run {
    address: String,
    over: AtomicBool,
    /// Numbers sent, acknowledged and followed, by topic.
    sent: [AtomicU64; LASTING as usize],
    acknowledged: [AtomicU64; LASTING as usize],
    followed: [AtomicU64; LASTING as usize],
    churned: AtomicU64,
}

impl Run {
    fn client(&self) -> Client {
        Client::builder(&self.address).build().unwrap()
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn lasting(index: u64) -> String {
    format!("lasting-{index}")
}

/// Numbers from 0 on, in one partition, until the run is over; all of them must be acknowledged.
async fn produce(run: Arc<Run>, index: u64) {
    let producer = run.client().producer(lasting(index)).build().await.unwrap();
    let (mut number, mut unanswered) = (0, VecDeque::new());
    while !run.is_over() {
        for _ in 0..BURST {
            unanswered.push_back(send(&producer, number, RECORD_BYTES, None).await.unwrap());
            number += 1;
        }
        run.sent[index as usize].store(number, Ordering::Relaxed);
        while unanswered.len() > UNANSWERED_MAX {
            let ticket = unanswered.pop_front().expect("it is longer than that");
            ticket.await.unwrap();
            run.acknowledged[index as usize].fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(PAUSE).await;
    }
    for ticket in unanswered {
        ticket.await.unwrap();
        run.acknowledged[index as usize].fetch_add(1, Ordering::Relaxed);
    }
    producer.close().await.unwrap();
}

/// Reads every number, once and in order.
async fn follow(run: Arc<Run>, index: u64) {
    let reader = run.client().reader(lasting(index)).start(Start::Earliest);
    let mut reader = reader.build().await.unwrap();
    let mut expected = 0;
    loop {
        let record = reader.next().await.unwrap().expect("a follower has no end");
        assert_eq!(
            number(&record.value.unwrap()),
            expected,
            "{} at {}",
            lasting(index),
            record.offset
        );
        expected += 1;
        run.followed[index as usize].store(expected, Ordering::Relaxed);
    }
}

fn number(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("numbers are digits");
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} was never sent"))
}

/// Topics that come, are filled and go.
async fn churn(run: Arc<Run>, mut random: ChaCha8Rng) {
    let client = run.client();
    while !run.is_over() {
        let topic = format!("churn-{}", run.churned.fetch_add(1, Ordering::Relaxed));
        // Whether the broker was there to be asked is not the question here.
        if client.admin().create_topic(&topic, 2).await.is_ok()
            && let Ok(producer) = client.producer(&topic).build().await
        {
            fill(&producer, &mut random).await;
            let _its_records_go_with_it = producer.close().await;
        }
        while !run.is_over() && is_there(&client, &topic).await {
            let _again_until_it_is_gone = client.admin().delete_topic(&topic).await;
        }
    }
}

async fn fill(producer: &Producer, random: &mut ChaCha8Rng) {
    for _ in 0..random.random_range(50..300) {
        let mut body = vec![0; 64 << 10];
        random.fill(&mut body[..]);
        if producer.send(Record::new(Bytes::from(body))).await.is_err() {
            return;
        }
    }
}

async fn is_there(client: &Client, topic: &str) -> bool {
    match client.admin().list_topics("public/default").await {
        Ok(topics) => topics.iter().any(|found| found.name.ends_with(topic)),
        Err(_) => true,
    }
}

/// Bytes that the bookie's files take.
fn used(server: &Server) -> u64 {
    let items = std::fs::read_dir(server.data().join("bookie")).unwrap();
    let sizes = items.filter_map(|item| item.unwrap().metadata().ok());
    sizes.map(|metadata| metadata.blocks() * 512).sum()
}

/// A trouble, and the node is up again after it.
fn trouble(server: &mut Server, random: &mut ChaCha8Rng) -> &'static str {
    match random.random_range(0..6) {
        0 => {
            server.stop();
            server.restart();
            "stopped"
        }
        1 => {
            server.kill();
            server.set(FULL);
            server.restart();
            std::thread::sleep(Duration::from_millis(random.random_range(500..3_000)));
            server.kill();
            server.set(SETTINGS[2]);
            server.restart();
            "full"
        }
        2 => {
            server.kill();
            flipped(server, random);
            server.restart();
            "flipped"
        }
        _ => {
            server.kill();
            server.restart();
            "killed"
        }
    }
}

/// A copy of the stopped node with one flipped bit serves what it served, or says what is damaged.
fn flipped(server: &Server, random: &mut ChaCha8Rng) {
    let copied = server.copied(PORT + 4);
    let files = log_files(&copied.data());
    flip(&files[random.random_range(0..files.len())], random);
    let mut copied = copied;
    copied.spawn();
    if !copied.is_ready_or_ended() {
        return; // It says what is damaged and does not start.
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::builder(copied.address()).build().unwrap();
        for index in 0..LASTING {
            serves_no_wrong_record(&client, &lasting(index)).await;
        }
    });
}

async fn serves_no_wrong_record(client: &Client, topic: &str) {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let Ok(mut reader) = reader.retry_timeout(Duration::from_secs(2)).build().await else {
        return;
    };
    while let Ok(Some(record)) = reader.next().await {
        assert_eq!(number(&record.value.unwrap()), record.offset.0, "{topic}");
    }
}

fn flip(path: &Path, random: &mut ChaCha8Rng) {
    let mut bytes = std::fs::read(path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let at = random.random_range(0..=used);
    bytes[at] ^= 1 << random.random_range(0..8);
    std::fs::write(path, bytes).unwrap();
}

/// Samples of one measure.
#[derive(Default)]
struct Samples(Vec<u64>);

impl Samples {
    /// The highest of the last quarter is not far above that of the second.
    fn are_flat(&self, what: &str, slack: u64) {
        let quarter = self.0.len() / 4;
        let highest = |from: usize| {
            self.0[from..from + quarter]
                .iter()
                .copied()
                .max()
                .unwrap_or(0)
        };
        // A short run has not filled what it may fill.
        if quarter < QUARTER_MIN {
            return;
        }
        let (early, late) = (highest(quarter), highest(self.0.len() - quarter));
        report(&format!(
            "endurance: {what}: {} MiB in the second quarter, {} in the last",
            early >> 20,
            late >> 20
        ));
        assert!(
            late <= early + early / 2 + slack,
            "{what} grows: {early} to {late} bytes"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_lives_through_random_troubles_without_losing_doubling_or_growing() {
    let lasts = Duration::from_secs(rounds(15, 3_600) as u64);
    let mut server = Server::start_with(PORT, &SETTINGS);
    let run = Arc::new(Run {
        address: server.address(),
        over: AtomicBool::new(false),
        sent: Default::default(),
        acknowledged: Default::default(),
        followed: Default::default(),
        churned: AtomicU64::new(0),
    });
    let client = run.client();
    for index in 0..LASTING {
        client
            .admin()
            .create_topic(&lasting(index), 1)
            .await
            .unwrap();
    }
    let producers: Vec<_> = (0..LASTING)
        .map(|index| tokio::spawn(produce(run.clone(), index)))
        .collect();
    let followers: Vec<_> = (0..LASTING)
        .map(|index| tokio::spawn(follow(run.clone(), index)))
        .collect();
    let churning = tokio::spawn(churn(run.clone(), ChaCha8Rng::seed_from_u64(7)));
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let (mut disk, mut memory) = (Samples::default(), Samples::default());
    let began = Instant::now();
    let mut troubles = 0;
    while began.elapsed() < lasts || troubles < 3 {
        tokio::time::sleep(Duration::from_millis(random.random_range(1_000..8_000))).await;
        disk.0.push(used(&server));
        memory.0.push(server.resident_bytes());
        let done = tokio::task::spawn_blocking(move || {
            let what = trouble(&mut server, &mut random);
            (server, random, what)
        });
        let what;
        (server, random, what) = done.await.unwrap();
        troubles += 1;
        report(&format!("endurance: {what}: 1"));
        assert!(
            followers.iter().all(|follower| !follower.is_finished()),
            "a follower ended"
        );
        assert!(
            producers.iter().all(|producer| !producer.is_finished()),
            "a producer ended"
        );
    }
    run.over.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.unwrap();
    }
    churning.await.unwrap();
    caught_up(&run).await;
    followers.into_iter().for_each(|follower| follower.abort());
    disk.are_flat("disk", 64 << 20);
    memory.are_flat("memory", 64 << 20);
    let records: u64 = run
        .sent
        .iter()
        .map(|sent| sent.load(Ordering::Relaxed))
        .sum();
    report(&format!("endurance: records: {records}"));
    report(&format!(
        "endurance: topics that came and went: {}",
        run.churned.load(Ordering::Relaxed)
    ));
}

async fn caught_up(run: &Run) {
    let began = Instant::now();
    for index in 0..LASTING as usize {
        let (sent, acknowledged) = (
            run.sent[index].load(Ordering::Relaxed),
            run.acknowledged[index].load(Ordering::Relaxed),
        );
        assert_eq!(
            sent,
            acknowledged,
            "not all of {} were acknowledged",
            lasting(index as u64)
        );
        while run.followed[index].load(Ordering::Relaxed) < sent {
            assert!(
                began.elapsed() < CAUGHT_UP_WITHIN,
                "LOST: {} of {sent} came",
                run.followed[index].load(Ordering::Relaxed)
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
