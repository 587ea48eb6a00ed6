//! Members of stream groups against the real server: partitions that are shared, over kills, and with members of the Kafka wire.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hulse_sdk::{
    Client, DeliveryMode, Reason, Record, Start, StreamConsumer, StreamItem, StreamNote,
    StreamRecord,
};
use tokio::time::{sleep, timeout};

use super::report::report;
use super::server::{HULSE, Server, restarted};
use super::subscriptions::{PATIENCE, client, send_batch};

const PORT: u16 = 19_700;
const SESSION: [(&str, &str); 2] = [
    ("HULSE_GROUPS__SESSION_TIMEOUT", "3s"),
    ("HULSE_GROUPS__HEARTBEAT_INTERVAL", "1s"),
];

async fn join(client: &Client, topic: &str) -> StreamConsumer {
    let builder = client.stream_consumer([topic]).group("g");
    let builder = builder.start(Start::Earliest);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !holds() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

/// What members were given: how often each record, and in which order those of a partition.
#[derive(Default)]
struct Seen {
    records: BTreeMap<(u32, u64), u32>,
    values: BTreeSet<u64>,
}

fn value(record: &StreamRecord) -> u64 {
    let value = record.value.as_ref().unwrap();
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

/// Commits what it takes, batch by batch, until it is closed.
async fn work(consumer: StreamConsumer, seen: Arc<Mutex<Seen>>) {
    let handled = consumer.handle(50, |records| {
        let seen = seen.clone();
        async move {
            let mut seen = seen.lock().unwrap();
            for record in &records {
                let at = (record.partition, record.offset.0);
                *seen.records.entry(at).or_default() += 1;
                seen.values.insert(value(record));
            }
            Ok::<_, std::convert::Infallible>(())
        }
    });
    handled.await.unwrap();
}

/// Sends numbers, each with a key of its own, so that every partition gets some.
async fn send(client: &Client, topic: &str, numbers: std::ops::Range<u64>) {
    let producer = client.producer(topic).build().await.unwrap();
    for number in numbers {
        let number = number.to_string();
        let record = Record::new(number.clone()).key(number);
        drop(producer.send(record).await.unwrap());
    }
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_partitions_and_one_that_joins_or_leaves_makes_nobody_work_twice() {
    let server = Server::start(PORT);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 6).await.unwrap();
    send(&client, "jobs", 0..3_000).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let one = join(&client, "jobs").await;
    until("one has all", || one.partitions().len() == 6).await;
    let first = tokio::spawn(work(one.clone(), seen.clone()));
    let two = join(&client, "jobs").await;
    let second = tokio::spawn(work(two.clone(), seen.clone()));
    until("they share", || {
        one.partitions().len() == 3 && two.partitions().len() == 3
    })
    .await;
    let shared: BTreeSet<_> = one
        .partitions()
        .into_iter()
        .chain(two.partitions())
        .collect();
    assert_eq!(shared.len(), 6, "each partition has one member");
    send(&client, "jobs", 3_000..4_000).await;
    until("all of it", || seen.lock().unwrap().values.len() == 4_000).await;
    timeout(PATIENCE, two.close()).await.unwrap().unwrap();
    second.await.unwrap();
    // It left: nobody waits for its session.
    until("one has all again", || one.partitions().len() == 6).await;
    send(&client, "jobs", 4_000..4_500).await;
    until("the rest", || seen.lock().unwrap().values.len() == 4_500).await;
    timeout(PATIENCE, one.close()).await.unwrap().unwrap();
    first.await.unwrap();
    let seen = seen.lock().unwrap();
    let twice = seen.records.values().filter(|times| **times > 1).count();
    assert_eq!(twice, 0, "of {}", seen.records.len());
    report(&format!("records: {}", seen.records.len()));
}

/// `hulse consume` as a member: a process of its own, which prints what it commits.
struct Process {
    child: Child,
    printed: PathBuf,
    said: PathBuf,
}

impl Process {
    fn start(server: &Server, folder: &Path, name: &str) -> Self {
        let printed = folder.join(name);
        let said = folder.join(format!("{name}.err"));
        let child = Command::new(HULSE)
            .args(["--server", &server.address(), "consume", "jobs"])
            .args(["-s", "g", "--type", "stream", "-o", "start"])
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&printed).unwrap())
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            printed,
            said,
        }
    }

    fn numbers(&self) -> Vec<u64> {
        numbers(&self.printed)
    }

    /// What it has said, and whether it still is there.
    fn story(&mut self) -> String {
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let ended = self.child.try_wait();
        let count = self.numbers().len();
        format!("{count} numbers, ended: {ended:?}, said:\n{said}")
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn numbers(output: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(output).unwrap();
    // The last line may have been cut off by a kill.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_that_is_killed_is_followed_by_another_and_every_number_arrives_over_a_restart_too()
{
    let server = Server::start_with(PORT + 4, &SESSION);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 4).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut one = Process::start(&server, folder.path(), "one");
    let mut two = Process::start(&server, folder.path(), "two");
    // Until both have some: the first one may be through with all before the second one has joined.
    let began = Instant::now();
    let mut sent = 0;
    while one.numbers().is_empty() || two.numbers().is_empty() {
        send(&client, "jobs", sent..sent + 200).await;
        sent += 200;
        let waits = began.elapsed() < PATIENCE;
        assert!(
            waits,
            "of {sent}\none: {}\ntwo: {}",
            one.story(),
            two.story()
        );
        sleep(Duration::from_millis(100)).await;
    }
    one.kill();
    send(&client, "jobs", sent..sent + 1_000).await;
    sent += 1_000;
    all_arrive(&mut one, &mut two, sent).await;
    // The coordinator is another one, and the member stays one.
    let server = restarted(server).await;
    send(&client, "jobs", sent..sent + 1_000).await;
    sent += 1_000;
    all_arrive(&mut one, &mut two, sent).await;
    let printed = one.numbers().len() + two.numbers().len();
    report(&format!("records: {printed}"));
    drop(server);
}

/// Waits until both together have printed every number.
async fn all_arrive(one: &mut Process, two: &mut Process, sent: u64) {
    let waited = timeout(PATIENCE, async {
        loop {
            let all = one.numbers().into_iter().chain(two.numbers());
            if all.collect::<BTreeSet<u64>>().len() as u64 == sent {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let arrived = waited.await.is_ok();
    assert!(
        arrived,
        "of {sent}\none: {}\ntwo: {}",
        one.story(),
        two.story()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_goes_on_where_it_committed_and_latest_is_one_moment_for_all_partitions() {
    let server = Server::start_with(PORT + 8, &SESSION);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 2).await.unwrap();
    send(&client, "jobs", 0..100).await;
    let builder = client.stream_consumer(["jobs"]).group("late");
    let late = builder.start(Start::Latest).build().await.unwrap();
    // Nothing was read yet; what comes now is after "latest", whoever reads it.
    drop(late);
    send(&client, "jobs", 100..200).await;
    let builder = client.stream_consumer(["jobs"]).group("late");
    let late = builder.start(Start::Latest).build().await.unwrap();
    let mut values = BTreeSet::new();
    while values.len() < 100 {
        let records = late.receive(100, PATIENCE).await.unwrap();
        assert!(!records.is_empty(), "{} of 100", values.len());
        values.extend(records.iter().map(value));
    }
    assert_eq!(values, (100..200).collect());
    late.commit_all().await.unwrap();
    late.close().await.unwrap();
    // Partitions that are added begin at their start (case GR-02), and what is committed does not come again.
    client.admin().add_partitions("jobs", 4).await.unwrap();
    send(&client, "jobs", 200..400).await;
    let builder = client.stream_consumer(["jobs"]).group("late");
    let late = builder.start(Start::Latest).build().await.unwrap();
    let mut values = BTreeSet::new();
    while values.len() < 200 {
        let records = late.receive(100, PATIENCE).await.unwrap();
        assert!(!records.is_empty(), "{} of 200", values.len());
        values.extend(records.iter().map(value));
    }
    assert_eq!(values, (200..400).collect());
    late.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_is_of_one_type_and_free_again_when_its_group_is_deleted() {
    let server = Server::start_with(PORT + 12, &SESSION);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 1).await.unwrap();
    let queue = client.queue_consumer("jobs").subscription("q");
    let queue = queue.build().await.unwrap();
    let refused = client.stream_consumer(["jobs"]).group("q").build().await;
    assert_eq!(
        refused.unwrap_err().reason(),
        Some(Reason::SubscriptionExists)
    );
    queue.close().await.unwrap();
    let group = join(&client, "jobs").await;
    let refused = client
        .queue_consumer("jobs")
        .subscription("g")
        .build()
        .await;
    assert_eq!(
        refused.unwrap_err().reason(),
        Some(Reason::SubscriptionExists)
    );
    let busy = server.hulse(&["subs", "delete", "jobs", "g", "--yes"], "");
    assert!(!busy.status.success(), "it has a member");
    group.close().await.unwrap();
    let deleted = server.hulse(&["subs", "delete", "jobs", "g", "--yes"], "");
    let words = String::from_utf8_lossy(&deleted.stderr).into_owned();
    assert!(deleted.status.success(), "{words}");
    let queue = client.queue_consumer("jobs").subscription("g");
    queue.build().await.unwrap().close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn application_that_stands_still_is_warned_loses_its_partitions_and_gets_them_when_it_calls()
{
    let settings = [SESSION[0], SESSION[1], ("HULSE_GROUPS__MAX_IDLE", "2s")];
    let server = Server::start_with(PORT + 16, &settings);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 2).await.unwrap();
    send_batch(&client, "jobs", 100).await;
    let still = join(&client, "jobs").await;
    until("it has all", || still.partitions().len() == 2).await;
    until("it has lost them", || still.partitions().is_empty()).await;
    let other = join(&client, "jobs").await;
    until("another one has them", || other.partitions().len() == 2).await;
    let records = other.receive(1, PATIENCE).await.unwrap();
    assert_eq!(records.len(), 1);
    let (mut warned, mut lost, mut again) = (false, false, false);
    while !(warned && lost && again) {
        let next = timeout(PATIENCE, still.next()).await.unwrap().unwrap();
        match next.unwrap() {
            StreamItem::Note(StreamNote::Idle { .. }) => warned = true,
            StreamItem::Note(StreamNote::Lost { why, .. }) => {
                assert_eq!(why.reason(), Some(Reason::MemberFenced));
                lost = true;
            }
            StreamItem::Note(StreamNote::Assigned(_)) => again = lost,
            _ => {}
        }
        drop(other.receive(1, Duration::from_millis(1)).await.unwrap());
    }
    still.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_once_commits_before_it_hands_out() {
    let server = Server::start_with(PORT + 20, &SESSION);
    let client = client(&server.address());
    client.admin().create_topic("jobs", 1).await.unwrap();
    send_batch(&client, "jobs", 10).await;
    let builder = client.stream_consumer(["jobs"]).group("g");
    let builder = builder.start(Start::Earliest);
    let builder = builder.delivery_mode(DeliveryMode::AtMostOnce);
    let one = builder.build().await.unwrap();
    let records = one.receive(1, PATIENCE).await.unwrap();
    assert_eq!(records.len(), 1);
    // It dies with the rest of the batch.
    drop(one);
    send(&client, "jobs", 10..11).await;
    let two = join(&client, "jobs").await;
    let records = two.receive(100, PATIENCE).await.unwrap();
    assert_eq!(records.iter().map(value).collect::<Vec<_>>(), [10]);
    two.close().await.unwrap();
}

/// A member of the Kafka wire that prints what it gets and commits it, until its standard input ends.
const KAFKA_MEMBER: &str = "
import sys, threading
from confluent_kafka import Consumer
servers, protocol = sys.argv[1:]
settings = {'bootstrap.servers': servers, 'group.id': 'g', 'auto.offset.reset': 'earliest', 'enable.auto.commit': False, 'log_level': 0}
settings['group.protocol'] = protocol
if protocol == 'classic':
    settings.update({'session.timeout.ms': 30000, 'heartbeat.interval.ms': 500})
consumer = Consumer(settings)
consumer.subscribe(['jobs'])
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.is_set():
    message = consumer.poll(0.2)
    if message is None:
        continue
    if message.error():
        print('#', message.error(), file=sys.stderr)
        continue
    print(message.value().decode(), flush=True)
    consumer.commit(message, asynchronous=False)
consumer.close()
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_both_wires_are_in_one_group() {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report("NOT RUN: a group of both wires: HULSE_TEST_PYTHON is not set, tests/run sets it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (index, protocol) in ["consumer", "classic"].into_iter().enumerate() {
        let port = PORT + 24 + 4 * index as u16;
        let kafka = format!("127.0.0.1:{}", port + 2);
        let server = Server::start_with(port, &[("HULSE_LISTEN__KAFKA", &kafka)]);
        let client = client(&server.address());
        client.admin().create_topic("jobs", 4).await.unwrap();
        let ours = join(&client, "jobs").await;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let working = tokio::spawn(work(ours.clone(), seen.clone()));
        let printed = folder.path().join(protocol);
        let said = folder.path().join(format!("{protocol}.err"));
        let mut theirs = Command::new(&python)
            .args(["-c", KAFKA_MEMBER, &kafka, protocol])
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&printed).unwrap())
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        until(&format!("{protocol}: they share"), || {
            ours.partitions().len() == 2
        })
        .await;
        send(&client, "jobs", 0..1_000).await;
        let all = || {
            let mut all = seen.lock().unwrap().values.clone();
            let own = all.len();
            let theirs = numbers(&printed);
            let foreign = theirs.len();
            all.extend(theirs);
            (all.len(), own, foreign)
        };
        until(&format!("{protocol}: all of it"), || all().0 == 1_000).await;
        let (_, own, foreign) = all();
        assert!(own > 0 && foreign > 0, "{protocol}: {own} and {foreign}");
        // One leaves, the other one takes its partitions over from what it committed.
        drop(theirs.stdin.take());
        theirs.wait().unwrap();
        until(&format!("{protocol}: ours has all"), || {
            ours.partitions().len() == 4
        })
        .await;
        send(&client, "jobs", 1_000..1_200).await;
        until(&format!("{protocol}: the rest"), || all().0 == 1_200).await;
        let repeated = all().1 + all().2 - 1_200;
        assert!(repeated <= 50, "{protocol}: {repeated} came twice");
        ours.close().await.unwrap();
        working.await.unwrap();
        report(&format!("records: {}", all().1 + all().2));
    }
}
