//! The roles of a cluster in one process (ARCHITECTURE D13): several brokers and bookies, reached over sockets as those of a cluster
//! are, above metadata that are embedded.
//!
//! Each part is the role of its name ([`super::bookie`], [`super::broker`]) with a configuration of its own; nothing of the logic is
//! here. Order of a start: all addresses, directory, metadata, bookies, names of all brokers, their listeners: the first one does not
//! take for itself what the others get. The end goes the other way. A part that fails ends all.

use std::collections::BTreeMap;
use std::fmt::Display;
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
use super::ports::{BookiePorts, Places, Ports, bind_bookie_or_note};
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
    brokers: Vec<Config>,
    bookies: Vec<Config>,
}

impl Layout {
    /// So many brokers and bookies. `moved`: the configuration says where the first bookie listens.
    ///
    /// # Errors
    /// There are not so many ports, or two parts would have the same.
    pub(super) fn new(
        config: Config,
        (brokers, bookies): (u32, u32),
        moved: bool,
    ) -> Result<Self, Failure> {
        let calls = match moved {
            true => config.listen.bookie,
            false => behind(config.listen.grpc, BOOKIES_BEHIND)?,
        };
        let http = behind(config.listen.http, BOOKIES_BEHIND)?;
        let one = |number: u32| {
            let mut bookie = config.clone();
            let step = step(number);
            // The only one of a directory has the name of the node, as in a server of one broker.
            if bookies > 1 {
                bookie.node.name = format!("bookie-{number}");
            }
            bookie.bookie.data_dir = bookie_dir(&config, number, bookies);
            bookie.listen.bookie = behind(calls, step)?;
            bookie.listen.bookie_advertise = "auto".to_owned();
            bookie.listen.http = behind(http, step)?;
            Ok(bookie)
        };
        let bookies = (1..=bookies).map(one).collect::<Result<_, Failure>>()?;
        let brokers = (1..=brokers).map(|number| broker_of(&config, number));
        let brokers = brokers.collect::<Result<_, Failure>>()?;
        let layout = Self {
            config,
            brokers,
            bookies,
        };
        layout.apart()?;
        Ok(layout)
    }

    /// No two parts listen in the same place.
    fn apart(&self) -> Result<(), Failure> {
        let brokers = self.brokers.iter().flat_map(|broker| {
            let listen = &broker.listen;
            let kafka = listen.kafka.iter();
            let kafka = kafka.map(|listener| ("listen.kafka", listener.bind));
            let own = [("listen.grpc", listen.grpc), ("listen.http", listen.http)];
            own.into_iter()
                .chain(kafka)
                .map(move |place| (broker, place))
        });
        let bookies = self.bookies.iter().flat_map(|bookie| {
            let listen = &bookie.listen;
            let own = [
                ("listen.bookie", listen.bookie),
                ("listen.http", listen.http),
            ];
            own.map(|place| (bookie, place))
        });
        let mut seen = BTreeMap::new();
        for (part, (key, at)) in brokers.chain(bookies) {
            let what = format!("{key} of {}", part.node.name);
            // Any port is another one each time.
            if at.port() == 0 {
                continue;
            }
            if let Some(other) = seen.insert(at, what.clone()) {
                return Err(Failure::new(
                    Code::Config,
                    format!("two parts of the server would listen on {at}"),
                )
                .why(format!("{other}, and {what}"))
                .object("listen.grpc, listen.http, listen.kafka")
                .next("choose ports that are further apart: broker N listens N-1 ports behind the first, bookies 10 ports behind the brokers"));
            }
        }
        Ok(())
    }

    fn counts(&self) -> (u32, u32) {
        let count = |parts: &[Config]| u32::try_from(parts.len()).expect("there are few");
        (count(&self.brokers), count(&self.bookies))
    }
}

/// How many ports behind the first part of its kind one is.
fn step(number: u32) -> u16 {
    u16::try_from(number - 1).unwrap_or(u16::MAX)
}

fn broker_of(config: &Config, number: u32) -> Result<Config, Failure> {
    let mut broker = config.clone();
    let step = step(number);
    broker.node.name = format!("broker-{number}");
    let listen = &mut broker.listen;
    listen.grpc = behind(listen.grpc, step)?;
    listen.http = behind(listen.http, step)?;
    listen.advertise = told_behind(&listen.advertise, step)?;
    // Listeners of one broker are mostly neighbours, so those of the next come after them.
    let listeners = u16::try_from(listen.kafka.len()).unwrap_or(u16::MAX);
    let step = step.saturating_mul(listeners);
    for listener in &mut listen.kafka {
        listener.bind = behind(listener.bind, step)?;
        listener.advertise = told_behind(&listener.advertise, step)?;
    }
    Ok(broker)
}

/// What clients are told to dial, so many ports further.
fn told_behind(said: &str, ports: u16) -> Result<String, Failure> {
    let parts = said.rsplit_once(':');
    let Some((host, port)) = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)))
    else {
        return Ok(said.to_owned());
    };
    match port.checked_add(ports) {
        Some(port) => Ok(format!("{host}:{port}")),
        None => Err(too_far(ports, &said)),
    }
}

/// So many ports further; any port stays any port.
fn behind(at: SocketAddr, ports: u16) -> Result<SocketAddr, Failure> {
    if at.port() == 0 {
        return Ok(at);
    }
    let port = at.port().checked_add(ports);
    let port = port.ok_or_else(|| too_far(ports, &at))?;
    Ok(SocketAddr::new(at.ip(), port))
}

