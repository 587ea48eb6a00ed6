//! A TCP proxy inside the test that can cut and stall what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes between a client and a server until told otherwise.
pub(crate) struct Proxy {
    /// Where clients connect.
    pub(crate) address: String,
    stalled: watch::Sender<bool>,
    cuts: watch::Sender<u64>,
    refusing: Arc<AtomicBool>,
}

impl Proxy {
    /// Listens on `listen` and passes on to `target`.
    pub(crate) async fn start(listen: &str, target: String) -> Self {
        let listener = TcpListener::bind(listen)
            .await
            .expect("the proxy's port is free");
        let (stalled, stall) = watch::channel(false);
        let (cuts, cut) = watch::channel(0);
        let refusing = Arc::new(AtomicBool::new(false));
        let refuse = refusing.clone();
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    return;
                };
                if refuse.load(Ordering::Relaxed) {
                    continue;
                }
                let (target, stall, cut) = (target.clone(), stall.clone(), cut.clone());
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(&target).await {
                        pass_both(client, server, stall, cut).await;
                    }
                });
            }
        });
        Self {
            address: listen.to_owned(),
            stalled,
            cuts,
            refusing,
        }
    }

    /// Nothing passes, nothing is closed.
    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }

    /// Closes every connection, and each new one at once while `refusing`.
    pub(crate) fn cut(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Relaxed);
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn pass_both(
    client: TcpStream,
    server: TcpStream,
    stall: watch::Receiver<bool>,
    mut cut: watch::Receiver<u64>,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    cut.mark_unchanged();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        biased;
        _ = cut.changed() => {}
        () = pass(client_read, server_write, stall.clone()) => {}
        () = pass(server_read, client_write, stall) => {}
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut stall: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        if stall.wait_for(|stalled| !stalled).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
