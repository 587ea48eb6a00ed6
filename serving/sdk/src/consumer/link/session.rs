//! A stream to one broker: greeting, what comes, heartbeats, end.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::poll_fn;
use hulse_proto::error::ErrorKind;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_client::ConsumeClient;
use hulse_proto::wire::v1::consume_down::Item as DownItem;
use hulse_proto::wire::v1::consume_up::Item as UpItem;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tonic::Streaming;
use tonic::transport::Channel;

use super::shared::Shared;
use crate::connect::MESSAGE_BYTES_MAX;
use crate::consumer::core::SessionId;
use crate::error::Error;

pub(super) use hulse_proto::wire::v1::ConsumeUp as Up;

/// How long the greeting may take, dial included.
const OPEN_TIMEOUT: Duration = Duration::from_secs(6);
/// Both ends say something at least this often.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A broker that says nothing for this long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Opens a session: dial, Hello, Welcome. A task of its own then takes what comes.
pub(super) async fn open(shared: Arc<Shared>, channel: Channel) -> Result<SessionId, Error> {
    // Bounded by what the core has under way: acks and seeks of each lane, and one grant per unit.
    let (link, mut queue) = mpsc::unbounded_channel::<Up>();
    let hello = v1::ConsumeHello {
        client_id: shared.client.client_id.clone(),
        protocol_version: hulse_proto::limits::PROTOCOL_VERSION,
    };
    let _ = link.send(Up {
        item: Some(UpItem::Hello(hello)),
    });
    let outbound = poll_fn(move |cx| queue.poll_recv(cx));
    let greeting = async {
        let mut client = ConsumeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let mut down = client.session(outbound).await?.into_inner();
        let first = down.message().await?;
        Ok::<_, tonic::Status>((down, first))
    };
    let (down, first) = match timeout(OPEN_TIMEOUT, greeting).await {
        Ok(greeted) => greeted.map_err(|status| certain(&Error::from_status(&status)))?,
        Err(_) => return Err(unavailable("the broker did not greet in time")),
    };
    let Some(DownItem::Welcome(welcome)) = first.and_then(|first| first.item) else {
        return Err(unavailable("the broker did not greet with Welcome"));
    };
    let id = shared.session_opened(&welcome, link);
    let tasks = shared.tasks.clone();
    tasks.spawn(take(shared, id, down));
    Ok(id)
}

/// Opening changes nothing, so its failures are certain.
fn certain(error: &Error) -> Error {
    error.clone().with_possibly_written(false)
}

fn unavailable(words: &str) -> Error {
    Error::local(
        ErrorKind::Unavailable,
        format!("{words}; it is tried again"),
    )
}

/// Until the stream ends, or the consumer.
async fn take(shared: Arc<Shared>, id: SessionId, mut down: Streaming<v1::ConsumeDown>) {
    let mut heartbeat = tokio::time::interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let error = loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            message = down.message() => match message {
                Ok(Some(message)) => {
                    heard = Instant::now();
                    if let Some(item) = message.item {
                        shared.with(|core| core.on_down(id, item, heard));
                    }
                }
                Ok(None) => break unavailable("the broker ended the session"),
                Err(status) => break certain(&Error::from_status(&status)),
            },
            _ = heartbeat.tick() => {
                if heard.elapsed() >= SILENCE_MAX {
                    break unavailable("the broker said nothing for too long");
                }
                shared.with(|core| core.heartbeat(id));
            }
        }
        if shared.was_left(id) {
            return;
        }
    };
    shared.session_lost(id, &error);
}
