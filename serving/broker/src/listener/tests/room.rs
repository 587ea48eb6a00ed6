//! The room of what was read: how long a batch holds it.

use std::time::Duration;

use bytes::Bytes;

use super::session::Session;
use super::world::{World, plain};
use crate::testing::MemoryBroker;

#[tokio::test(start_paused = true)]
async fn room_of_a_batch_stays_taken_until_its_partition_is_done_with_it() {
    let memory = MemoryBroker::default();
    let front = memory.front(|config| config.ingress_bytes = 1000);
    let topic = front.topics().resolve(&"t".parse().unwrap(), true).await;
    let id = topic.unwrap().partition_ids().next().unwrap();
    let open = front.open(id).await.unwrap();
    open.produce(plain(1, 10)).await.unwrap();
    memory.bookie.hold(true);
    let room = front.try_room(1000);
    // Nobody waits for the answer any more: the client has gone, or its time is over.
    drop(open.produce_in(room, plain(1, 10)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(front.try_room(1).is_none());
    memory.bookie.hold(false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(open.offsets().high_watermark.0, 2);
    let room = front.try_room(1000);
    assert!(room.is_some());
    // A batch that is refused on the spot waits nowhere.
    drop(open.produce_in(room, Bytes::from_static(b"no batch")));
    assert!(front.try_room(1000).is_some());
}

/// The gauge of the metrics page.
async fn taken(world: &World) -> u64 {
    let page = world.get("/metrics").await;
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix("hulse_ingress_in_flight_bytes "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn session_that_ends_leaves_the_room_of_its_batches_taken() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    world.bookie.hold(true);
    session.batch(0, 1, plain(1, 10)).await;
    while taken(&world).await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(session);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(taken(&world).await > 0, "the batch is on its way yet");
    world.bookie.hold(false);
    while taken(&world).await > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
