//! Service Peers, asked by whoever reaches it: what it does is what the request needs that it would follow from.

use hulse_proto::error::Reason;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::partition_work::Work;
use hulse_proto::wire::v1::peers_client::PeersClient;

use super::consumer::{Consumer, attach, create, cursor, earliest, store};
use super::world::{World, partition, reason};

#[tokio::test]
async fn cursor_of_another_subscription_than_the_named_one_is_not_touched() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 3).await;
    let mut consumer = Consumer::open(&world).await;
    let of_s = consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer.detach().await;
    let made = create(&world, "t", "r", Some(earliest())).await.unwrap();
    let other = made.subscription.unwrap().name;
    let mut peers = PeersClient::new(world.channel.clone());
    let mut ask = async |subscription: &str, work| {
        let work = v1::PartitionWork {
            partition: partition(&topic, 0),
            subscription: subscription.to_owned(),
            cursor_uuid: of_s.subscription_uuid.clone(),
            work: Some(work),
        };
        peers.r#do(work).await
    };
    let moves = v1::MoveCursorWork {
        goal: Some(v1::move_cursor_work::Goal::Clear(true)),
        dry_run: false,
    };
    for work in [
        Work::HoldCursor(false),
        Work::DescribeCursor(false),
        Work::MoveCursor(moves),
        Work::RemoveCursor(true),
    ] {
        let refused = ask(&other, work).await;
        assert_eq!(reason(refused), Reason::SubscriptionNotFound);
    }
    let seen = cursor(&world, "s").await;
    assert_eq!((seen.base, seen.backlog_records), (0, 3));
    // Its own is.
    let own = other.replace("/r", "/s");
    ask(&own, Work::RemoveCursor(true)).await.unwrap();
}
