//! The handle: records and notes out, commits in.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt, Stream};
use hulse_proto::error::{ErrorKind, Reason};
use hulse_proto::id::PartitionId;
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use super::commits::Commit;
use super::feed::{Fed, What};
use super::item::{StreamItem, StreamNote, StreamPartition, StreamRecord, StreamStats};
use super::shared::Shared;
use crate::consumer::SkipReason;
use crate::error::Error;
use crate::interceptor::Chain;
use crate::producer::DeliveryMode;
use crate::reader::{Chunk, ReadRecord, RecordBatch};

/// A member that has nothing more to wait for leaves within this.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// A member of a group: reads the partitions that the group gives it, and commits what its application has processed.
///
/// ```no_run
/// # async fn example(client: hulse_sdk::Client) -> Result<(), hulse_sdk::Error> {
/// use std::time::Duration;
///
/// let consumer = client.stream_consumer(["orders"]).group("billing").build().await?;
/// loop {
///     let records = consumer.receive(100, Duration::from_secs(10)).await?;
///     for record in &records {
///         println!("{} {}/{}", record.topic, record.partition, record.offset);
///     }
///     // Partitions that go to others are given back with the next call, from here on.
///     consumer.commit_all().await?;
/// }
/// # }
/// ```
///
/// Clones are the same member; dropping the last one without [`StreamConsumer::close`] leaves its partitions without a reader until its session ends.
#[derive(Clone)]
pub struct StreamConsumer {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    taking: Mutex<Taking>,
    /// Met behind records that a call of [`StreamConsumer::receive`] had in hand: the next call answers it.
    refused: StdMutex<Option<Error>>,
    interceptors: Chain,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Where handing out stands.
struct Taking {
    queue: mpsc::Receiver<Fed>,
    chunk: Option<Open>,
}

/// A message that is being handed out.
struct Open {
    at: PartitionId,
    number: u64,
    batches: VecDeque<RecordBatch>,
    records: std::vec::IntoIter<ReadRecord>,
    /// Where the message ends.
    end: u64,
    /// With [`DeliveryMode::AtMostOnce`]: the commit of the batch at the front, which waits for it.
    commit: Option<Commit>,
    /// Given back when all of it was handed out.
    _room: OwnedSemaphorePermit,
}

impl StreamConsumer {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: mpsc::Receiver<Fed>,
        interceptors: Chain,
    ) -> Self {
        let taking = Taking { queue, chunk: None };
        let inner = Inner {
            shared,
            taking: Mutex::new(taking),
            refused: StdMutex::default(),
            interceptors,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The next record or note; waits for it. `None` after `close`.
    ///
    /// # Errors
    /// A damaged batch, or an interceptor's refusal: the next call goes on behind it. Or why the member is finished, such as
    /// SUBSCRIPTION_EXISTS. Cancel-safe.
    pub async fn next(&self) -> Result<Option<StreamItem>, Error> {
        let mut taking = self.inner.taking.lock().await;
        let shared = &self.inner.shared;
        shared.called();
        if let Some(error) = self.inner.refused().take() {
            return Err(error);
        }
        loop {
            let news = shared.news.notified();
            let mut news = std::pin::pin!(news);
            // Before looking, so that nothing which comes in between is missed.
            news.as_mut().enable();
            if let Some(note) = shared.book().notes.pop_front() {
                return Ok(Some(StreamItem::Note(note)));
            }
            let state = shared.state();
            if state.closing {
                return Ok(None);
            }
            if let Some(record) = self.inner.open(&mut taking).await? {
                return Ok(Some(StreamItem::Record(record)));
            }
            if let Some(error) = state.failed {
                return Err(error);
            }
            tokio::select! {
                biased;
                () = news => {}
                fed = taking.queue.recv() => match fed {
                    Some(fed) => self.inner.take(&mut taking, fed),
                    None => return Ok(None),
                },
            }
        }
    }

    /// As many records as there are, at most `max`; waits up to `wait` for the first. Notes are passed over, but for the log: use
    /// [`StreamConsumer::next`] to see them.
    ///
    /// A call says that the application is through with the records of earlier calls: of partitions that go to others what it has
    /// committed counts, and the rest is processed again there.
    ///
    /// # Errors
    /// Those of [`StreamConsumer::next`], of which one that is met behind other records comes with the next call; invalid after
    /// `close`. Cancel-safe: what was not answered comes with the next call.
    pub async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<StreamRecord>, Error> {
        let until = Instant::now() + wait;
        let mut records = Vec::new();
        while records.len() < max.max(1) {
            // What is here already, without waiting: records that are in hand here count as handed out, so whoever drops this
            // call would lose them.
            let next = match records.is_empty() {
                true => timeout_at(until, self.next()).await.ok(),
                false => self.next().now_or_never(),
            };
            let Some(next) = next else { break };
            match next {
                Ok(Some(StreamItem::Record(record))) => records.push(record),
                Ok(Some(StreamItem::Note(note))) => {
                    log(&note);
                    // Of partitions that go nothing may be handed out before what was is processed.
                    if !records.is_empty() {
                        break;
                    }
                }
                Ok(None) if records.is_empty() => return Err(closed()),
                Ok(None) => break,
                Err(error) if records.is_empty() => return Err(error),
                Err(error) => {
                    *self.inner.refused() = Some(error);
                    break;
                }
            }
        }
        Ok(records)
    }

    /// The records as a stream. It ends after `close`; after an error it goes on.
    pub fn stream(&self) -> impl Stream<Item = Result<StreamRecord, Error>> + Send + 'static {
        futures::stream::unfold(self.clone(), |consumer| async move {
            loop {
                match consumer.next().await {
                    Ok(Some(StreamItem::Record(record))) => return Some((Ok(record), consumer)),
                    Ok(Some(StreamItem::Note(note))) => log(&note),
                    Ok(None) => return None,
                    Err(error) => return Some((Err(error), consumer)),
                }
            }
        })
    }

    /// Gives records to `handler`, at most `max` at a time, until the consumer is closed; what it takes is committed.
    ///
    /// # Errors
    /// Why the member is finished; or what the handler refused its records with: nothing of them is committed, and whoever gets the
    /// partitions next processes them again. Dropped, it drops the handler that runs likewise.
    pub async fn handle<F, R, E>(&self, max: usize, handler: F) -> Result<(), Error>
    where
        F: Fn(Vec<StreamRecord>) -> R,
        R: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        loop {
            let records = match self.receive(max, FAREWELL_MAX).await {
                Err(_) if self.inner.shared.state().closing => return Ok(()),
                records => records?,
            };
            if records.is_empty() {
                continue;
            }
            let mut last: Vec<StreamRecord> = Vec::new();
            for record in &records {
                match last.iter_mut().find(|last| last.at == record.at) {
                    Some(last) => last.clone_from(record),
                    None => last.push(record.clone()),
                }
            }
            if let Err(error) = handler(records).await {
                let words = format!("the handler refused records: {error}");
                return Err(Error::local(ErrorKind::Conflict, words));
            }
            for record in &last {
                // Its receipt is waited for before the partition is given back, and by `close`.
                drop(self.commit(record));
            }
        }
    }

