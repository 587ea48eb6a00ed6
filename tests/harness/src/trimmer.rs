//! Somebody who trims the partition while everything goes wrong, and what may be expected of that.
//!
//! The promise (storage.md P6): what was answered stays trimmed, for every later owner; nothing at or above the log start is lost; and
//! nothing goes that nobody asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::{Offset, OwnerEpoch};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use serving_broker::Limits;
use tokio::time::{sleep, timeout};

use crate::broker::Cluster;
use crate::trace;

/// How long the trimmer waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

/// What was asked for, answered and seen.
#[derive(Debug, Default)]
pub struct TrimBook {
    /// The highest log start that anybody may have wanted.
    wanted: Offset,
    /// The highest that was asked for by its offset: such a trim stops at no cursor, as retention does.
    requested: Offset,
    /// The highest log start that an owner of this epoch answered.
    answered: BTreeMap<OwnerEpoch, Offset>,
    /// First and last log start seen of each epoch.
    seen: BTreeMap<OwnerEpoch, (Offset, Offset)>,
}

impl TrimBook {
    /// Somebody is about to ask for this.
    pub fn want(&mut self, to: Offset) {
        self.wanted = self.wanted.max(to);
    }

    /// Somebody is about to ask for this whatever cursors hold.
    pub fn request(&mut self, to: Offset) {
        self.want(to);
        self.requested = self.requested.max(to);
    }

    /// Only below may records be gone that a cursor holds.
    pub fn requested(&self) -> Offset {
        self.requested
    }

    /// An owner answered.
    pub fn answer(&mut self, epoch: OwnerEpoch, start: Offset) {
        let floor = self.answered.entry(epoch).or_default();
        *floor = start.max(*floor);
    }

    /// What an owner of this epoch serves nothing below, by all that was answered so far. An owner that does not know of its successor
    /// knows nothing of its trims either.
    pub fn floor(&self, epoch: OwnerEpoch) -> Offset {
        let answered = self.answered.range(..=epoch).map(|(_, start)| *start);
        answered.max().unwrap_or_default()
    }

    /// An owner shows where the log begins; what is wrong with that.
    pub fn see(&mut self, epoch: OwnerEpoch, start: Offset) -> Option<String> {
        let (_, last) = self.seen.entry(epoch).or_insert((start, start));
        let before = std::mem::replace(last, start.max(*last));
        if start < before {
            return Some(format!(
                "log start of epoch {epoch} went from {before} to {start}"
            ));
        }
        (start > self.wanted).then(|| {
            format!(
                "log begins at {start}, nobody wanted more than {}",
                self.wanted
            )
        })
    }

    /// Every epoch began at or above what earlier ones had answered.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (epoch, (first, _)) in &self.seen {
            let earlier = self.answered.range(..epoch).map(|(_, start)| *start);
            let floor = earlier.max().unwrap_or_default();
            if *first < floor {
                wrong.push(format!(
                    "epoch {epoch} began with log start {first}, {floor} had been answered"
                ));
            }
        }
        wrong
    }
}

/// Trims now and then, until it is dropped.
pub async fn trim(cluster: Arc<Cluster>, mut rng: ChaCha12Rng) {
    let pause_max = *[300, 1_500, 6_000].choose(&mut rng).expect("three paces");
    loop {
        sleep(Duration::from_millis(rng.random_range(20..pause_max))).await;
        let Some((broker, handle)) = cluster.route(rng.random_bool(0.2)).await else {
            continue;
        };
        let (start, end) = {
            let offsets = handle.offsets();
            (offsets.log_start.0, offsets.high_watermark.0)
        };
        if rng.random_bool(0.3) {
            let limits = Limits {
                time: rng
                    .random_bool(0.5)
                    .then(|| Duration::from_millis(rng.random_range(0..5_000))),
                bytes: rng.random_bool(0.5).then(|| rng.random_range(0..20_000)),
            };
            // What comes meanwhile may go, too.
            cluster.trims().want(Offset(u64::MAX));
            trace!(cluster.world.trace, "retention of {limits:?}");
            let retain = broker.process.heard(handle.retain(limits));
            drop(timeout(ANSWER_TIMEOUT, retain).await);
            continue;
        }
        let to = match rng.random_range(0..4) {
            0 => None,
            _ => Some(Offset(rng.random_range(start..=end + 1))),
        };
        cluster.trims().request(to.unwrap_or(Offset(u64::MAX)));
        trace!(cluster.world.trace, "a trim to {to:?} of {start} to {end}");
        let asked = broker.process.heard(handle.trim(to));
        let answer = timeout(ANSWER_TIMEOUT, asked).await;
        let Ok(Some(Ok(now))) = answer else { continue };
        cluster.trims().answer(handle.leader_epoch(), now);
        cluster.world.counts.add("trims that were answered");
        cluster
            .world
            .violations
            .check(to.is_none_or(|to| now >= to), || {
                format!("a trim to {to:?} was answered with {now}")
            });
        cluster.see(&handle);
    }
}
