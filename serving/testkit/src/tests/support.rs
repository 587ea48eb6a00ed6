//! What the tests share.

use std::time::Duration;

use hulse_sdk::{AttachedConsumer, Client, CursorState, Producer, QueueConsumer, Record, Start};
use tokio::time::timeout;

/// What takes longer never ends.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Waits until it is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !is_so().await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let waited = timeout(PATIENCE, looking).await;
    waited.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Sends numbers, one record a batch.
pub(super) async fn send(producer: &Producer, numbers: std::ops::Range<u64>, keys: u64) {
    for number in numbers {
        let record = Record::new(number.to_string()).key(format!("k{}", number % keys));
        producer.send(record).await.unwrap().await.unwrap();
    }
}

/// A consumer of subscription `s` that lets so many records wait.
pub(super) async fn share(client: &Client, topic: &str, name: &str, keyed: bool) -> QueueConsumer {
    let builder = client.queue_consumer(topic).subscription("s").name(name);
    let builder = builder.keyed(keyed).start(Start::Earliest);
    let built = builder.receive_queue_records(20).build();
    timeout(PATIENCE, built).await.unwrap().unwrap()
}

/// The number that a record has.
pub(super) fn number(value: Option<&[u8]>) -> u64 {
    let text = std::str::from_utf8(value.unwrap()).unwrap();
    text.parse().unwrap()
}

/// Partition 0 of subscription `s`.
pub(super) async fn cursor(client: &Client, topic: &str) -> CursorState {
    let admin = client.admin();
    let described = admin.describe_subscription("s", topic, false).await;
    let (_, mut cursors) = described.unwrap();
    cursors.remove(0).state.unwrap()
}

/// The one consumer that is attached there.
pub(super) async fn attached(client: &Client, topic: &str) -> Option<AttachedConsumer> {
    let mut consumers = cursor(client, topic).await.consumers;
    assert!(consumers.len() <= 1, "{consumers:?}");
    consumers.pop()
}
