//! Asks metadata now and then whether what is held here still exists (storage.md G1–G3), and whether limbo is over (S4).

use std::sync::{Arc, Weak};
use std::time::Duration;

use bookie_metadata::MetadataStore;
use hulse_proto::ledger::Member;
use hulse_proto::time::TimestampMs;
use tokio::time::sleep;

use super::shared::Shared;
use crate::config::NodeConfig;
use crate::core::Event;
use crate::reclaim::{Findings, Held, ProofError, examine};

/// While ledgers are in limbo, or may lack what stood in a damaged range, metadata are asked at least so often: it may be over (S4).
const LIMBO_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Runs until the node is gone. `since` is when it started, by the wall.
pub(super) async fn run(
    shared: Weak<Shared>,
    metadata: Arc<dyn MetadataStore>,
    me: Member,
    (config, since): (NodeConfig, TimestampMs),
) {
    let mut silent = false;
    loop {
        let Some(doubt) = works(&shared).map(|shared| {
            let core = &shared.lock().core;
            core.limbo_ledgers() > 0 || core.has_damaged_ranges()
        }) else {
            return;
        };
        sleep(match doubt {
            false => config.gc_interval,
            true => config.gc_interval.min(LIMBO_INTERVAL_MAX),
        })
        .await;
        let Some(held) = works(&shared).map(|shared| shared.held(since)) else {
            return;
        };
        let asked = (&me, config.gc_percent_max);
        let found = examine(metadata.as_ref(), config.cell, asked, &held).await;
        // Not kept alive for the time of a question.
        let Some(shared) = works(&shared) else {
            return;
        };
        let stopped = matches!(found, Err(ProofError::Breaker { .. }));
        shared.metrics.collection_held.set(i64::from(stopped));
        match found {
            Ok(findings) => {
                silent = false;
                shared.take_findings(findings, held.copies);
            }
            Err(error @ (ProofError::Metadata(_) | ProofError::Cell(_))) => {
                if !std::mem::replace(&mut silent, true) {
                    tracing::warn!(%error, "metadata do not say which ledgers are gone; nothing is collected");
                }
            }
            Err(error) => tracing::error!(%error, "nothing is collected"),
        }
    }
}

/// The node, while it serves.
fn works(shared: &Weak<Shared>) -> Option<Arc<Shared>> {
    shared.upgrade().filter(|shared| {
        let inner = shared.lock();
        !inner.stopping && inner.core.failed().is_none()
    })
}

impl Shared {
    /// What is held here. Others have the lock between the files.
    fn held(&self, since: TimestampMs) -> Held {
        let mut held = Held {
            since,
            ..self.lock().core.held()
        };
        let files = self.lock().core.sealed_files();
        for file in files {
            self.lock().core.add_bytes(file, &mut held);
        }
        held
    }

    fn take_findings(self: &Arc<Self>, findings: Findings, copies: u64) {
        if !findings.strays.is_empty() {
            let count = findings.strays.len();
            tracing::info!(
                count,
                "copies of ledgers belong to other bookies by now; their space is freed"
            );
            self.feed(Event::Strayed {
                ledgers: findings.strays,
                copies,
            });
        }
        if !findings.dead.is_empty() {
            let count = findings.dead.len();
            tracing::info!(
                count,
                "ledgers are gone by metadata's word; their space is freed"
            );
            self.metrics.collected.inc_by(count as u64);
            self.feed(Event::Collected(findings.dead));
        }
        if !findings.covered.is_empty() {
            let ranges = findings.covered;
            tracing::info!(?ranges, "nothing is missing any more by damage of the log");
            self.feed(Event::DamageCovered(ranges));
        }
        for settled in findings.settled {
            self.feed(Event::Settled(Box::new(settled)));
        }
        let left = self.lock().core.limbo_ledgers();
        self.metrics.limbo_ledgers.set(left as i64);
    }
}
