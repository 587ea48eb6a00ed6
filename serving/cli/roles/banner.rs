//! What a person reads when a server starts: only what is true of this process.
//!
//! Standalone servers have a page of it ([`Banner`]), the roles of a cluster two lines ([`role`]).

use std::net::SocketAddr;
use std::time::Duration;

use super::ports::Places;
use crate::config::{Config, OrOff, Retention, SyncMode};
use crate::output::Output;

/// The lines of a role: which node, where it is, and what is weaker than it could be.
pub(crate) fn role(
    (what, config): (&str, &Config),
    places: &[(&str, String)],
    ready_in: Duration,
    output: Output,
) -> Vec<String> {
    let version = env!("CARGO_PKG_VERSION");
    let name = &config.node.name;
    let places: Vec<String> = places
        .iter()
        .map(|(what, place)| format!("{what} {place}"))
        .collect();
    let mut lines = vec![
        format!("hulse {version} {what} {name}: {}", places.join(", ")),
        format!("  ready in {:.2} s", ready_in.as_secs_f64()),
    ];
    if what == "bookie" {
        lines.extend(weaker_sync(config, output));
    }
    lines
}

/// What is lost with the machine, unless each record is synced before its answer.
fn weaker_sync(config: &Config, output: Output) -> Option<String> {
    (config.bookie.sync != SyncMode::Always).then(|| {
        let sync = config.bookie.sync;
        output.red(&format!(
            "sync {sync}: acknowledged records can be lost when this machine fails"
        ))
    })
}

/// What the lines are made of.
pub(crate) struct Banner<'a> {
    pub(crate) config: &'a Config,
    /// How memory is split.
    pub(crate) memory: String,
    /// Bookies that are called over the network: calls, HTTP. Empty where the one there is is called directly.
    pub(crate) bookies: &'a [(SocketAddr, SocketAddr)],
    /// The first broker.
    pub(crate) broker: &'a Places,
    /// Those beside it.
    pub(crate) brokers: &'a [Places],
    pub(crate) ready_in: Duration,
}

impl Banner<'_> {
    /// The lines.
    pub(crate) fn lines(&self, output: Output) -> Vec<String> {
        let config = self.config;
        let data = config.node.data_dir.display();
        let version = env!("CARGO_PKG_VERSION");
        let Places { grpc, http, .. } = self.broker;
        let all = [grpc, http].into_iter().chain(&self.broker.kafka);
        let auth = match all.into_iter().all(|at| at.ip().is_loopback()) {
            true => "off (listening on loopback only)".to_owned(),
            false => output.red("off, and other machines can reach this server"),
        };
        let ready = self.ready_in.as_secs_f64();
        let mut lines = vec![
            format!(
                "hulse {version} standalone: {}, {}, data {data} (sync {}, retention {})",
                counted(1 + self.brokers.len(), "broker"),
                counted(self.bookies.len().max(1), "bookie"),
                config.bookie.sync,
                retention(&config.retention)
            ),
            format!("  clients  grpc://{grpc}{}", kafka(self.broker)),
            format!("  metrics  http://{http}/metrics    health http://{http}/readyz"),
            format!("  memory   {}", self.memory),
            format!("  auth     {auth}    ready in {ready:.2} s"),
        ];
        lines.extend(self.brokers.iter().enumerate().map(|(index, more)| {
            let (grpc, http, kafka) = (more.grpc, more.http, kafka(more));
            let number = index + 2;
            format!("  broker {number} grpc://{grpc}{kafka}    health http://{http}/readyz")
        }));
        lines.extend(self.copies());
        lines.extend(weaker_sync(config, output));
        if cfg!(debug_assertions) {
            lines.push("built without --release: correct but slow".to_owned());
        }
        let server = match grpc.port() {
            7400 => String::new(),
            _ => format!(" --server {grpc}"),
        };
        lines.push(format!(
            "Try:  echo hello | hulse produce greetings{server}      hulse consume greetings -o start -n 1{server}"
        ));
        lines
    }
}

