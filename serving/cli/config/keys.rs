//! What is said about each key: its kind, its bounds and its words. The one table behind checks, suggestions and the reference.
//! It is longer than other files, because a table is read as one.

use std::net::SocketAddr;
use std::str::FromStr;

use figment::value::{Num, Value};
use hulse_proto::id::NodeName;
use hulse_proto::limits::{BATCH_BYTES_MAX, TOPIC_PARTITIONS_MAX};

use super::kafka;
use super::units::{ByteSize, MemoryBudget, OrOff, Period, SyncMode};

/// What a key holds.
pub(crate) enum Kind {
    /// A [`ByteSize`] in these bounds, both included.
    Size(u64, u64),
    /// A [`Period`] of at least so many seconds.
    Period(u64),
    /// A [`ByteSize`] of at least this, or `off`.
    SizeOrOff(u64),
    /// A [`Period`] of at least so many seconds, or `off`.
    PeriodOrOff(u64),
    /// A [`MemoryBudget`].
    Budget,
    /// A [`SyncMode`].
    Sync,
    /// A whole number in these bounds, both included.
    Count(u64, u64),
    /// true or false.
    Flag,
    /// Text.
    Text,
    /// A name of a node.
    NodeName,
    /// `ip:port`.
    Address,
    /// "auto" or `host:port`.
    Advertise,
    /// Listeners of the Kafka wire.
    Kafka,
    /// A list of `http://host:port`.
    Endpoints,
    /// Words of at most so many bytes of ASCII, perhaps none.
    Label(usize),
    /// A level, or levels of modules, separated by commas.
    Level,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// One key.
pub(crate) struct Key {
    /// Tables and name, joined by dots.
    pub(crate) path: &'static str,
    /// What it holds.
    pub(crate) kind: Kind,
    /// What it does and when to change it.
    pub(crate) doc: &'static str,
}

const fn key(path: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { path, kind, doc }
}

/// Every key there is, in the order of the reference.
pub(crate) const KEYS: &[Key] = &[
    key(
        "node.data_dir",
        Kind::Text,
        "everything this node keeps; locked while it runs, formatted when empty",
    ),
    key(
        "node.name",
        Kind::NodeName,
        "name in metadata, never an address; kept with the data",
    ),
    key(
        "node.zone",
        Kind::Label(64),
        "what fails together with this node, e.g. a rack; copies are spread over zones",
    ),
    key(
        "listen.grpc",
        Kind::Address,
        "clients; another address than loopback needs security.allow_anonymous",
    ),
    key("listen.http", Kind::Address, "/metrics, /livez and /readyz"),
    key(
        "listen.advertise",
        Kind::Advertise,
        "host:port that clients are told to dial; auto: the address of listen.grpc",
    ),
    key(
        "listen.kafka",
        Kind::Kafka,
        "Kafka clients, a [[listen.kafka]] table each; advertise: host:port, or auto, the address they dialled",
    ),
    key(
        "listen.bookie",
        Kind::Address,
        "brokers call a bookie of a cluster here",
    ),
    key(
        "listen.bookie_advertise",
        Kind::Advertise,
        "host:port that brokers are told to dial; auto: the address of listen.bookie",
    ),
    key(
        "metadata.endpoints",
        Kind::Endpoints,
        "etcd's members, each as http://host:port; a standalone server keeps its metadata itself",
    ),
    key(
        "metadata.prefix",
        Kind::Label(256),
        "of every key in etcd; cells that share an etcd have different ones",
    ),
    key(
        "broker.max_batch_size",
        Kind::Size(64 << 10, BATCH_BYTES_MAX as u64),
        "largest record batch taken; lower it to keep one producer from holding much memory",
    ),
    key(
        "broker.auto_create_topics",
        Kind::Flag,
        "produce to an unknown topic creates it",
    ),
    key(
        "broker.default_partitions",
        Kind::Count(1, TOPIC_PARTITIONS_MAX as u64),
        "partitions of a topic that is created without a number",
    ),
    key(
        "broker.producer_expiry",
        Kind::Period(1),
        "an idempotent producer that was silent this long is forgotten",
    ),
    key(
        "broker.ledger_roll_size",
        Kind::Size(1 << 20, 64 << 30),
        "a partition's log goes on in a new ledger after this much",
    ),
    key(
        "broker.ledger_roll_age",
        Kind::Period(60),
        "or after this long, if it holds records",
    ),
    key(
        "broker.drain_rate",
        Kind::Count(1, 100_000),
        "partitions a second that a broker hands to the others when it ends or is drained: their clients do not come all at once",
    ),
    key(
        "broker.replication.ensemble",
        Kind::Count(1, 16),
        "bookies per ledger; 3, 3 and 2 in a cluster; stands in the cell record from the first start on",
    ),
    key(
        "broker.replication.write_quorum",
        Kind::Count(1, 16),
        "copies of each entry",
    ),
    key(
        "broker.replication.ack_quorum",
        Kind::Count(1, 16),
        "durable copies before a producer is answered",
    ),
    key(
        "retention.time",
        Kind::PeriodOrOff(1),
        "records go this long after their append, with their ledger; a topic may say otherwise",
    ),
    key(
        "retention.size",
        Kind::SizeOrOff(1 << 20),
        "of each partition the newest ledgers that hold so much stay; a topic may say otherwise",
    ),
    key(
        "retention.check_interval",
        Kind::Period(1),
        "how often what may go is looked for",
    ),
    key(
        "backlog_quota.size",
        Kind::SizeOrOff(1 << 20),
        "a subscription that holds may keep so much of each partition; a topic may say otherwise",
    ),
    key(
        "backlog_quota.age",
        Kind::PeriodOrOff(1),
        "it may keep a record this long after its append; a topic may say otherwise",
    ),
    key(
        "backlog_quota.policy",
        Kind::OneOf(&["hold", "reject", "evict"]),
        "of one that keeps more: hold (and report) | reject (producers) | evict (its oldest records)",
    ),
    key(
        "groups.session_timeout",
        Kind::Period(1),
        "a member of a stream group of which nothing was heard for this long is out, and its partitions go to others",
    ),
    key(
        "groups.heartbeat_interval",
        Kind::Period(1),
        "how often members are told to speak; several times in a session",
    ),
    key(
        "groups.max_idle",
        Kind::Period(1),
        "a member whose application takes no record for so long, with records waiting, is warned, then loses its partitions",
    ),
    key(
        "groups.initial_rebalance_delay",
        Kind::Period(0),
        "an empty group of Kafka's classic protocol waits so long for more members before it shares out",
    ),
    key(
        "groups.offsets_retention",
        Kind::Period(60),
        "offsets of a group that has no members are kept this long",
    ),
    key(
        "bookie.data_dir",
        Kind::Text,
        "below node.data_dir; one process, one disk, one log",
    ),
    key(
        "bookie.sync",
        Kind::Sync,
        "always | interval:<duration> | off; all but always lose acknowledged records with the machine",
    ),
    key(
        "bookie.log_file_size",
        Kind::Size(1 << 20, 2 << 30),
        "size of one file of the log; the disk is taken in such pieces",
    ),
    key(
        "bookie.queue_size",
        Kind::Size(8 << 20, 16 << 30),
        "adds that may wait for the disk; above it they are refused as busy",
    ),
    key(
        "bookie.disk_reserve",
        Kind::Budget,
        "a size, or a share of the volume, kept free: below it (or two log files) no records are taken",
    ),
    key(
        "bookie.gc_interval",
        Kind::Period(1),
        "how often metadata are asked whether the ledgers held here still exist",
    ),
    key(
        "bookie.gc_percent_max",
        Kind::Count(1, 100),
        "a pass that would drop more of the ledgers or bytes than this, and over 100 ledgers, drops none and says so",
    ),
    key(
        "bookie.compaction_rate",
        Kind::Size(1 << 20, 16 << 30),
        "bytes per second that compaction and scrub may read and write together",
    ),
    key(
        "bookie.scrub_interval",
        Kind::Period(60),
        "each full log file is read and checked once in this time",
    ),
    key(
        "upkeep.lost_after",
        Kind::Period(1),
        "a bookie that does not run for so long is given up: what it held is copied to others from the copies that are left",
    ),
    key(
        "upkeep.audit_interval",
        Kind::Period(1),
        "how often all ledgers are looked at for copies that are missing; also at once when a bookie comes, goes or is to leave",
    ),
    key(
        "upkeep.copy_rate",
        Kind::Size(64 << 10, 16 << 30),
        "bytes per second that are copied between bookies to make missing copies, in the whole cluster",
    ),
    key(
        "balance.interval",
        Kind::PeriodOrOff(3),
        "brokers whose load is uneven all through such a period are evened out by handing partitions over; off: only by hulse brokers balance",
    ),
    key(
        "balance.spread_percent",
        Kind::Count(5, 100),
        "a broker so far above or below the mean load is uneven; raise it if partitions move too often",
    ),
    key(
        "balance.cooldown",
        Kind::Period(1),
        "a partition that was handed over stays so long where it is, unless an operator moves it or its broker leaves",
    ),
    key(
        "memory.budget",
        Kind::Budget,
        "a size, or a share of the container's memory",
    ),
    key(
        "security.allow_anonymous",
        Kind::Flag,
        "let anyone who reaches the port do everything",
    ),
    key(
        "log.level",
        Kind::Level,
        "error | warn | info | debug | trace, also per module: info,hulse=debug",
    ),
    key("log.format", Kind::OneOf(&["text", "json"]), "text | json"),
];

/// The key of this path.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The name of this key's environment variable.
pub(crate) fn variable(path: &str) -> String {
    format!("HULSE_{}", path.replace('.', "__").to_uppercase())
}

/// The nearest of `names` to a wrong one; `None` when none is near.
pub(crate) fn nearest<T: AsRef<str>>(
    wrong: &str,
    names: impl IntoIterator<Item = T>,
) -> Option<String> {
    names
        .into_iter()
        .map(|name| {
            (
                strsim::normalized_damerau_levenshtein(wrong, name.as_ref()),
                name,
            )
        })
        .filter(|(score, _)| *score >= 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.as_ref().to_owned())
}

fn parsed<T: FromStr<Err = String>>(value: &Value, expected: &str) -> Result<T, String> {
    match value.as_str() {
        Some(text) => text.parse(),
        None => Err(format!(
            "expects {expected} with a unit, in quotes; found {}",
            shown(value)
        )),
    }
}

fn text(value: &Value) -> Result<&str, String> {
    match value.as_str() {
        Some("") => Err("must not be empty".to_owned()),
        Some(text) => Ok(text),
        None => Err(format!("expects text in quotes, found {}", shown(value))),
    }
}

/// The value in words, short.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Num(_, number) => match (number.to_u128_lossy(), number.to_f64()) {
            (Some(number), _) => number.to_string(),
            (None, Some(number)) => number.to_string(),
            (None, None) => "a negative number".to_owned(),
        },
        Value::Dict(..) => "a table".to_owned(),
        Value::Array(..) => "a list".to_owned(),
        _ => "something else".to_owned(),
    }
}

