//! The task that keeps every partition attached.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use hulse_proto::error::{Fault, Reason};
use tokio::time::{Instant, sleep_until};

use super::shared::Shared;
use crate::connect::Broker;
use crate::consumer::core::Due;
use crate::error::Error;

/// With nothing to wait for it looks again after this long; only bounds a sleep.
const IDLE: Duration = Duration::from_secs(3600);

/// Until the consumer ends.
pub(in crate::consumer) async fn run(shared: Arc<Shared>) {
    // One per tick that found something due; a partition is in at most one of them.
    let mut finding = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        let due = shared.with(|core| core.tick(now));
        if !due.is_empty() {
            finding.push(find(Arc::clone(&shared), due));
        }
        let wake_at = shared.next_deadline().unwrap_or(now + IDLE);
        tokio::select! {
            biased;
            () = shared.stop_control.cancelled() => return,
            Some(()) = finding.next(), if !finding.is_empty() => {}
            () = shared.wake.notified() => {}
            () = sleep_until(wake_at) => {}
        }
    }
}

/// Finds the owners of partitions and attaches there.
async fn find(shared: Arc<Shared>, due: Vec<Due>) {
    if due.iter().any(|due| due.resolve)
        && let Err(error) = shared.topic.refresh().await
    {
        return fail(&shared, due.iter().map(|due| due.partition), &error);
    }
    let mut owners: BTreeMap<Broker, Vec<u32>> = BTreeMap::new();
    for Due { partition, .. } in due {
        match shared.topic.owner(partition) {
            Ok((topic, _)) if topic != shared.topic_id => {
                let name = &shared.topic.name;
                let words = format!("topic {name} was deleted and made anew; begin a new consumer");
                let error = Fault::new(Reason::TopicRecreated, words).into();
                fail(&shared, [partition], &error);
            }
            Ok((_, owner)) => owners.entry(owner).or_default().push(partition),
            Err(error) => fail(&shared, [partition], &error),
        }
    }
    see_epochs(&shared);
    join_all(
        owners
            .into_iter()
            .map(|(owner, partitions)| attach(&shared, owner, partitions)),
    )
    .await;
}

async fn attach(shared: &Arc<Shared>, owner: Broker, partitions: Vec<u32>) {
    let session = match shared.session(&owner).await {
        Ok(session) => session,
        Err(error) => return fail(shared, partitions, &error),
    };
    let now = Instant::now();
    shared.with(|core| {
        for partition in partitions {
            core.attach(partition, shared.topic_id, session, now);
        }
    });
}

/// What a look-up says of other partitions: a session with an older epoch is left (serving.md B11 as amended).
fn see_epochs(shared: &Shared) {
    let epochs = shared.topic.leader_epochs();
    let now = Instant::now();
    shared.with(|core| {
        for (partition, epoch) in (0..).zip(epochs) {
            core.resolved(partition, epoch, now);
        }
    });
}

fn fail(shared: &Shared, partitions: impl IntoIterator<Item = u32>, error: &Error) {
    let now = Instant::now();
    shared.with(|core| {
        for partition in partitions {
            core.not_found(partition, error.clone(), now);
        }
    });
}
