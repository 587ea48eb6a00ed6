//! The roles of a cluster in one process (ARCHITECTURE D13): several bookies, reached over sockets as those of a cluster are, above
//! metadata that are embedded.
//!
//! Each part is the role of its name ([`super::bookie`], [`super::broker`]) with a configuration of its own; nothing of the logic is
//! here. Order of a start: all addresses, directory, metadata, bookies, broker; the end goes the other way. A part that fails ends all.

use std::net::SocketAddr;
use std::sync::Arc;

use bookie_metadata::MetadataStore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::banner::Banner;
use super::data_dir::{bookie_dir, prepare};
use super::ground::Ground;
use super::memory::Memory;
use super::ports::{BookiePorts, Ports, bind_bookie_or_note};
use super::serving::cannot_listen;
use super::{bookie, broker, failures, ground};
use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::output::Output;

/// Bookies listen so many ports behind clients, and behind the broker's HTTP.
const BOOKIES_BEHIND: u16 = 10;

/// The configuration of each part.
pub(super) struct Layout {
    /// As the user wrote it.
    config: Config,
    broker: Config,
    bookies: Vec<Config>,
}

impl Layout {
    /// So many bookies. `moved`: the configuration says where the first one listens.
    ///
    /// # Errors
    /// There are not so many ports.
    pub(super) fn new(config: Config, bookies: u32, moved: bool) -> Result<Self, Failure> {
        let calls = match moved {
            true => config.listen.bookie,
            false => behind(config.listen.grpc, BOOKIES_BEHIND)?,
        };
        let http = behind(config.listen.http, BOOKIES_BEHIND)?;
        let one = |number: u32| {
            let mut bookie = config.clone();
            let step = u16::try_from(number - 1).unwrap_or(u16::MAX);
            bookie.node.name = format!("bookie-{number}");
            bookie.bookie.data_dir = bookie_dir(&config, number, bookies);
            bookie.listen.bookie = behind(calls, step)?;
            bookie.listen.bookie_advertise = "auto".to_owned();
            bookie.listen.http = behind(http, step)?;
            Ok(bookie)
        };
        let each = (1..=bookies).map(one).collect::<Result<_, Failure>>()?;
        let mut broker = config.clone();
        broker.node.name = "broker-1".to_owned();
        Ok(Self {
            config,
            broker,
            bookies: each,
        })
    }

    fn bookies(&self) -> u32 {
        u32::try_from(self.bookies.len()).expect("there are few")
    }
}

/// So many ports further; any port stays any port.
fn behind(at: SocketAddr, ports: u16) -> Result<SocketAddr, Failure> {
    if at.port() == 0 {
        return Ok(at);
    }
    let port = at.port().checked_add(ports).ok_or_else(|| {
        Failure::new(Code::Config, "there are not so many ports")
            .why(format!("a bookie would listen {ports} ports behind {at}"))
            .object("listen.grpc, listen.http")
            .next("choose lower ports")
    })?;
    Ok(SocketAddr::new(at.ip(), port))
}

/// The listeners of all parts.
struct Bound {
    broker: Ports,
    bookies: Vec<BookiePorts>,
}

impl Bound {
    /// # Errors
    /// Every address that is not ours.
    fn all(layout: &Layout) -> Result<Self, Failure> {
        let mut taken = Vec::new();
        let broker = Ports::bind_or_note(&layout.broker, &mut taken);
        let bookies: Vec<BookiePorts> = layout
            .bookies
            .iter()
            .filter_map(|config| bind_bookie_or_note(config, "--grpc", &mut taken))
            .collect();
        match broker {
            Some(broker) if taken.is_empty() => Ok(Self { broker, bookies }),
            _ => Err(failures::addresses(&taken)),
        }
    }
}

/// How a part ended.
type Ended = Result<(), Failure>;

/// A running server of several parts.
pub(super) struct Folded {
    config: Config,
    memory: Memory,
    grpc: SocketAddr,
    http: SocketAddr,
    kafka: Vec<SocketAddr>,
    bookies_at: Vec<(SocketAddr, SocketAddr)>,
    broker: JoinSet<Ended>,
    bookies: JoinSet<Ended>,
    /// Asks the broker for its end.
    shutdown: CancellationToken,
    /// Asks the bookies for theirs, when the broker has ended.
    bookies_end: CancellationToken,
}

