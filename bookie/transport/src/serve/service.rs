//! The gRPC service: one method, with a codec that generated code cannot be told to use.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hulse_proto::limits::MESSAGE_BYTES_MAX;
use hulse_proto::wire::bookie as wire;
use tonic::codegen::{Body, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Request, Response, Status, Streaming};

use super::answers::Answers;
use super::server::Served;
use crate::wire::{FrameCodec, METHOD, SERVICE};

/// What tonic's server routes to.
#[derive(Clone)]
pub(super) struct BookieCallsServer(pub(super) Arc<Served>);

impl NamedService for BookieCallsServer {
    const NAME: &'static str = SERVICE;
}

impl<B> Service<http::Request<B>> for BookieCallsServer
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let served = Arc::clone(&self.0);
        Box::pin(async move {
            if request.uri().path() != METHOD {
                let status = Status::new(Code::Unimplemented, "there is one method");
                return Ok(status.into_http());
            }
            let codec = FrameCodec::<wire::Answer, wire::Request>::default();
            let mut grpc = Grpc::new(codec)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.streaming(Method(served), request).await)
        })
    }
}

/// The method.
struct Method(Arc<Served>);

impl StreamingService<wire::Request> for Method {
    type Response = wire::Answer;
    type ResponseStream = Answers<Streaming<wire::Request>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<wire::Request>>) -> Self::Future {
        let answers = Answers::new(Arc::clone(&self.0), request.into_inner());
        ready(Ok(Response::new(answers)))
    }
}
