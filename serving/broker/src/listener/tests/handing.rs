//! Partitions change hands between two brokers: clients that are sent on early wait there, and brokers are evened out.

use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;

use super::owners::{PARTITIONS, Two, name};

fn to(broker: usize, partition: u32, pin: bool) -> v1::MovePartitionRequest {
    v1::MovePartitionRequest {
        topic: "t".to_owned(),
        partition,
        broker: name(broker),
        pin,
    }
}

#[tokio::test]
async fn client_that_is_sent_on_before_the_partition_has_come_waits_for_it() {
    let two = Two::new().await;
    let (from, there) = match two.owners(0).await[3] == name(0) {
        true => (0, 1),
        false => (1, 0),
    };
    assert_eq!(two.served(from, 3).await, 1);
    // From its end here until it is open there.
    two.brokers[0]
        .memory
        .slow_openings(Duration::from_millis(300));
    let mut admin = two.brokers[from].admin();
    let moving = tokio::spawn(async move { admin.move_partition(to(there, 3, false)).await });
    let moved = two.moved(from, 3).await;
    assert_eq!(moved.details["broker"], name(there));
    assert!(!moving.is_finished());
    assert_eq!(two.epoch(there, 3).await.unwrap(), 2);
    assert_eq!(moving.await.unwrap().unwrap().into_inner().leader_epoch, 2);
}

#[tokio::test]
async fn hand_over_that_the_other_broker_cannot_prepare_leaves_the_partition_where_it_is() {
    let mut two = Two::new().await;
    let (from, there) = match two.owners(0).await[3] == name(0) {
        true => (0, 1),
        false => (1, 0),
    };
    assert_eq!(two.served(from, 3).await, 1);
    two.brokers[there].stop();
    two.brokers[there].stopped().await;
    let mut admin = two.brokers[from].admin();
    let refused = admin.move_partition(to(there, 3, false));
    let refused = Fault::from_status(&refused.await.unwrap_err()).unwrap();
    assert_eq!(refused.reason, Reason::PartitionLoading, "{refused}");
    assert_eq!(two.epoch(from, 3).await.unwrap(), 1);
}

/// Clients were sent to the new owner under the epoch to come, and believe no older one.
#[tokio::test]
async fn hand_over_that_is_given_up_half_way_ends_in_the_epoch_that_clients_were_told() {
    let two = Two::new().await;
    let (from, there) = match two.owners(0).await[0] == name(0) {
        true => (0, 1),
        false => (1, 0),
    };
    assert_eq!(two.served(from, 0).await, 1);
    two.store(from).await;
    let memory = &two.brokers[0].memory;
    // Its ledger is closed for so long.
    memory.slow_changes(Duration::from_secs(1));
    let mut admin = two.brokers[from].admin();
    // Whoever asks for it goes, before the other broker is asked to take it.
    let mut request = tonic::Request::new(to(there, 0, false));
    request.set_timeout(Duration::from_millis(300));
    admin.move_partition(request).await.unwrap_err();
    memory.slow_changes(Duration::ZERO);
    while two.won(0).await < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn brokers_are_evened_out_by_an_operators_word_and_pinned_partitions_stay() {
    let two = Two::new().await;
    for index in 0..PARTITIONS {
        let mut admin = two.brokers[0].admin();
        let pin = index < 2;
        admin.move_partition(to(0, index, pin)).await.unwrap();
    }
    // What was handed over rests for a moment only.
    assert_eq!(two.owners(1).await, vec![name(0); PARTITIONS as usize]);
    let balance = async |dry_run| {
        let request = v1::BalanceBrokersRequest { dry_run };
        let answer = two.brokers[1].admin().balance_brokers(request).await;
        answer.unwrap().into_inner().report.unwrap()
    };
    // Until loads were measured.
    let plan = loop {
        let plan = balance(true).await;
        if !plan.moves.is_empty() {
            break plan;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(two.owners(1).await, vec![name(0); PARTITIONS as usize]);
    assert!(plan.moves.iter().all(|of| of.state == "planned"));
    let made = balance(false).await;
    assert_eq!((made.spread_percent, made.failed), (100, 0), "{made:?}");
    for moved in &made.moves {
        assert_eq!(moved.state, "done", "{made:?}");
        assert_eq!((&moved.from, &moved.to), (&name(0), &name(1)));
        assert!(moved.partition >= 2 && moved.topic == "public/default/t");
    }
    // Partitions that have nothing to do count a little each; two more or less are even.
    assert_eq!(made.moves.len(), 3, "{made:?}");
    let owners = two.owners(0).await;
    let here = owners.iter().filter(|of| **of == name(0)).count();
    assert_eq!(here, PARTITIONS as usize - 3);
    let even = balance(true).await;
    assert!(
        even.moves.is_empty() && even.verdict.starts_with("even"),
        "{even:?}"
    );
    let mut admin = two.brokers[0].admin();
    let described = admin.describe_cluster(v1::DescribeClusterRequest { partitions: true });
    let described = described.await.unwrap().into_inner();
    let last = described.balance.unwrap();
    assert_eq!((last.done, last.failed), (made.done, 0), "{last:?}");
    assert!(described.brokers.iter().all(|of| of.load == Some(0)));
}