fn too_far(ports: u16, at: &dyn Display) -> Failure {
    Failure::new(Code::Config, "there are not so many ports")
        .why(format!(
            "a part of the server would be {ports} ports behind {at}"
        ))
        .object("listen.grpc, listen.http, listen.kafka")
        .next("choose lower ports")
}

/// The listeners of all parts.
struct Bound {
    brokers: Vec<Ports>,
    bookies: Vec<BookiePorts>,
}

impl Bound {
    /// # Errors
    /// Every address that is not ours.
    fn all(layout: &Layout) -> Result<Self, Failure> {
        let mut taken = Vec::new();
        let brokers = layout.brokers.iter();
        let brokers = brokers.filter_map(|config| Ports::bind_or_note(config, &mut taken));
        let brokers = brokers.collect();
        let bookies: Vec<BookiePorts> = layout
            .bookies
            .iter()
            .filter_map(|config| bind_bookie_or_note(config, "--grpc", &mut taken))
            .collect();
        match taken.is_empty() {
            true => Ok(Self { brokers, bookies }),
            false => Err(failures::addresses(&taken)),
        }
    }
}

/// How a part ended.
type Ended = Result<(), Failure>;

/// A running server of several parts.
pub(super) struct Folded {
    config: Config,
    memory: Memory,
    brokers_at: Vec<Places>,
    bookies_at: Vec<(SocketAddr, SocketAddr)>,
    brokers: JoinSet<Ended>,
    bookies: JoinSet<Ended>,
    /// Asks the brokers for their end.
    shutdown: CancellationToken,
    /// Asks the bookies for theirs, when the brokers have ended.
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
        let memory = Memory::split_of_several(&layout.config, layout.counts())?;
        let bound = Bound::all(&layout)?;
        let dir = prepare(&layout.config, layout.counts().1)?;
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
        let mut known = Vec::new();
        for (config, ports) in layout.brokers.into_iter().zip(bound.brokers) {
            let ground = Ground::over(Arc::clone(&metadata), &config, at.clone()).await?;
            let parts = (config, memory, ports);
            let broker = broker::Known::register(parts, ground, true, shutdown.clone());
            known.push(Box::pin(broker).await?);
        }
        let (mut brokers, mut brokers_at) = (JoinSet::new(), Vec::new());
        for broker in known {
            let server = broker.serve();
            brokers_at.push(server.at.clone());
            brokers.spawn(server.wait());
        }
        Ok(Self {
            config: layout.config,
            memory,
            brokers_at,
            bookies_at,
            brokers,
            bookies,
            shutdown,
            bookies_end,
        })
    }

    /// What a person reads when it has started.
    pub(super) fn lines(&self, began: Instant, output: Output) -> Vec<String> {
        let (broker, brokers) = self.brokers_at.split_first().expect("there is a broker");
        let banner = Banner {
            config: &self.config,
            memory: self.memory.line(),
            bookies: &self.bookies_at,
            broker,
            brokers,
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
            Some(one) = self.brokers.join_next() => part(one),
            else => Ok(()),
        };
        self.shutdown.cancel();
        let brokers = ended(&mut self.brokers).await;
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
        let layout = Layout::new(Config::default(), (1, 3), false).unwrap();
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
    fn brokers_have_names_and_ports_of_their_own() {
        let mut config = Config::default();
        config.listen.advertise = "example.org:17400".to_owned();
        let mut second = config.listen.kafka[0].clone();
        second.bind.set_port(9_093);
        second.advertise = "[::1]:9193".to_owned();
        config.listen.kafka.push(second);
        let layout = Layout::new(config, (2, 1), false).unwrap();
        let listen = &layout.brokers[1].listen;
        assert_eq!(layout.brokers[1].node.name, "broker-2");
        assert_eq!((listen.grpc.port(), listen.http.port()), (7401, 7481));
        assert_eq!(listen.advertise, "example.org:17401");
        let kafka = listen.kafka.iter();
        let kafka: Vec<_> = kafka
            .map(|of| (of.bind.port(), &of.advertise[..]))
            .collect();
        assert_eq!(kafka, [(9094, "auto"), (9095, "[::1]:9195")]);
        // The one bookie of a directory keeps its name and its folder.
        let bookie = &layout.bookies[0];
        assert_eq!(bookie.node.name, layout.config.node.name);
        assert_eq!(bookie.bookie.data_dir, layout.config.bookie.data_dir);
    }

    #[test]
    fn parts_that_would_listen_in_one_place_are_refused() {
        let mut config = Config::default();
        config.listen.http.set_port(config.listen.grpc.port() + 1);
        let told = Layout::new(config, (2, 1), false)
            .err()
            .unwrap()
            .to_string();
        for words in ["would listen on 127.0.0.1:7401", "broker-1", "broker-2"] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn ports_beyond_the_last_are_refused_and_any_port_stays_any_port() {
        let mut config = Config::default();
        config.listen.grpc.set_port(65_530);
        let told = Layout::new(config.clone(), (1, 3), false).err().unwrap();
        assert!(told.to_string().contains("not so many ports"), "{told}");
        config.listen.grpc.set_port(0);
        let layout = Layout::new(config.clone(), (1, 3), false).unwrap();
        assert_eq!(layout.bookies[2].listen.bookie.port(), 0);
        config.listen.bookie.set_port(9_000);
        let layout = Layout::new(config, (1, 3), true).unwrap();
        assert_eq!(layout.bookies[2].listen.bookie.port(), 9_002);
    }
}
