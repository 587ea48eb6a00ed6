//! A way to etcd that freezes, as one does through a member that is stopped: what was sent into it arrives when it thaws.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// What comes within this after the first bytes in a frozen way belongs to them. Shorter than any caller waits, so that its giving up,
/// which would be sent after it, is not part of what arrives.
const GATHER: Duration = Duration::from_millis(200);

/// A proxy before one etcd.
pub(super) struct Way {
    address: String,
    frozen: watch::Sender<bool>,
    /// How often etcd's side has said something since the way thawed.
    said: watch::Receiver<usize>,
}

impl Way {
    pub(super) async fn to(etcd: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let etcd = etcd.strip_prefix("http://").unwrap().to_owned();
        let (frozen, is_frozen) = watch::channel(false);
        let (says, said) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from, to) = TcpStream::connect(&etcd).await.unwrap().into_split();
                let (asks, hears) = client.into_split();
                tokio::spawn(forth(asks, to, is_frozen.clone()));
                tokio::spawn(back(from, hears, is_frozen.clone(), says.clone()));
            }
        });
        Self {
            address,
            frozen,
            said,
        }
    }

    pub(super) fn address(&self) -> String {
        self.address.clone()
    }

    pub(super) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Lets what was sent into it arrive, and waits until etcd has answered that.
    pub(super) async fn thaw(&mut self) {
        self.said.mark_unchanged();
        self.frozen.send_replace(false);
        let answer = timeout(Duration::from_secs(10), self.said.changed()).await;
        answer.expect("etcd answers what comes late").unwrap();
        // The first thing that it says may be a word of the protocol.
        tokio::time::sleep(GATHER).await;
    }
}

async fn forth(
    mut asks: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_frozen: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let mut length = match asks.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let frozen = *is_frozen.borrow();
        if frozen {
            while let Ok(Ok(more)) = timeout(GATHER, asks.read(&mut bytes[length..])).await {
                length += more;
            }
            is_frozen.wait_for(|frozen| !frozen).await.unwrap();
        }
        to.write_all(&bytes[..length]).await.unwrap();
        if frozen {
            // Nothing that was said later arrives.
            return std::future::pending().await;
        }
    }
}

async fn back(
    mut from: OwnedReadHalf,
    mut hears: OwnedWriteHalf,
    is_frozen: watch::Receiver<bool>,
    says: watch::Sender<usize>,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if !*is_frozen.borrow() {
            says.send_modify(|said| *said += 1);
        }
        // Who asked may be gone.
        let _ = hears.write_all(&bytes[..length]).await;
    }
}
