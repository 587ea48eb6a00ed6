//! Runs the listener of a bookie: its settings, its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::service::BookieCallsServer;
use crate::remote::{FRAME_BYTES_MAX, WINDOW_BYTES};

/// Streams of one connection: a caller has one on each.
const STREAMS_MAX: u32 = 16;
/// A silent connection is asked this often, and ended when it does not answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));
/// Longest wait, once the bookie leaves, for connections whose callers do not hang up.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How much of one stream the node has at once; beyond it the stream is read no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Calls that are not answered.
    pub calls_max: usize,
    /// Bytes of adds that are not answered, and of reads what they may answer.
    pub bytes_max: usize,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            calls_max: 4096,
            bytes_max: 32 << 20,
        }
    }
}

/// What is served.
pub struct Served {
    /// Whom callers must mean.
    pub name: NodeName,
    /// The node.
    pub calls: Arc<dyn BookieCalls>,
    /// Bounds of each stream.
    pub limits: ServeLimits,
    /// Cancelled: no more calls are taken, and streams end when what was taken is answered.
    pub leaving: CancellationToken,
}

/// Serves connections until [`Served::leaving`], and then those whose calls are not answered yet, for a while. `incoming` has its own
/// bound of connections, and sockets without Nagle's delay.
///
/// # Errors
/// The listener failed.
pub async fn serve<I, C>(incoming: I, served: Served) -> Result<(), tonic::transport::Error>
where
    I: Stream<Item = io::Result<C>>,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let leaving = served.leaving.clone();
    let serving = Server::builder()
        .max_frame_size(FRAME_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES.0)
        .initial_connection_window_size(WINDOW_BYTES.1)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(KEEP_ALIVE.1))
        .add_service(BookieCallsServer(Arc::new(served)))
        .serve_with_incoming_shutdown(incoming, leaving.clone().cancelled_owned());
    let close = async {
        leaving.cancelled().await;
        tokio::time::sleep(CLOSE_MAX).await;
    };
    tokio::select! {
        biased;
        served = serving => served,
        () = close => Ok(()),
    }
}
