//! A TCP proxy between processes that can cut what passes between two of them, in one direction or both.
//!
//! A cut drops nothing and closes nothing: bytes wait, as they do in a network that loses every packet, and go on when it heals. Who
//! dialled is found out from the process that holds the other end of the connection, so that one address serves all and every pair can
//! be cut by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Which bytes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// All.
    Both,
    /// From who dialled to who listens.
    There,
    /// From who listens to who dialled.
    Back,
}

/// The cuts of one link: by the process that dialled.
type Cuts = BTreeMap<u32, Way>;

/// One address through which others reach a process.
pub(crate) struct Link {
    cuts: watch::Sender<Cuts>,
}

impl Link {
    fn start(runtime: &Runtime, listen: u16, target: u16) -> Self {
        let (cuts, seen) = watch::channel(Cuts::new());
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", listen)));
        let listener = listener.expect("the link's port is free");
        runtime.spawn(accept(listener, target, seen));
        Self { cuts }
    }

    /// Bytes of connections that this process dialled wait from now on.
    pub(crate) fn cut(&self, dialler: u32, way: Way) {
        self.cuts.send_modify(|cuts| {
            cuts.insert(dialler, way);
        });
    }

    /// Everything passes again.
    pub(crate) fn heal(&self) {
        self.cuts.send_modify(Cuts::clear);
    }
}

/// All links of a cluster, on a thread of their own.
pub(crate) struct Links {
    runtime: Runtime,
    links: Mutex<BTreeMap<u16, Arc<Link>>>,
}

impl Links {
    pub(crate) fn new() -> Self {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all();
        let runtime = builder.build().expect("a runtime can be started");
        Self {
            runtime,
            links: Mutex::default(),
        }
    }

    /// The link that listens on this port and passes on to `target`; made when it is asked for first.
    pub(crate) fn link(&self, listen: u16, target: u16) -> Arc<Link> {
        let mut links = self.links.lock().expect("nothing panics under this lock");
        let made = || Arc::new(Link::start(&self.runtime, listen, target));
        Arc::clone(links.entry(listen).or_insert_with(made))
    }

    /// The link that listens on this port.
    pub(crate) fn at(&self, listen: u16) -> Arc<Link> {
        let links = self.links.lock().expect("nothing panics under this lock");
        Arc::clone(links.get(&listen).expect("the link was made"))
    }

    pub(crate) fn heal(&self) {
        let links = self.links.lock().expect("nothing panics under this lock");
        for link in links.values() {
            link.heal();
        }
    }
}

async fn accept(listener: TcpListener, target: u16, cuts: watch::Receiver<Cuts>) {
    while let Ok((client, peer)) = listener.accept().await {
        let dialler = dialler(peer.port());
        let cuts = cuts.clone();
        tokio::spawn(async move {
            let mut before = cuts.clone();
            if open(&mut before, dialler, Way::There).await.is_none() {
                return;
            }
            if let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await {
                both(client, server, dialler, cuts).await;
            }
        });
    }
}

/// Waits until bytes of this dialler pass that way. `None`: the link is gone.
async fn open(cuts: &mut watch::Receiver<Cuts>, dialler: u32, way: Way) -> Option<()> {
    let passes = |cuts: &Cuts| {
        let cut = cuts.get(&dialler);
        cut.is_none_or(|cut| *cut != Way::Both && *cut != way)
    };
    cuts.wait_for(passes).await.ok().map(drop)
}

async fn both(client: TcpStream, server: TcpStream, dialler: u32, cuts: watch::Receiver<Cuts>) {
    let _slower_without = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // An end of one direction ends the connection: gRPC never goes on with half of one.
    tokio::select! {
        biased;
        () = pass((from_client, to_server), dialler, Way::There, cuts.clone()) => {}
        () = pass((from_server, to_client), dialler, Way::Back, cuts) => {}
    }
}

async fn pass(
    (mut from, mut to): (OwnedReadHalf, OwnedWriteHalf),
    dialler: u32,
    way: Way,
    mut cuts: watch::Receiver<Cuts>,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await;
        // The end of a connection does not pass a cut either.
        if open(&mut cuts, dialler, way).await.is_none() {
            return;
        }
        let Ok(read @ 1..) = read else {
            return;
        };
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// The process that holds the end of a connection of this machine with this port; 0: nobody any more.
fn dialler(port: u16) -> u32 {
    let Some(socket) = socket_of(port) else {
        return 0;
    };
    let wanted = format!("socket:[{socket}]");
    let processes = std::fs::read_dir("/proc").expect("/proc is there");
    let pids = processes.filter_map(|item| item.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut holders = pids.filter(|pid| {
        let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        let mut links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.any(|link| link.as_os_str() == wanted.as_str())
    });
    holders.next().unwrap_or(0)
}

/// The number of the socket with this local port, of a connection to this machine.
fn socket_of(port: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let local = format!("0100007F:{port:04X}");
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of_dialler = words.get(1) == Some(&local.as_str());
        of_dialler.then(|| words.get(9).map(|inode| (*inode).to_owned()))?
    })
}
