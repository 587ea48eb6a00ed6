//! Every HTTP/2 and gRPC setting of the client, once (dependencies.md §1.5 and §4.1).

use std::time::Duration;

use tonic::transport::Endpoint;

use crate::error::Error;

/// Largest frame that this side takes; 256 KiB instead of 16 KiB was measured at +50 %.
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Unread bytes per stream; larger is slower on loopback.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Unread bytes per connection.
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;
/// Without pings a partition of the network is noticed by deadlines only.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one dial may take.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest message taken or sent.
pub(crate) const MESSAGE_BYTES_MAX: usize = hulse_proto::limits::MESSAGE_BYTES_MAX;

/// The endpoint of `authority` with our settings.
pub(super) fn endpoint(authority: &str) -> Result<Endpoint, Error> {
    let uri = format!("http://{authority}");
    let endpoint = Endpoint::from_shared(uri)
        .map_err(|error| Error::invalid(format!("broker address {authority:?}: {error}")))?;
    Ok(endpoint
        .connect_timeout(DIAL_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true))
}
