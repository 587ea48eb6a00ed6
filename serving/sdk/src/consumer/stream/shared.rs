//! What the tasks and handles of one member share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::id::PartitionId;
use hulse_proto::wire::v1;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::book::Book;
use super::feed::{self, Fed, Sources};
use crate::client::Core;
use crate::error::Error;
use crate::producer::DeliveryMode;

/// What a member says of itself, and its bounds.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// `tenant/namespace/name`, or a short name.
    pub(super) group: String,
    pub(super) topics: Vec<String>,
    pub(super) pattern: String,
    pub(super) instance: String,
    pub(super) start: Option<v1::StartAt>,
    /// The application has so long to be through with what goes.
    pub(super) hand_over: Duration,
    pub(super) delivery: DeliveryMode,
    pub(super) bytes_in_flight_max: u32,
}

/// How the member is.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// It is finished.
    pub(super) failed: Option<Error>,
    /// It was closed; or it has left.
    pub(super) closing: bool,
    pub(super) left: bool,
    /// Its application stood still: it joins anew when that calls for records.
    pub(super) rests: bool,
    /// The last thing that kept it from its group.
    pub(super) trouble: Option<Error>,
}

/// A partition that is being read.
struct Feeding {
    number: u64,
    task: AbortHandle,
}

impl Drop for Feeding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) struct Shared {
    pub(super) client: Arc<Core>,
    pub(super) settings: Settings,
    pub(super) member: String,
    book: Mutex<Book>,
    state: Mutex<State>,
    feeds: Mutex<BTreeMap<PartitionId, Feeding>>,
    pub(super) sources: Sources,
    pub(super) fed: mpsc::Sender<Fed>,
    /// For the application: there may be something new.
    pub(super) news: Notify,
    /// For the member's task likewise.
    pub(super) wake: Notify,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        client: Arc<Core>,
        settings: Settings,
        member: String,
        fed: mpsc::Sender<Fed>,
    ) -> Self {
        let room = Arc::new(Semaphore::new(settings.bytes_in_flight_max as usize));
        let sources = Sources::new(Arc::clone(&client), settings.bytes_in_flight_max, room);
        Self {
            client,
            settings,
            member,
            book: Mutex::default(),
            state: Mutex::default(),
            feeds: Mutex::default(),
            sources,
            fed,
            news: Notify::new(),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    pub(super) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    pub(super) fn set_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.news.notify_waiters();
        self.wake.notify_one();
    }

    /// Changes the book, and reads what is to be read from then on.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Book) -> T) -> T {
        let (changed, reading) = {
            let mut book = self.book();
            let changed = change(&mut book);
            let reading = match self.state().closing {
                true => BTreeMap::new(),
                false => book.reading(),
            };
            (changed, reading)
        };
        let mut feeds = lock(&self.feeds);
        feeds.retain(|at, feeding| {
            let wanted = reading.get(at);
            wanted.is_some_and(|wanted| wanted.number == feeding.number)
        });
        for (at, reading) in reading {
            feeds.entry(at).or_insert_with(|| {
                let number = reading.number;
                let task = feed::run(Arc::clone(self), at, reading);
                let task = self.tasks.spawn(task).abort_handle();
                Feeding { number, task }
            });
        }
        drop(feeds);
        self.news.notify_waiters();
        changed
    }

    /// Nothing is read any more.
    pub(super) fn stop_reading(&self) {
        lock(&self.feeds).clear();
    }

    /// The application calls for records.
    pub(super) fn called(self: &Arc<Self>) {
        let leaves = {
            let mut book = self.book();
            book.called();
            book.leaving_since().is_some()
        };
        let rests = std::mem::take(&mut lock(&self.state).rests);
        if leaves || rests {
            self.wake.notify_one();
        }
    }

    /// Whether a partition that began to leave then has had its time.
    pub(super) fn overdue(&self, since: Instant) -> bool {
        since.elapsed() >= self.settings.hand_over
    }
}
