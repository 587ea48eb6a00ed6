//! Producers and a follower that go on while a cluster is in trouble.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Start};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::truth::{Id, Numbered, Place, Truth, id_of};

const PRODUCERS: u32 = 3;
const RECORD_BYTES: usize = 600;
/// What a producer sends between two pauses.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);
/// So many more answers to each producer mean that it goes on.
const ANSWERS: usize = 170;
/// After the last trouble, what was sent before must be answered within this time.
const GOES_ON_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Producers and a follower that go on through all troubles.
pub(crate) struct Load {
    pub(crate) truth: Arc<Truth>,
    over: Arc<AtomicBool>,
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
        let following = tokio::spawn(follow(client.clone(), topic, Arc::clone(&over)));
        Self {
            truth,
            over,
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
        let followed = tokio::time::timeout(GOES_ON_WITHIN, self.following).await;
        (self.truth, followed.expect("STUCK: the follower").unwrap())
    }
}

/// What a reader sees that follows all the time, until nothing more comes.
async fn follow(client: Client, topic: &str, over: Arc<AtomicBool>) -> Vec<(Place, Id)> {
    let reader = client.reader(topic).start(Start::Earliest);
    let mut reader = reader.build().await.unwrap();
    let mut seen = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(2), reader.next()).await;
        match next {
            Ok(record) => {
                let record = record.unwrap().expect("a follower has no end");
                let value = record.value.unwrap_or_default();
                seen.push(((record.partition, record.offset.0), id_of(&value)));
            }
            Err(_silence) if over.load(Ordering::Relaxed) => return seen,
            Err(_silence) => {}
        }
    }
}
