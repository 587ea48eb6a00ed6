//! The call that makes a session.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{FutureExt, Stream, StreamExt};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, consume_down};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::session::Session;
use crate::authorise::{Action, Resource};
use crate::listener::front::Front;

/// Items that wait for the connection.
const ITEMS_MAX: usize = 256;

/// Service Consume.
pub(crate) struct ConsumeService(pub(crate) Arc<Front>);

type Responses = Pin<Box<dyn Stream<Item = Result<v1::ConsumeDown, Status>> + Send>>;

#[tonic::async_trait]
impl v1::consume_server::Consume for ConsumeService {
    type SessionStream = Responses;

    async fn session(
        &self,
        request: Request<Streaming<v1::ConsumeUp>>,
    ) -> Result<Response<Responses>, Status> {
        let front = self.0.clone();
        let allowed = async { front.allow(Action::Consume, Resource::Cell) };
        front.answer("Consume.Session", allowed).await?;
        let (down, responses) = mpsc::channel(ITEMS_MAX);
        let up = request.into_inner();
        let last_seq = Arc::new(AtomicU64::new(0));
        let session = Session::new(front.clone(), up, down.clone(), last_seq.clone());
        front.tasks.clone().spawn(async move {
            let outcome = AssertUnwindSafe(Box::pin(session.run()))
                .catch_unwind()
                .await;
            let fault = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => fault,
                Err(_) => {
                    front.metrics.panicked();
                    let words = "this session met a bug; attach again";
                    Fault::new(Reason::Internal, words)
                }
            };
            front.metrics.fault(fault.reason);
            // An error means that the client is gone; a full queue, that it does not listen.
            tokio::select! {
                biased;
                () = front.kill.cancelled() => {}
                _ = down.send((Err(fault.to_status()), None)) => {}
            }
        });
        let responses = ReceiverStream::new(responses).map(move |(item, _room)| {
            item.map(|mut down| {
                number(&mut down, &last_seq);
                down
            })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}

/// Deliveries are numbered in the order in which they leave.
fn number(down: &mut v1::ConsumeDown, last: &AtomicU64) {
    match &mut down.item {
        Some(consume_down::Item::Delivery(delivery)) => {
            delivery.delivery_seq = last.fetch_add(1, Ordering::Relaxed) + 1;
        }
        Some(consume_down::Item::Heartbeat(heartbeat)) => {
            heartbeat.last_delivery_seq = last.load(Ordering::Relaxed);
        }
        _ => {}
    }
}