pub(super) fn host_and_port(text: &str) -> Result<(), String> {
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match parts.and_then(|(_, port)| port.parse::<u16>().ok()) {
        Some(1..) => Ok(()),
        _ => Err(format!("{text:?} is not host:port")),
    }
}

/// `info`, or `info,hulse=debug`.
fn levels(text: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if !LEVELS.contains(&level.trim()) {
            return Err(format!("{level:?} is none of: {}", LEVELS.join(", ")));
        }
    }
    Ok(())
}

fn endpoints(value: &Value) -> Result<(), String> {
    let expected = "expects a list of addresses, e.g. [\"http://127.0.0.1:2379\"]";
    let Some(list) = value.as_array() else {
        return Err(format!("{expected}; found {}", shown(value)));
    };
    for one in list {
        let address = one.as_str().and_then(|text| text.strip_prefix("http://"));
        match address.map(|address| host_and_port(address.trim_end_matches('/'))) {
            Some(Ok(())) => {}
            _ => return Err(format!("{} is not http://host:port", shown(one))),
        }
    }
    Ok(())
}

fn label(value: &Value, max: usize) -> Result<(), String> {
    match value.as_str() {
        Some(text) if !text.is_ascii() => Err(format!("{text:?} is not ASCII")),
        Some(text) if text.len() > max => Err(format!("has more than {max} letters")),
        Some(_) => Ok(()),
        None => Err(format!("expects text in quotes, found {}", shown(value))),
    }
}

