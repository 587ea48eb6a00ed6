//! A writer with nothing to do has no task. With bookies in the same process only: the transport has tasks of its own.

use bookie_metadata::Txn;
use hulse_proto::id::EntryId;

use super::Cluster;
use super::face::{fill, open};

#[tokio::test(start_paused = true)]
async fn writer_with_nothing_to_do_has_no_task_and_goes_on_when_asked() {
    let cluster = Cluster::new(3, 3, 3, 2);
    let client = cluster.client(1);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let writer = open(&client, 0).await;
    assert_eq!(tasks(), before);
    for _ in 0..3 {
        fill(&writer, 0, 10).await;
        assert_eq!(tasks(), before + 1, "it waits for more");
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert_eq!(tasks(), before);
    }
    assert_eq!(writer.confirmed_end(), EntryId(30));
    let closed = writer.close(Txn::default()).await.unwrap();
    assert_eq!(closed.end, EntryId(30));
    drop(writer);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(tasks(), before);
}