    /// The record and all before it in its partition are processed: whoever gets the partition next begins behind it. The commit is
    /// under way when this returns; commits that wait are sent together.
    ///
    /// # Errors
    /// Of the commit, NOT_OWNED: the partition is another member's by now. [`Error::possibly_written`] says whether it may count.
    pub fn commit(&self, record: &StreamRecord) -> Commit {
        let shared = &self.inner.shared;
        let commit = shared.book().commit(record);
        shared.wake.notify_one();
        commit
    }

    /// Everything that was handed out is processed; waits until that is durable.
    ///
    /// # Errors
    /// The first of [`StreamConsumer::commit`]. Cancel-safe: the commits go on.
    pub async fn commit_all(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let commits = shared.book().commit_all();
        shared.wake.notify_one();
        for commit in commits {
            commit.await?;
        }
        Ok(())
    }

    /// Hands out nothing more, waits until commits are durable (at most for the client's request time-out), and leaves the group: its
    /// partitions are others' at once. Every clone is closed.
    ///
    /// # Errors
    /// Unavailable: not all commits are answered, or the coordinator did not hear that the member leaves. Cancel-safe: called again it
    /// goes on waiting.
    pub async fn close(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        shared.set_state(|state| state.closing = true);
        // Nothing is read any more.
        shared.change(|_| ());
        let waited = shared.client.request_timeout;
        let in_time = timeout(waited, left(shared)).await;
        shared.stop.cancel();
        shared.tasks.close();
        let _ = timeout(FAREWELL_MAX, shared.tasks.wait()).await;
        in_time.map_err(|_| {
            let words = format!(
                "the group did not answer within {waited:?}; what was committed last may not count"
            );
            Error::local(ErrorKind::Unavailable, words)
        })
    }

    /// What the member has now.
    pub fn partitions(&self) -> Vec<StreamPartition> {
        self.inner.shared.book().partitions()
    }

    /// True when everything was handed out that its partitions had when their owners last spoke.
    pub fn at_end(&self) -> bool {
        self.inner.shared.book().at_end()
    }

    /// Name of the group, as it was given.
    pub fn group(&self) -> &str {
        &self.inner.shared.settings.group
    }

    /// The member's identity in its group.
    pub fn member_id(&self) -> &str {
        &self.inner.shared.member
    }

