//! Producers and a follower that go on while a cluster is in trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Start};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::truth::{Fate, Id, Numbered, Place, Truth, id_of};

const PRODUCERS: u32 = 3;
const RECORD_BYTES: usize = 600;
/// What a producer sends between two pauses.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);
/// So many more answers to each producer mean that it goes on.
const ANSWERS: usize = 170;
/// After the last trouble, what was sent before must be answered within this time.
const GOES_ON_WITHIN: Duration = Duration::from_secs(60);

/// A follower that hears nothing for so long looks whether it has all …
const SILENCE: Duration = Duration::from_secs(2);
/// … and waits for so many of them in a row for what it lacks: a partition may just be taken over.
const SILENCES_MAX: u32 = 20;

pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Producers and a follower that go on through all troubles.
pub(crate) struct Load {
    pub(crate) truth: Arc<Truth>,
    over: Arc<AtomicBool>,
    /// Every record is answered.
    answered: Arc<AtomicBool>,
    producing: Vec<JoinHandle<()>>,
    following: JoinHandle<Vec<(Place, Id)>>,
}

impl Load {
    /// Makes the topic and begins.
    pub(crate) async fn begin(client: &Client, topic: &'static str, partitions: u32) -> Self {
        let admin = client.admin();
        admin.create_topic(topic, partitions).await.unwrap();
        let truth = Arc::new(Truth::default());
        let over = Arc::new(AtomicBool::new(false));
        let mut producing = Vec::new();
        for number in 0..PRODUCERS {
            let producer = client.producer(topic).build().await.unwrap();
            let mut numbered = Numbered::new(&truth, producer, number);
            let over = Arc::clone(&over);
            producing.push(tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..BURST {
                        numbered.send(RECORD_BYTES).await;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                numbered.settled().await;
            }));
        }
        let answered = Arc::new(AtomicBool::new(false));
        let judge = (Arc::clone(&truth), Arc::clone(&answered));
        let following = tokio::spawn(follow(client.clone(), topic, judge));
        Self {
            truth,
            over,
            answered,
            producing,
            following,
        }
    }

    /// Waits until something that is sent from now on is answered, to each producer.
    pub(crate) async fn goes_on(&self, what: &str) {
        let answered = || (0..PRODUCERS).map(|number| self.truth.answered_to(number));
        let (before, began) = (answered().collect::<Vec<_>>(), Instant::now());
        // More than what was on its way.
        let stuck = || {
            let mut both = answered().zip(&before);
            both.any(|(now, before)| now < before + ANSWERS)
        };
        while stuck() {
            let waited = began.elapsed();
            let now: Vec<_> = answered().collect();
            assert!(
                waited < GOES_ON_WITHIN,
                "STUCK after {what}: {before:?} {now:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it: what was sent, and what the follower saw.
    pub(crate) async fn end(self) -> (Arc<Truth>, Vec<(Place, Id)>) {
        self.over.store(true, Ordering::Relaxed);
        for producing in self.producing {
            let ended = tokio::time::timeout(GOES_ON_WITHIN, producing).await;
            ended.expect("STUCK: not everything is answered").unwrap();
        }
        self.answered.store(true, Ordering::Relaxed);
        let followed = tokio::time::timeout(GOES_ON_WITHIN, self.following).await;
        (self.truth, followed.expect("STUCK: the follower").unwrap())
    }
}

/// What a reader sees that follows all the time, until it has as much as was acknowledged and nothing more comes, or nothing comes for
/// so long that what is missing is lost to it.
async fn follow(
    client: Client,
    topic: &str,
    (truth, answered): (Arc<Truth>, Arc<AtomicBool>),
) -> Vec<(Place, Id)> {
    let reader = client.reader(topic).start(Start::Earliest);
    let mut reader = reader.build().await.unwrap();
    let (mut seen, mut silences) = (Vec::new(), 0);
    loop {
        let next = tokio::time::timeout(SILENCE, reader.next()).await;
        let Ok(record) = next else {
            silences += 1;
            let acknowledged = truth.count(|fate| matches!(fate, Fate::Acked(_)));
            let has_all = seen.len() >= acknowledged || silences >= SILENCES_MAX;
            match answered.load(Ordering::Relaxed) && has_all {
                true => return seen,
                false => continue,
            }
        };
        silences = 0;
        let record = record.unwrap().expect("a follower has no end");
        let value = record.value.unwrap_or_default();
        seen.push(((record.partition, record.offset.0), id_of(&value)));
    }
}
