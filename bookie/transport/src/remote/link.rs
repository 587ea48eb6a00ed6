//! The task of a lane: dials when a call wants it, opens the stream, takes its answers until it breaks.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::NodeName;
use hulse_proto::limits::MESSAGE_BYTES_MAX;
use hulse_proto::wire::bookie as wire;
use hyper_util::rt::TokioIo;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Status, Streaming};

use super::config::RemoteConfig;
use super::connect::Connect;
use super::lane::Lane;
use super::outbound::Outbound;
use crate::wire::{Answer, FrameCodec, METHOD, decode_answer};

/// Largest HTTP/2 frame (dependencies.md §1.5).
pub(crate) const FRAME_BYTES_MAX: u32 = 256 << 10;
/// Unread bytes of a stream and of a connection.
pub(crate) const WINDOW_BYTES: (u32, u32) = (1 << 20, 2 << 20);
/// How often calls that are overdue are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// Where a lane leads.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) name: NodeName,
    /// `host:port`
    pub(super) address: Arc<str>,
    pub(super) connect: Arc<dyn Connect>,
}

/// Runs until the lane's last caller is gone.
pub(super) async fn run(lane: Arc<Lane>, peer: Peer) {
    let closed = lane.closed.clone();
    loop {
        let session = tokio::select! {
            biased;
            () = closed.cancelled() => break,
            session = lane.wanted() => session,
        };
        let why = tokio::select! {
            biased;
            () = closed.cancelled() => break,
            why = session_of(&lane, &peer, session) => why,
        };
        tracing::debug!(bookie = %peer.name, address = %peer.address, why, "the link is down");
        lane.broke(&why);
    }
    lane.broke("the connection was given up");
}

/// One session from its dial to its end; why it ended.
async fn session_of(lane: &Arc<Lane>, peer: &Peer, session: u64) -> String {
    let opening = timeout(lane.config.open_timeout, open(lane, peer, session));
    // The channel is kept: without it no ping goes out.
    let (_channel, answers) = match opening.await {
        Ok(Ok(opened)) => opened,
        Ok(Err(why)) => return format!("{} at {} is not reached: {why}", peer.name, peer.address),
        Err(_) => return format!("{} at {} did not open in time", peer.name, peer.address),
    };
    lane.opened();
    let why = take_answers(lane, answers).await;
    format!("the connection to {} broke: {why}", peer.name)
}

async fn open(
    lane: &Arc<Lane>,
    peer: &Peer,
    session: u64,
) -> Result<(Channel, Streaming<wire::Answer>), String> {
    let channel = dial(peer, &lane.config).await?;
    let mut grpc = Grpc::new(channel.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    grpc.ready().await.map_err(|error| words(&error))?;
    let outbound = Outbound::new(Arc::clone(lane), session, peer.name.as_str());
    let codec = FrameCodec::<wire::Request, wire::Answer>::default();
    let path = PathAndQuery::from_static(METHOD);
    let answers = grpc.streaming(tonic::Request::new(outbound), path, codec);
    let mut answers = answers.await.map_err(|status| told(&status))?.into_inner();
    let first = answers.message().await.map_err(|status| told(&status))?;
    let first = first.ok_or("it ended the stream at once")?;
    match decode_answer(first).map_err(|error| error.to_string())? {
        (_, Answer::Opened) => Ok((channel, answers)),
        (_, Answer::Refused(refusal)) => Err(refusal.to_string()),
        _ => Err("it answers what was not asked".to_owned()),
    }
}

async fn dial(peer: &Peer, config: &RemoteConfig) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://{}", peer.address));
    let endpoint = endpoint
        .map_err(|error| error.to_string())?
        .initial_stream_window_size(WINDOW_BYTES.0)
        .initial_connection_window_size(WINDOW_BYTES.1)
        .max_frame_size(FRAME_BYTES_MAX)
        .http2_keep_alive_interval(config.ping_interval)
        .keep_alive_timeout(config.ping_timeout)
        .keep_alive_while_idle(true);
    let connect = Arc::clone(&peer.connect);
    let connector = tower::service_fn(move |uri: Uri| {
        let connect = Arc::clone(&connect);
        async move {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            connect.connect(authority).await.map(TokioIo::new)
        }
    });
    let dialled = endpoint.connect_with_connector(connector).await;
    dialled.map_err(|error| words(&error))
}

/// Takes answers until the stream ends; why it did.
async fn take_answers(lane: &Lane, mut answers: Streaming<wire::Answer>) -> String {
    let mut tick = interval(EXPIRE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            biased;
            _ = tick.tick() => {
                lane.expire();
                continue;
            }
            message = answers.message() => message,
        };
        let taken = match message {
            Ok(Some(answer)) => {
                decode_answer(answer).and_then(|(number, answer)| lane.answered(number, answer))
            }
            Ok(None) => return "the bookie ended the stream".to_owned(),
            Err(status) => return told(&status),
        };
        if let Err(error) = taken {
            tracing::warn!(%error, "a bookie sent what makes no sense; the connection is given up");
            return error.to_string();
        }
    }
}

/// An error and what caused it.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.ends_with(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

fn told(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), words(source)),
        None => status.message().to_owned(),
    }
}
