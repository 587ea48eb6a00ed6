//! The call that makes a session.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::session::Session;
use crate::authorise::{Action, Resource};
use crate::listener::front::Front;

/// Items that wait for the connection.
const ITEMS_MAX: usize = 256;

/// Service Produce.
pub(crate) struct ProduceService(pub(crate) Arc<Front>);

#[tonic::async_trait]
impl v1::produce_server::Produce for ProduceService {
    type SessionStream = ReceiverStream<Result<v1::ProduceDown, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ProduceUp>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let front = self.0.clone();
        let allowed = async { front.allow(Action::Produce, Resource::Cell) };
        front.answer("Produce.Session", allowed).await?;
        let (down, responses) = mpsc::channel(ITEMS_MAX);
        let up = request.into_inner();
        front.tasks.clone().spawn(async move {
            let session = Session::new(front.clone(), up, down.clone());
            front.metrics.sessions().inc();
            let outcome = AssertUnwindSafe(Box::pin(session.run()))
                .catch_unwind()
                .await;
            front.metrics.sessions().dec();
            let fault = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => fault,
                Err(_) => {
                    front.metrics.panicked();
                    let words = "this session met a bug; what has no answer may be stored";
                    Fault::new(Reason::Internal, words)
                }
            };
            front.metrics.fault(fault.reason);
            // An error means that the client is gone; a full queue, that it does not listen.
            tokio::select! {
                biased;
                () = front.kill.cancelled() => {}
                _ = down.send(Err(fault.to_status())) => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(responses)))
    }
}
