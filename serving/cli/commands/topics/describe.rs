//! `hulse topics describe`: a topic, each partition opened so that its bounds are known.

use std::time::Duration;

use futures::future::join_all;
use hulse_sdk::{Admin, Topic};

use super::view::TopicView;
use crate::commands::session::Session;
use crate::failure::{Failure, Stop};

/// Partitions that are opened at most to tell their offsets.
const OPENED_MAX: usize = 64;
/// Longest wait for them.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(5);

/// Under a topic whose bookies are elsewhere.
const UNTOLD: &str = "damaged records are not told here: bookies were not asked; hulse doctor looks at each, hulse verify TOPIC reads all";

/// Asks the owners of partitions that are not open where these end, which opens them. True when any was asked; what an owner does not
/// tell is shown as unknown, so no answer is looked at.
async fn open(admin: &Admin, topic: &Topic) -> bool {
    let closed = topic
        .partition
        .iter()
        .filter(|partition| partition.high_watermark.is_none() && partition.fault.is_none());
    let asked: Vec<_> = closed
        .take(OPENED_MAX)
        .map(|partition| admin.offsets(&topic.name, partition.index, None))
        .collect();
    let any = !asked.is_empty();
    let _ = tokio::time::timeout(OPEN_WAIT_MAX, join_all(asked)).await;
    any
}

/// A topic, its partitions opened so that their bounds are known, as far as their owners tell soon.
///
/// # Errors
/// The server's.
pub(super) async fn opened(admin: &Admin, topic: &str) -> Result<Topic, hulse_sdk::Error> {
    let described = admin.describe_topic(topic).await?;
    match open(admin, &described).await {
        true => admin.describe_topic(topic).await,
        false => Ok(described),
    }
}

/// Whether damaged records are told: a broker knows what the bookie of its own process has found, and asks no other.
async fn looks_for_damage(admin: &Admin, topic: &str) -> bool {
    let known = admin.damage(topic).await;
    // Each bookie says in what time it checks its files.
    known.is_ok_and(|known| !known.scrub_interval.is_zero())
}

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(session: Session<'_>, admin: &Admin, topic: &str) -> Result<(), Stop> {
    let failed = |error| Failure::from_sdk("cannot describe the topic", topic, &error);
    let view = TopicView::from(opened(admin, topic).await.map_err(failed)?);
    if session.output.shape.for_people() {
        session.output.say(&view.headline());
        if let Some(words) = view.copies().shortcomings() {
            session.output.say(&words);
        }
        if !looks_for_damage(admin, topic).await {
            session.output.say(UNTOLD);
        }
    }
    session.output.one(&view)
}
