//! A bookie as one client process sees it: `BookieCalls` through the simulated network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hulse_proto::bookie::{
    AddRequest, Address, BookieCalls, BookieError, Call, EntryHead, FenceAnswer, FenceRequest,
    Inventory, InventoryRequest, Origin, ReadRequest, RecoveryReadAnswer, RecoveryReadRequest,
    StoredEntry,
};
use hulse_proto::id::LedgerId;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::request::{Reply, Request};
use super::sim_bookie::SimBookie;
use crate::crash_point::{CrashPlan, CrashPoint, Side};
use crate::network::{Delivery, Kind, Message, Network, Sight};
use crate::process::Process;
use crate::trace;
use crate::trace::Trace;

/// A caller hears of a lost message this much later, if at all.
const BROKEN_AFTER: Duration = Duration::from_millis(700);
/// A call has its turn for this long at most.
const TURN_MAX: Duration = Duration::from_millis(100);

/// What one client process has done so far with each ledger: decides where its crash points lie.
#[derive(Debug, Default)]
pub struct Progress {
    /// Fences and write-backs, by ledger and token.
    recoveries: BTreeMap<(LedgerId, Kind, u64), u32>,
    /// Positive answers to adds, by ledger and entry.
    acks: BTreeMap<(LedgerId, u64), u32>,
}

/// What all calls of one client process share.
#[derive(Clone)]
pub struct ClientSide {
    /// Its gate.
    pub process: Process,
    /// The network.
    pub network: Network,
    /// Its crash points.
    pub crashes: CrashPlan,
    /// Qa.
    pub ack_quorum: u32,
    /// How far it is.
    pub progress: Arc<Mutex<Progress>>,
    /// The run's trace.
    pub trace: Trace,
}

/// One bookie for one client.
#[derive(Clone)]
pub struct Endpoint {
    client: ClientSide,
    bookie: Arc<SimBookie>,
}

impl Endpoint {
    /// The way from a client to a bookie.
    pub fn new(client: ClientSide, bookie: Arc<SimBookie>) -> Self {
        Self { client, bookie }
    }

    fn call<T: Send + 'static>(
        &self,
        request: Request,
        take: fn(Reply) -> Option<Result<T, BookieError>>,
    ) -> Call<T> {
        let (answer, heard) = oneshot::channel();
        let answer = Answer(Arc::new(Mutex::new(Some(answer))));
        let this = self.clone();
        // The message leaves now, whatever becomes of the future.
        tokio::spawn(async move { this.send(request, answer).await });
        Box::pin(async move {
            let lost = || BookieError::NoAnswer {
                why: "connection broke".to_owned(),
            };
            match heard.await {
                Ok(reply) => take(reply).unwrap_or_else(|| Err(lost())),
                Err(_) => Err(lost()),
            }
        })
    }

    async fn send(self, request: Request, answer: Answer) {
        self.client.process.running().await;
        self.see(&request, None);
        let hit = self.client.before_send(&request);
        if hit == Some(Side::Before) {
            return self.client.process.kill();
        }
        let delivery = self.deliver(&request, false);
        if hit == Some(Side::After) {
            self.client.process.kill();
        }
        match delivery {
            Delivery::Drop => self.lose(&request, answer).await,
            Delivery::After(time) => {
                sleep(time).await;
                self.arrive(request, answer).await;
            }
            Delivery::Twice(first, second) => {
                let (again, copy, same) = (self.clone(), request.clone(), answer.clone());
                tokio::spawn(async move {
                    sleep(second).await;
                    again.arrive(copy, same).await;
                });
                sleep(first).await;
                self.arrive(request, answer).await;
            }
            Delivery::Hold => {
                self.client.network.held().await;
                self.arrive(request, answer).await;
            }
        }
    }

    fn see(&self, request: &Request, reply: Option<&Reply>) {
        self.client.network.see(&Sight {
            client: self.client.process.name(),
            bookie: self.bookie.name(),
            request,
            reply,
        });
    }

    fn deliver(&self, request: &Request, answer: bool) -> Delivery {
        self.client.network.deliver(&Message {
            client: self.client.process.name(),
            bookie: self.bookie.name(),
            kind: request.kind(),
            answer,
            ledger: request.ledger(),
            entry: request.entry(),
        })
    }

    /// Half of the lost messages are noticed; of the others nobody ever hears.
    async fn lose(&self, request: &Request, answer: Answer) {
        let silent = request
            .entry()
            .is_none_or(|entry| entry.0.is_multiple_of(2));
        sleep(BROKEN_AFTER).await;
        if silent {
            std::future::pending::<()>().await;
        }
        answer.take();
    }

    async fn arrive(self, request: Request, answer: Answer) {
        let Some(reply) = self.ask(&request).await else {
            return self.lose(&request, answer).await;
        };
        match self.deliver(&request, true) {
            Delivery::Drop => return self.lose(&request, answer).await,
            Delivery::After(time) => sleep(time).await,
            Delivery::Twice(first, second) => {
                let (again, copy) = (self.clone(), (request.clone(), reply.clone()));
                let same = answer.clone();
                tokio::spawn(async move {
                    sleep(second).await;
                    again.heard(&copy.0, copy.1, same).await;
                });
                sleep(first).await;
            }
            Delivery::Hold => self.client.network.held().await,
        }
        self.heard(&request, reply, answer).await;
    }

    /// The bookie's answer, in the order of priorities; a call that hangs keeps nobody back.
    async fn ask(&self, request: &Request) -> Option<Reply> {
        let (client, bookie) = (self.client.process.name(), self.bookie.name());
        let turn = self.client.network.turn(client, bookie).await;
        let mut asked = std::pin::pin!(self.bookie.ask(request.clone()));
        match timeout(TURN_MAX, &mut asked).await {
            Ok(reply) => reply,
            Err(_) => {
                drop(turn);
                asked.await
            }
        }
    }

    /// An answer arrives; the first of several copies is the one that counts.
    async fn heard(&self, request: &Request, reply: Reply, answer: Answer) {
        self.client.process.running().await;
        let Some(answer) = answer.take() else {
            return;
        };
        let hit = self.client.before_answer(request, &reply);
        if hit == Some(Side::Before) {
            return self.client.process.kill();
        }
        self.see(request, Some(&reply));
        // Who asked may have stopped waiting.
        let _ = answer.send(reply);
        if hit == Some(Side::After) {
            self.client.process.kill();
        }
    }
}

