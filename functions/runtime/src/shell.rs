//! Does what a task wants, through the seams. All waiting is here; nothing is decided here.

use crate::seam::{SnapshotStore, Source, Transactions};
use crate::task::{Cleaning, Effect, Event, Task, Trouble, is_orphan};

/// A task with its doors.
pub struct Shell<S, T, K> {
    task: Task,
    source: S,
    transactions: T,
    store: K,
}

impl<S: Source, T: Transactions, K: SnapshotStore> Shell<S, T, K> {
    /// Puts them together.
    pub fn new(task: Task, source: S, transactions: T, store: K) -> Self {
        Self {
            task,
            source,
            transactions,
            store,
        }
    }

    /// The task.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The task, to take its uploads and to tell what became of them.
    pub fn task_mut(&mut self) -> &mut Task {
        &mut self.task
    }

    /// Does the next thing that the task wants, and tells it what came of it; false once the task failed. Not cancel-safe while a
    /// transaction is open: build a new shell instead of calling again.
    pub async fn step(&mut self) -> bool {
        let Some(effect) = self.task.wanted() else {
            return false;
        };
        let event = self.perform(effect).await;
        self.task.on_event(event.unwrap_or_else(Event::Failed));
        self.task.failure().is_none()
    }

    async fn perform(&mut self, effect: Effect) -> Result<Event, Trouble> {
        let event = match effect {
            Effect::Fence => Event::Fenced(self.transactions.fence().await?),
            Effect::ReadOffsets(partitions) => {
                Event::Offsets(self.transactions.offsets(&partitions).await?)
            }
            Effect::ReadChangelog { from } => Event::Page(self.transactions.changelog(from).await?),
            Effect::ReadSnapshot { path } => Event::Snapshot(self.store.get(&path).await?),
            Effect::Fetch {
                from,
                rows_max,
                bytes_max,
            } => {
                let (fetched, now) = self.source.fetch(&from, rows_max, bytes_max).await?;
                Event::Fetched { fetched, now }
            }
            Effect::Begin => self.transactions.begin().await.map(|()| Event::Done)?,
            Effect::Produce(records) => self
                .transactions
                .produce(records)
                .await
                .map(|()| Event::Done)?,
            Effect::Append(records) => Event::Appended {
                last: self.transactions.append(records).await?,
            },
            Effect::CommitOffsets(offsets) => self
                .transactions
                .commit_offsets(offsets)
                .await
                .map(|()| Event::Done)?,
            Effect::Commit => self.transactions.commit().await.map(|()| Event::Done)?,
        };
        Ok(event)
    }

    /// Deletes what the task does not need any more.
    ///
    /// # Errors
    /// [`Trouble`]: some of it may still be there. Nothing needs to be done: a later restore sweeps again.
    pub async fn clean(&mut self) -> Result<(), Trouble> {
        for cleaning in self.task.take_cleaning() {
            match cleaning {
                Cleaning::Truncate { before } => self.transactions.truncate(before).await?,
                Cleaning::Delete { path } => self.store.delete(&path).await?,
                Cleaning::Sweep { prefix, by, keep } => {
                    for path in self.store.list(&prefix).await? {
                        if is_orphan(&path, &prefix, by, &keep) {
                            self.store.delete(&path).await?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