fn count(value: &Value) -> Result<u64, String> {
    value
        .to_num()
        .and_then(Num::to_u128_lossy)
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| format!("expects a whole number, found {}", shown(value)))
}

impl Kind {
    /// Says what is wrong with a value of this kind.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        match self {
            Self::Size(min, max) => {
                let size: ByteSize = parsed(value, "a size")?;
                let (min, max) = (ByteSize(*min), ByteSize(*max));
                within(size, min, max)
            }
            Self::Period(seconds) => {
                let period: Period = parsed(value, "a duration")?;
                if period.0.as_secs() < *seconds {
                    return Err(format!("{period} is below the least, {seconds}s"));
                }
                Ok(())
            }
            Self::SizeOrOff(min) => match parsed(value, "a size, or off,")? {
                OrOff::At(ByteSize(size)) if size < *min => {
                    let least = ByteSize(*min);
                    Err(format!("{} is below the least, {least}", ByteSize(size)))
                }
                OrOff::At(_) | OrOff::Off => Ok(()),
            },
            Self::PeriodOrOff(seconds) => match parsed(value, "a duration, or off,")? {
                OrOff::At(period @ Period(time)) if time.as_secs() < *seconds => {
                    Err(format!("{period} is below the least, {seconds}s"))
                }
                OrOff::At(_) | OrOff::Off => Ok(()),
            },
            Self::Budget => parsed::<MemoryBudget>(value, "a size or a share").map(drop),
            Self::Sync => match text(value)?.parse::<SyncMode>() {
                Ok(_) => Ok(()),
                Err(why) => Err(why),
            },
            Self::Count(min, max) => within(count(value)?, *min, *max),
            Self::Flag => match value.to_bool() {
                Some(_) => Ok(()),
                None => Err(format!("expects true or false, found {}", shown(value))),
            },
            Self::Text => text(value).map(drop),
            Self::NodeName => NodeName::new(text(value)?)
                .map(drop)
                .map_err(|error| error.to_string()),
            Self::Address => text(value)?
                .parse::<SocketAddr>()
                .map(drop)
                .map_err(|_| format!("{} is not ip:port, e.g. 127.0.0.1:7400", shown(value))),
            Self::Advertise => match text(value)? {
                "auto" => Ok(()),
                address => host_and_port(address),
            },
            Self::Kafka => kafka::check(value),
            Self::Endpoints => endpoints(value),
            Self::Label(max) => label(value, *max),
            Self::Level => levels(text(value)?),
            Self::OneOf(names) => {
                let found = text(value)?;
                if names.contains(&found) {
                    return Ok(());
                }
                Err(format!("{found:?} is none of: {}", names.join(", ")))
            }
        }
    }

    /// The value that an environment variable's text means.
    pub(crate) fn value(&self, text: &str) -> Value {
        match self {
            Self::Kafka => kafka::of_line(text),
            Self::Endpoints => {
                let parts = text.split(',').filter(|part| !part.is_empty());
                parts.map(Value::from).collect::<Vec<_>>().into()
            }
            Self::Count(..) => text.parse::<u64>().map_or_else(|_| text.into(), Into::into),
            Self::Flag => text
                .parse::<bool>()
                .map_or_else(|_| text.into(), Into::into),
            _ => text.into(),
        }
    }
}

fn within<T: PartialOrd + std::fmt::Display>(found: T, min: T, max: T) -> Result<(), String> {
    if found < min || found > max {
        return Err(format!("{found} is outside {min} to {max}"));
    }
    Ok(())
}
