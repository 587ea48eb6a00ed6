//! One writer keeps up with many small appends: a floor far below the aim, so that only a real mistake falls through it.

use std::sync::Arc;
use std::time::Instant;

use bookie_metadata::Txn;
use futures::future::ready;
use futures::stream::{FuturesUnordered, StreamExt};
use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    ReadRequest, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry,
};
use hulse_proto::entry::EntryClass;
use hulse_proto::id::EntryId;

use super::{Cluster, data, member, new_log};
use crate::LedgerClient;
use crate::testing::{FixedClock, StaticDirectory};

/// Confirms everything at once and keeps nothing.
struct Sink;

impl BookieCalls for Sink {
    fn add(&self, _: AddRequest) -> Call<()> {
        Box::pin(ready(Ok(())))
    }

    fn fence(&self, _: FenceRequest) -> Call<FenceAnswer> {
        Box::pin(ready(Err(nothing())))
    }

    fn recovery_read(&self, _: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        Box::pin(ready(Err(nothing())))
    }

    fn read(&self, _: ReadRequest) -> Call<Vec<StoredEntry>> {
        Box::pin(ready(Err(nothing())))
    }

    fn read_heads(&self, _: ReadRequest) -> Call<Vec<EntryHead>> {
        Box::pin(ready(Err(nothing())))
    }

    fn delete(&self, _: Address) -> Call<()> {
        Box::pin(ready(Err(nothing())))
    }
}

fn nothing() -> BookieError {
    BookieError::MetadataUnavailable
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_writer_takes_many_small_appends_per_second() {
    const APPENDS: u64 = 100_000;
    let cluster = Cluster::new(1, 1, 1, 1);
    let directory = StaticDirectory::new().with(member(0), Arc::new(Sink));
    let client = LedgerClient::new(
        cluster.cell,
        cluster.config.clone(),
        Arc::new(cluster.store.clone()),
        Arc::new(directory),
        Arc::new(FixedClock(0)),
        [1; 32],
    );
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    let started = Instant::now();
    let mut answers = FuturesUnordered::new();
    for offset in 0..APPENDS {
        answers.push(writer.append(data(offset, 0)));
        while !writer.has_room(EntryClass::Data) {
            answers.next().await.unwrap().unwrap();
        }
    }
    while let Some(answer) = answers.next().await {
        answer.unwrap();
    }
    let per_second = APPENDS as f64 / started.elapsed().as_secs_f64();
    println!("{per_second:.0} appends/s");
    assert_eq!(writer.confirmed_end(), EntryId(APPENDS));
    assert!(per_second > 20_000.0, "{per_second:.0} appends/s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_comes_after_its_permit_is_given_back() {
    let mut cluster = Cluster::new(1, 1, 1, 1);
    cluster.config.inflight_entries_max = 1;
    let client = cluster.client(1);
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    for offset in 0..2_000 {
        let appended = writer.append(data(offset, 0)).await.unwrap();
        assert!(writer.confirmed_end() >= appended.confirmed_end);
    }
}
