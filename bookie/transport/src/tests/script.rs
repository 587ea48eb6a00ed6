//! A peer that says what a script says, whatever it is asked.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use hulse_proto::wire::bookie as wire;
use tokio::io::DuplexStream;
use tonic::codegen::{Body, Service, StdError, http};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::remote::{Connect, Connecting, Transport};
use crate::wire::{FrameCodec, SERVICE};

/// What each stream is answered, an answer for each request; then silence.
pub(crate) struct Scripted(pub(crate) Vec<wire::Answer>);

impl Connect for Scripted {
    fn connect(&self, _: &str) -> Connecting {
        let (near, far) = tokio::io::duplex(1 << 16);
        let script = Script(Arc::new(self.0.clone()));
        let incoming =
            futures::stream::once(async move { Ok::<DuplexStream, std::io::Error>(far) });
        // The one connection, then nobody.
        let incoming = incoming.chain(futures::stream::pending());
        tokio::spawn(async move {
            let server = Server::builder().add_service(script);
            let _ = server.serve_with_incoming(incoming).await;
        });
        Box::pin(async move { Ok(Box::new(near) as Box<dyn Transport>) })
    }
}

#[derive(Clone)]
struct Script(Arc<Vec<wire::Answer>>);

impl NamedService for Script {
    const NAME: &'static str = SERVICE;
}

impl<B> Service<http::Request<B>> for Script
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
        let script = self.clone();
        Box::pin(async move {
            let codec = FrameCodec::<wire::Answer, wire::Request>::default();
            Ok(Grpc::new(codec).streaming(script, request).await)
        })
    }
}

impl StreamingService<wire::Request> for Script {
    type Response = wire::Answer;
    type ResponseStream = futures::stream::BoxStream<'static, Result<wire::Answer, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<wire::Request>>) -> Self::Future {
        let script = Arc::clone(&self.0);
        // One for each request, so that none comes before its call.
        let answers = request
            .into_inner()
            .zip(futures::stream::iter(script.to_vec()))
            .map(|(_, answer)| Ok(answer))
            .chain(futures::stream::pending());
        Box::pin(async move { Ok(Response::new(answers.boxed())) })
    }
}
