//! A stream to the owner of one partition: greeting and attach.

use std::time::Duration;

use futures::stream::poll_fn;
use hulse_proto::error::ErrorKind;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_client::ConsumeClient;
use hulse_proto::wire::v1::consume_down::Item as DownItem;
use hulse_proto::wire::v1::consume_up::Item as UpItem;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::connect::MESSAGE_BYTES_MAX;
use crate::error::Error;

/// The lane of a stream: there is one.
pub(super) const LANE: u32 = 0;
/// How long the greeting may take, dial included.
const OPEN_TIMEOUT: Duration = Duration::from_secs(6);
/// How long a broker may take to open a partition, take-over included.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream that is attached.
pub(super) struct Link {
    /// Bounded by what is under way: a few answers, and one grant per stored batch.
    up: mpsc::UnboundedSender<v1::ConsumeUp>,
    pub(super) down: Streaming<v1::ConsumeDown>,
    pub(super) attached: v1::Attached,
    credit_epoch: u64,
}

impl Link {
    /// Dials, greets, attaches.
    ///
    /// # Errors
    /// Why that was not possible; nothing is attached then.
    pub(super) async fn open(
        channel: Channel,
        client_id: String,
        attach: v1::Attach,
    ) -> Result<Self, Error> {
        let (up, mut queue) = mpsc::unbounded_channel::<v1::ConsumeUp>();
        let hello = UpItem::Hello(v1::ConsumeHello {
            client_id,
            protocol_version: hulse_proto::limits::PROTOCOL_VERSION,
        });
        let first = [hello, UpItem::Attach(attach)];
        for item in first {
            let _ = up.send(v1::ConsumeUp { item: Some(item) });
        }
        let outbound = poll_fn(move |cx| queue.poll_recv(cx));
        let greeting = async {
            let mut client = ConsumeClient::new(channel)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            let mut down = client.session(outbound).await?.into_inner();
            let first = down.message().await?;
            Ok::<_, tonic::Status>((down, first))
        };
        let (mut down, first) = match timeout(OPEN_TIMEOUT, greeting).await {
            Ok(greeted) => greeted.map_err(|status| certain(&status))?,
            Err(_) => return Err(unavailable("the broker did not greet in time")),
        };
        let Some(DownItem::Welcome(welcome)) = first.and_then(|first| first.item) else {
            return Err(unavailable("the broker did not greet with Welcome"));
        };
        let attached = match timeout(ATTACH_TIMEOUT, attached(&mut down)).await {
            Ok(attached) => attached?,
            Err(_) => return Err(unavailable("the broker did not attach in time")),
        };
        Ok(Self {
            up,
            down,
            attached,
            credit_epoch: welcome.credit_epoch,
        })
    }

    pub(super) fn send(&self, item: UpItem) {
        // A link that is gone says so by what comes, which ends.
        let _ = self.up.send(v1::ConsumeUp { item: Some(item) });
    }

    pub(super) fn grant(&self, records: u64, bytes: u64) {
        self.send(UpItem::Credit(v1::ConsumeCredit {
            credit_epoch: self.credit_epoch,
            records,
            bytes,
            lane: Some(LANE),
        }));
    }
}

async fn attached(down: &mut Streaming<v1::ConsumeDown>) -> Result<v1::Attached, Error> {
    loop {
        let message = down.message().await.map_err(|status| certain(&status))?;
        let Some(message) = message else {
            return Err(unavailable("the broker ended the session"));
        };
        match message.item {
            Some(DownItem::Attached(attached)) => return Ok(attached),
            Some(DownItem::Detached(detached)) => {
                return Err(match detached.fault {
                    Some(fault) => Error::from_wire(fault),
                    None => unavailable("the broker ended the lane"),
                });
            }
            Some(DownItem::Moved(_)) => {
                return Err(unavailable("the partition is served elsewhere"));
            }
            _ => {}
        }
    }
}

/// Attaching changes nothing, so its failures are certain.
pub(super) fn certain(status: &tonic::Status) -> Error {
    Error::from_status(status).with_possibly_written(false)
}

pub(super) fn unavailable(words: &str) -> Error {
    Error::local(
        ErrorKind::Unavailable,
        format!("{words}; it is tried again"),
    )
}
