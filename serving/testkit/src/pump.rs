//! Carries the bytes of one connection.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::watch;

use crate::frames::{Frames, Way};
use crate::links::Pace;

/// Bytes that are carried at once.
const PIECE_BYTES: usize = 64 << 10;

/// Frames behind which a connection breaks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// Carries both directions until one ends. True when that was a limit.
pub(crate) async fn pump<C, B>(
    client: C,
    broker: B,
    limits: Limits,
    pace: watch::Receiver<Pace>,
) -> bool
where
    C: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = split(client);
    let (from_broker, to_broker) = split(broker);
    let up = carry((from_client, to_broker), (Way::Up, limits.up), pace.clone());
    let down = carry((from_broker, to_client), (Way::Down, limits.down), pace);
    tokio::select! {
        biased;
        limited = up => limited,
        limited = down => limited,
    }
}

async fn carry<R, W>(
    (mut from, mut to): (R, W),
    (way, limit): (Way, u64),
    mut pace: watch::Receiver<Pace>,
) -> bool
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut frames = Frames::new(way);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let Ok(read @ 1..) = from.read(&mut piece).await else {
            return false;
        };
        // The cluster, which says how it is, may be gone: then all passes.
        let now = pace.wait_for(|pace| !pace.stalled).await;
        let delay = now.map(|pace| pace.delay).unwrap_or_default();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let (taken, over) = frames.take(&piece[..read], limit);
        let written = to.write_all(&piece[..taken]).await;
        if over {
            // What passed before the end is to arrive.
            let _ = to.flush().await;
            return true;
        }
        if written.is_err() {
            return false;
        }
    }
}