impl Banner<'_> {
    /// Where the bookies are, and how many copies of a record there are.
    fn copies(&self) -> Option<String> {
        let (first, more) = self.bookies.split_first()?;
        let quorums = self.config.quorums();
        let calls = more.iter().map(|(calls, _)| calls.port().to_string());
        let http = more.iter().map(|(_, http)| http.port().to_string());
        let all = |first: SocketAddr, more: Vec<String>| {
            let first = std::iter::once(first.to_string());
            first.chain(more).collect::<Vec<_>>().join(",")
        };
        Some(format!(
            "  bookies  {}    health http://{}    {}",
            all(first.0, calls.collect()),
            all(first.1, http.collect()),
            match quorums.write {
                1 => "one copy of each record".to_owned(),
                write => format!(
                    "{write} copies of each record, answered when {} are on disk",
                    quorums.ack
                ),
            }
        ))
    }
}

/// The listeners of the Kafka wire, if there are any.
fn kafka(broker: &Places) -> String {
    let kafka: Vec<String> = broker.kafka.iter().map(SocketAddr::to_string).collect();
    match kafka.is_empty() {
        true => String::new(),
        false => format!("    kafka {}", kafka.join(",")),
    }
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

/// How long records of topics stay that say nothing.
fn retention(retention: &Retention) -> String {
    match (retention.time, retention.size) {
        (time, OrOff::Off) => time.to_string(),
        (OrOff::Off, size) => size.to_string(),
        (time, size) => format!("{time} and {size} of each partition"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Shape;

    fn output() -> Output {
        Output {
            shape: Shape::Table,
            quiet: false,
            colour: true,
        }
    }

    fn lines(config: &Config, grpc: &str) -> String {
        let banner = Banner {
            config,
            memory: "all of it".to_owned(),
            bookies: &[],
            broker: &Places {
                grpc: grpc.parse().unwrap(),
                http: "127.0.0.1:7480".parse().unwrap(),
                kafka: vec!["127.0.0.1:9092".parse().unwrap()],
            },
            brokers: &[],
            ready_in: Duration::from_millis(340),
        };
        banner.lines(output()).join("\n")
    }

    #[test]
    fn several_brokers_and_bookies_are_told_with_what_their_copies_mean() {
        let mut config = Config::default();
        config.broker.replication = crate::config::Replication {
            ensemble: 3,
            write_quorum: 3,
            ack_quorum: 2,
        };
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let broker = |port: u16| Places {
            grpc: at(port),
            http: at(port + 80),
            kafka: vec![at(port + 1_692)],
        };
        let banner = Banner {
            config: &config,
            memory: String::new(),
            bookies: &[(at(7410), at(7490)), (at(7411), at(7491))],
            broker: &broker(7400),
            brokers: &[broker(7401)],
            ready_in: Duration::ZERO,
        };
        let told = banner.lines(output()).join("\n");
        for words in [
            "standalone: 2 brokers, 2 bookies, data",
            "broker 2 grpc://127.0.0.1:7401    kafka 127.0.0.1:9093    health http://127.0.0.1:7481/readyz",
            "127.0.0.1:7410,7411 ",
            "http://127.0.0.1:7490,7491 ",
            "3 copies of each record, answered when 2",
        ] {
            assert!(told.contains(words), "{told}");
        }
    }

    #[test]
    fn weaker_sync_and_open_ports_are_said_in_red() {
        let mut config = Config::default();
        let calm = lines(&config, "127.0.0.1:7400");
        assert!(
            calm.contains("ready in 0.34 s") && calm.contains("loopback only"),
            "{calm}"
        );
        assert!(calm.contains("kafka 127.0.0.1:9092"), "{calm}");
        assert!(
            !calm.contains("\x1b[") && !calm.contains("--server"),
            "{calm}"
        );
        config.bookie.sync = SyncMode::Off;
        let loud = lines(&config, "0.0.0.0:7500");
        assert!(
            loud.contains("\x1b[1;31msync off: acknowledged records can be lost"),
            "{loud}"
        );
        assert!(loud.contains("\x1b[1;31moff, and other machines"), "{loud}");
        assert!(loud.contains("--server 0.0.0.0:7500"), "{loud}");
    }
}