impl Folded {
    /// Starts all parts.
    ///
    /// # Errors
    /// The first that does not start.
    pub(super) async fn start(
        layout: Layout,
        shutdown: CancellationToken,
    ) -> Result<Self, Failure> {
        let memory = Memory::split_of_several(&layout.config, layout.bookies())?;
        let bound = Bound::all(&layout)?;
        let dir = prepare(&layout.config, layout.bookies())?;
        let metadata = ground::embedded(&dir.metadata)?;
        let at = dir.metadata.display().to_string();
        let mut bookies = JoinSet::new();
        let mut bookies_at = Vec::new();
        let bookies_end = CancellationToken::new();
        for (config, ports) in layout.bookies.into_iter().zip(bound.bookies) {
            let started = bookie_of((config, ports), &metadata, &at).await;
            let server = match started {
                Ok(server) => server,
                Err(failure) => {
                    bookies_end.cancel();
                    ended(&mut bookies).await.unwrap_or_else(|other| {
                        tracing::warn!(%other, "a bookie beside it did not end in order");
                    });
                    return Err(failure);
                }
            };
            bookies_at.push((server.calls_at, server.http_at));
            bookies.spawn(server.wait(bookies_end.clone()));
        }
        let ground = Ground::over(Arc::clone(&metadata), &layout.broker, at).await?;
        let parts = (layout.broker, memory, bound.broker);
        let server = broker::Server::over(parts, ground, true, shutdown.clone()).await?;
        let (grpc, http, kafka) = (server.grpc, server.http, server.kafka.clone());
        let mut broker = JoinSet::new();
        broker.spawn(server.wait());
        Ok(Self {
            config: layout.config,
            memory,
            grpc,
            http,
            kafka,
            bookies_at,
            broker,
            bookies,
            shutdown,
            bookies_end,
        })
    }

    /// What a person reads when it has started.
    pub(super) fn lines(&self, began: Instant, output: Output) -> Vec<String> {
        let banner = Banner {
            config: &self.config,
            memory: self.memory.line(),
            bookies: &self.bookies_at,
            grpc: self.grpc,
            http: self.http,
            kafka: &self.kafka,
            ready_in: began.elapsed(),
        };
        banner.lines(output)
    }

    /// Serves until the end is asked for or a part fails, then closes everything.
    ///
    /// # Errors
    /// The first failure.
    pub(super) async fn wait(mut self) -> Ended {
        let first = tokio::select! {
            biased;
            Some(one) = self.bookies.join_next() => part(one),
            Some(one) = self.broker.join_next() => part(one),
            else => Ok(()),
        };
        self.shutdown.cancel();
        let brokers = ended(&mut self.broker).await;
        self.bookies_end.cancel();
        let bookies = ended(&mut self.bookies).await;
        first.and(brokers).and(bookies)
    }
}

async fn bookie_of(
    (config, ports): (Config, BookiePorts),
    metadata: &Arc<dyn MetadataStore>,
    at: &str,
) -> Result<bookie::Server, Failure> {
    let ground = Ground::over(Arc::clone(metadata), &config, at.to_owned()).await?;
    Box::pin(bookie::Server::over(config, ports, ground, true)).await
}

fn part(ended: Result<Ended, tokio::task::JoinError>) -> Ended {
    ended.unwrap_or_else(|error| Err(cannot_listen(error)))
}

/// Waits for all parts; the first failure.
async fn ended(parts: &mut JoinSet<Ended>) -> Ended {
    let mut all = Ok(());
    while let Some(one) = parts.join_next().await {
        all = all.and(part(one));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookies_have_names_directories_and_ports_of_their_own() {
        let layout = Layout::new(Config::default(), 3, false).unwrap();
        let told: Vec<String> = layout
            .bookies
            .iter()
            .map(|bookie| {
                format!(
                    "{} {} {} {}",
                    bookie.node.name,
                    bookie.bookie.data_dir.display(),
                    bookie.listen.bookie.port(),
                    bookie.listen.http.port()
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "bookie-1 bookie-1 7410 7490",
                "bookie-2 bookie-2 7411 7491",
                "bookie-3 bookie-3 7412 7492"
            ]
        );
    }

    #[test]
    fn ports_beyond_the_last_are_refused_and_any_port_stays_any_port() {
        let mut config = Config::default();
        config.listen.grpc.set_port(65_530);
        let told = Layout::new(config.clone(), 3, false).err().unwrap();
        assert!(told.to_string().contains("not so many ports"), "{told}");
        config.listen.grpc.set_port(0);
        let layout = Layout::new(config.clone(), 3, false).unwrap();
        assert_eq!(layout.bookies[2].listen.bookie.port(), 0);
        config.listen.bookie.set_port(9_000);
        let layout = Layout::new(config, 3, true).unwrap();
        assert_eq!(layout.bookies[2].listen.bookie.port(), 9_002);
    }
}
