//! Who calls: bursts of calls of all kinds, each judged when it is answered.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use hulse_proto::bookie::{BookieCalls as _, BookieError, Call as Later};
use hulse_proto::id::NodeName;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};

use super::calls::{CallId, Kind, entries_words, recovered_words};
use super::net::{PORT, SimConnect};
use super::peer::{Log, host};
use super::run::{BOOKIES, FIRE, SETTLE, TICK};
use crate::remote::{RemoteBookie, RemoteConfig};

/// How often calls that are overdue are looked for, as the link has it.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// A network that works is used again within so long.
const AGAIN_MAX: Duration = Duration::from_secs(10);

/// How calls ended.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) answered: Cell<u64>,
    pub(super) unknown: Cell<u64>,
    pub(super) busy: Cell<u64>,
}

/// A caller.
pub(super) struct Caller {
    pub(super) number: u32,
    pub(super) log: Arc<Log>,
    pub(super) config: RemoteConfig,
    pub(super) connect: SimConnect,
    pub(super) ends: Rc<Ends>,
    pub(super) rng: ChaCha12Rng,
    /// Most calls of one burst, and the longest pause between two, ms.
    pub(super) burst_max: u32,
    pub(super) pause_max_ms: u64,
}

fn tell(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

impl Caller {
    /// Calls until the network works for good, and then sees that it does.
    pub(super) async fn live(mut self) -> turmoil::Result {
        let remotes: Vec<RemoteBookie> = (0..BOOKIES)
            .map(|bookie| {
                let name = NodeName::new(&host(bookie)).expect("a short name is a name");
                let address = format!("{name}:{PORT}");
                let connect = Arc::new(self.connect.clone());
                RemoteBookie::new(name, &address, self.config, connect)
            })
            .collect();
        let end = Instant::now() + FIRE;
        let mut number = 0;
        while Instant::now() < end {
            let pause = self.rng.random_range(1..=self.pause_max_ms);
            sleep(Duration::from_millis(pause)).await;
            let bookie = self.rng.random_range(0..BOOKIES);
            for _ in 0..self.rng.random_range(1..=self.burst_max) {
                number += 1;
                let kind = Kind::draw(&mut self.rng);
                self.make((bookie, &remotes[bookie]), kind, number);
            }
        }
        sleep(SETTLE).await;
        for (bookie, remote) in remotes.iter().enumerate() {
            self.again((bookie, remote), &mut number).await;
        }
        Ok(())
    }

    /// Makes a call; it is judged when its answer comes.
    fn make(&self, (bookie, remote): (usize, &RemoteBookie), kind: Kind, number: u32) {
        let id = CallId {
            caller: self.number,
            number,
        };
        let log = Arc::clone(&self.log);
        log.waits((bookie, id), kind);
        let ends = Rc::clone(&self.ends);
        let mut answer = Box::pin(call(remote, kind, id));
        let judge = move |answer: Result<String, BookieError>| {
            match &answer {
                Err(BookieError::NoAnswer { .. }) => tell(&ends.unknown),
                Err(BookieError::Busy { .. }) => tell(&ends.busy),
                _ => tell(&ends.answered),
            }
            log.heard((bookie, id), kind, &answer);
        };
        if let Some(refused) = (&mut answer).now_or_never() {
            return judge(refused);
        }
        // Those that were answered just now, and have not heard so, are counted too.
        let waiting = self.log.waiting(bookie, self.number, kind.is_ordered());
        if waiting > 2 * self.config.calls_max {
            self.log.wrong(format!("{waiting} calls of one lane wait"));
        }
        let patience = self.config.answer_timeout + EXPIRE_EVERY + 2 * TICK;
        let log = Arc::clone(&self.log);
        spawn_local(async move {
            match timeout(patience, answer).await {
                Ok(answer) => judge(answer),
                Err(_) => log.wrong(format!("{kind:?} {id:?} of bookie {bookie} does not end")),
            }
        });
    }

    /// The network works: so does the link.
    async fn again(&self, (bookie, remote): (usize, &RemoteBookie), number: &mut u32) {
        let began = Instant::now();
        while began.elapsed() < AGAIN_MAX {
            *number += 1;
            let id = CallId {
                caller: self.number,
                number: *number,
            };
            self.log.waits((bookie, id), Kind::Fence);
            let answer = call(remote, Kind::Fence, id).await;
            self.log.heard((bookie, id), Kind::Fence, &answer);
            if !matches!(answer, Err(BookieError::NoAnswer { .. })) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.log
            .wrong(format!("bookie {bookie} is not reached any more"));
    }
}

/// A call, and its answer in words.
fn call(
    remote: &RemoteBookie,
    kind: Kind,
    id: CallId,
) -> impl Future<Output = Result<String, BookieError>> + use<> {
    fn words<T: 'static>(answer: Later<T>, words: fn(T) -> String) -> Later<String> {
        Box::pin(async move { answer.await.map(words) })
    }
    match kind {
        Kind::Add => words(remote.add(id.add()), |()| "done".to_owned()),
        Kind::Delete => words(remote.delete(id.address()), |()| "done".to_owned()),
        Kind::Fence => words(remote.fence(id.fence()), |answer| format!("{answer:?}")),
        Kind::RecoveryRead => words(remote.recovery_read(id.recovery_read()), |answer| {
            recovered_words(&answer)
        }),
        Kind::Read => words(remote.read(id.read()), |answer| entries_words(&answer)),
        Kind::Heads => words(remote.read_heads(id.read()), |answer| format!("{answer:?}")),
        Kind::Inventory => words(remote.inventory(id.inventory()), |answer| {
            format!("{answer:?}")
        }),
    }
}
