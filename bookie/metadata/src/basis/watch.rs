//! Watches: a stream pulls from the history, so a slow watcher costs no memory; one that falls behind gets `Compacted`.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::store::{BoxFuture, MetadataError, Revision, WatchEvent, WatchStream};

/// What a watch asks of its store.
pub(crate) trait Source: Send + Sync + 'static {
    /// Changes whenever there may be an event or a lease with an earlier deadline.
    fn signal(&self) -> Receiver<u64>;

    /// Events above a revision, and how far they reach.
    fn events(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<(Vec<WatchEvent>, Revision), MetadataError>;

    /// When the next lease is due.
    fn next_deadline(&self) -> Option<Instant>;

    /// Ends the leases that are due.
    fn expire(self: &Arc<Self>) -> BoxFuture<'_, Result<(), MetadataError>>;
}

struct Watch<S> {
    source: Arc<S>,
    prefix: String,
    after: Revision,
    ready: VecDeque<WatchEvent>,
    signal: Receiver<u64>,
    failed: bool,
}

/// Streams the changes under `prefix` above `after`.
pub(crate) fn stream<S: Source>(source: Arc<S>, prefix: String, after: Revision) -> WatchStream {
    let watch = Watch {
        signal: source.signal(),
        source,
        prefix,
        after,
        ready: VecDeque::new(),
        failed: false,
    };
    Box::pin(futures::stream::unfold(watch, |mut watch| async move {
        let item = watch.next().await?;
        watch.failed = item.is_err();
        Some((item, watch))
    }))
}

impl<S: Source> Watch<S> {
    async fn next(&mut self) -> Option<Result<WatchEvent, MetadataError>> {
        if self.failed {
            return None;
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            // Marked as seen before looking: a change that comes after the look wakes the wait below.
            self.signal.borrow_and_update();
            if let Err(error) = self.refill().await {
                return Some(Err(error));
            }
            if self.ready.is_empty() && !self.wait().await {
                return None;
            }
        }
    }

    async fn refill(&mut self) -> Result<(), MetadataError> {
        self.source.expire().await?;
        let (events, reached) = self.source.events(&self.prefix, self.after)?;
        self.after = reached;
        self.ready.extend(events);
        Ok(())
    }

    /// Waits for something to look at; `false` when the store is gone.
    async fn wait(&mut self) -> bool {
        let deadline = self.source.next_deadline();
        let due = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = self.signal.changed() => changed.is_ok(),
            () = due => true,
        }
    }
}