/// Who waits for an answer of which several copies may be on their way. Clones share it.
#[derive(Clone)]
struct Answer(Arc<Mutex<Option<oneshot::Sender<Reply>>>>);

impl Answer {
    fn take(&self) -> Option<oneshot::Sender<Reply>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientSide {
    fn pass(&self, point: CrashPoint) -> Option<Side> {
        let side = self.crashes.pass(point)?;
        trace!(
            self.trace,
            "{} dies {side:?} crash point {}",
            self.process.name(),
            point.0
        );
        Some(side)
    }

    /// A numbered point, or the effect that chaos chose for this process as its last.
    fn before_send(&self, request: &Request) -> Option<Side> {
        let doomed = self.process.effect();
        self.numbered(request).or(doomed)
    }

    /// Points 21 and 22: some fences, or some write-backs, have left, and this one may be the last or the first that does not.
    fn numbered(&self, request: &Request) -> Option<Side> {
        let (point, token) = match request {
            Request::Fence(fence) => (CrashPoint(21), fence.token.0),
            Request::Add(add) => match add.origin {
                Origin::Recovery { token } => (CrashPoint(22), token.0),
                _ => return None,
            },
            _ => return None,
        };
        let key = (request.ledger(), request.kind(), token);
        let before = {
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let sent = progress.recoveries.entry(key).or_default();
            *sent += 1;
            *sent - 1
        };
        if before == 0 {
            return None;
        }
        self.pass(point)
    }

    /// Point 17: the ack quorum is full, and the caller has not heard of it.
    fn before_answer(&self, request: &Request, reply: &Reply) -> Option<Side> {
        let (Request::Add(add), Reply::Add(Ok(()))) = (request, reply) else {
            return None;
        };
        if add.origin != Origin::Normal {
            return None;
        }
        let key = (add.to.ledger, add.entry.header().entry.0);
        let acks = {
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            let acks = progress.acks.entry(key).or_default();
            *acks += 1;
            *acks
        };
        if acks != self.ack_quorum {
            return None;
        }
        self.pass(CrashPoint(17))
    }
}

impl BookieCalls for Endpoint {
    fn add(&self, request: AddRequest) -> Call<()> {
        self.call(Request::Add(request), |reply| match reply {
            Reply::Add(result) => Some(result),
            _ => None,
        })
    }

    fn fence(&self, request: FenceRequest) -> Call<FenceAnswer> {
        self.call(Request::Fence(request), |reply| match reply {
            Reply::Fence(result) => Some(result),
            _ => None,
        })
    }

    fn recovery_read(&self, request: RecoveryReadRequest) -> Call<RecoveryReadAnswer> {
        self.call(Request::RecoveryRead(request), |reply| match reply {
            Reply::RecoveryRead(result) => Some(result),
            _ => None,
        })
    }

    fn read(&self, request: ReadRequest) -> Call<Vec<StoredEntry>> {
        self.call(Request::Read(request), |reply| match reply {
            Reply::Read(result) => Some(result),
            _ => None,
        })
    }

    fn read_heads(&self, request: ReadRequest) -> Call<Vec<EntryHead>> {
        self.call(Request::Heads(request), |reply| match reply {
            Reply::Heads(result) => Some(result),
            _ => None,
        })
    }

    fn delete(&self, to: Address) -> Call<()> {
        self.call(Request::Delete(to), |reply| match reply {
            Reply::Delete(result) => Some(result),
            _ => None,
        })
    }

    fn inventory(&self, request: InventoryRequest) -> Call<Inventory> {
        self.call(Request::Inventory(request), |reply| match reply {
            Reply::Inventory(result) => Some(result),
            _ => None,
        })
    }
}