    /// What was done so far.
    pub fn stats(&self) -> StreamStats {
        let book = self.inner.shared.book();
        StreamStats {
            partitions: book.owned().count() as u64,
            ..book.stats
        }
    }
}

impl Inner {
    fn refused(&self) -> MutexGuard<'_, Option<Error>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, taking: &mut Taking, fed: Fed) {
        let Fed { at, number, what } = fed;
        match what {
            What::Chunk(chunk, room) => taking.chunk = self.begin(at, number, chunk, room),
            What::Skipped(first, end, why) => {
                let mut book = self.shared.book();
                book.skipped(at, number, (first, end), why);
                book.passed(at, number, end);
            }
            What::Failed(why) => self.shared.book().unreadable(at, number, why),
        }
    }

    fn begin(
        &self,
        at: PartitionId,
        number: u64,
        chunk: Chunk,
        room: OwnedSemaphorePermit,
    ) -> Option<Open> {
        let mut book = self.shared.book();
        // Read before the partition went.
        if !book.hands_out(at, number) {
            return None;
        }
        for range in &chunk.skipped {
            if let Some(why) = SkipReason::of(range) {
                book.skipped(at, number, (range.first, range.end), why);
            }
        }
        Some(Open {
            at,
            number,
            batches: chunk.batches.into(),
            records: Vec::new().into_iter(),
            end: chunk.end,
            commit: None,
            _room: room,
        })
    }

    /// The next record of the message that is open; `None`: there is none left.
    async fn open(&self, taking: &mut Taking) -> Result<Option<StreamRecord>, Error> {
        let shared = &self.shared;
        while let Some(open) = &mut taking.chunk {
            let (at, number) = (open.at, open.number);
            if let Some(record) = open.records.next() {
                if shared.book().hand(at, number, record.offset.0) {
                    return self.record(at, number, record).map(Some);
                }
                continue;
            }
            if let Some(commit) = &mut open.commit {
                let committed = commit.await;
                open.commit = None;
                // Whoever has the partition by now hands it out.
                if let Err(error) = committed {
                    taking.chunk = None;
                    match error.reason() {
                        Some(Reason::NotOwned) => continue,
                        _ => return Err(error),
                    }
                }
                if let Some(batch) = open.batches.pop_front() {
                    open.records = records(&batch)?;
                }
                continue;
            }
            let Some(batch) = open.batches.front() else {
                shared.book().passed(at, number, open.end);
                taking.chunk = None;
                continue;
            };
            let end = batch.header.end_offset().0;
            if batch.header.is_control() {
                shared.book().passed(at, number, end);
                open.batches.pop_front();
            } else if shared.settings.delivery == DeliveryMode::AtMostOnce {
                open.commit = Some(shared.book().commit_to(at, number, end));
                shared.wake.notify_one();
            } else {
                let batch = open.batches.pop_front();
                let decoded = batch.map(|batch| records(&batch)).transpose();
                if decoded.is_err() {
                    shared.book().passed(at, number, end);
                }
                open.records = decoded?.unwrap_or_default();
            }
        }
        Ok(None)
    }

    fn record(
        &self,
        at: PartitionId,
        number: u64,
        record: ReadRecord,
    ) -> Result<StreamRecord, Error> {
        let topic = self.shared.book().topic_of(at).unwrap_or_default();
        let record = self.interceptors.before_deliver(&topic, record)?;
        Ok(StreamRecord {
            topic,
            record,
            at,
            number,
        })
    }
}

fn records(batch: &RecordBatch) -> Result<std::vec::IntoIter<ReadRecord>, Error> {
    Ok(batch.records()?.into_iter())
}

async fn left(shared: &Shared) {
    loop {
        let news = shared.news.notified();
        let mut news = std::pin::pin!(news);
        news.as_mut().enable();
        if shared.state().left {
            return;
        }
        news.await;
    }
}

/// Notes for whoever takes records only.
fn log(note: &StreamNote) {
    match note {
        StreamNote::Assigned(partitions) => tracing::info!(?partitions, "partitions are assigned"),
        StreamNote::Revoked(partitions) => tracing::info!(?partitions, "partitions go to others"),
        StreamNote::Lost { partitions, why } => {
            tracing::warn!(?partitions, %why, "partitions are lost");
        }
        StreamNote::Skipped {
            partition,
            offsets,
            why,
        } => tracing::warn!(%partition, ?offsets, ?why, "offsets are not handed out"),
        StreamNote::Idle { grace } => tracing::warn!(?grace, "the application takes no records"),
        StreamNote::Unreadable { partition, why } => {
            tracing::warn!(%partition, %why, "a partition cannot be read");
        }
    }
}

fn closed() -> Error {
    Error::invalid("the consumer is closed")
}

impl fmt::Debug for StreamConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConsumer")
            .field("group", &self.group())
            .field("member", &self.member_id())
            .finish_non_exhaustive()
    }
}
