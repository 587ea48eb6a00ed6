//! The call: one stream is one member.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures::{FutureExt, Stream};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::joining::Joining;
use crate::authorise::{Action, Resource};
use crate::listener::front::Front;

/// Items that wait for the connection.
const ITEMS_MAX: usize = 64;

/// Service StreamGroups.
pub(in crate::listener) struct StreamGroupsService(pub(in crate::listener) Arc<Front>);

type Responses = Pin<Box<dyn Stream<Item = Result<v1::GroupDown, Status>> + Send>>;

#[tonic::async_trait]
impl v1::stream_groups_server::StreamGroups for StreamGroupsService {
    type JoinStream = Responses;

    async fn join(
        &self,
        request: Request<tonic::Streaming<v1::GroupUp>>,
    ) -> Result<Response<Responses>, Status> {
        let front = self.0.clone();
        let allowed = async { front.allow(Action::Consume, Resource::Cell) };
        front.answer("StreamGroups.Join", allowed).await?;
        let (down, responses) = mpsc::channel(ITEMS_MAX);
        let peer = request.remote_addr();
        let host = peer.map_or_else(String::new, |peer| peer.ip().to_canonical().to_string());
        let joining = Joining {
            front: front.clone(),
            host: host.into(),
            up: request.into_inner(),
            down: down.clone(),
        };
        front.tasks.clone().spawn(async move {
            let outcome = AssertUnwindSafe(Box::pin(joining.run()))
                .catch_unwind()
                .await;
            let fault = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(fault)) => fault,
                Err(_) => {
                    front.metrics.panicked();
                    Fault::new(Reason::Internal, "this session met a bug; join again")
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
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }
}
