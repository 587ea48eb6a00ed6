//! What flags and commands of other tools are called here: Kafka's scripts, kcat, rpk, Pulsar's tools.

use clap::error::{ContextKind, ErrorKind};

use crate::usage::context;

const SERVER: &str = "--server HOST:PORT names the server; its gRPC port is 7400 by default, 9092 is for Kafka's clients";
const SUBSCRIPTION: &str = "-s NAME reads through a subscription, which keeps its place";
const GROUPS: &str = "groups of consumers are subscriptions here: hulse subscriptions list, hulse consume TOPIC -s NAME";
const TOPIC: &str = "the topic stands without a flag: hulse produce TOPIC, hulse consume TOPIC, hulse topics create TOPIC";
const COUNT: &str = "-n N stops after N records";
const FORMAT: &str =
    "-f FORMAT says how a record is written, e.g. -f '%k\\t%v\\n'; -H NAME=VALUE adds a header";
const KEYS: &str = "-f says where the key is, e.g. -f '%k:%v\\n'";
const COMPRESSION: &str = "--compression lz4 or zstd";
const COPIES: &str = "copies are a matter of the server: broker.replication in its configuration";
const RETENTION: &str = "--retention TIME and --retention-size SIZE are flags of their own";

/// Flags of one command, or of its branch: where, the flag, what it is here.
const OF_COMMANDS: &[(&str, &str, &str)] = &[
    ("consume", "-c", COUNT),
    ("consume", "-g", SUBSCRIPTION),
    ("consume", "-G", SUBSCRIPTION),
    ("consume", "-C", "hulse consume consumes without a flag"),
    ("consume", "-K", KEYS),
    ("consume", "-J", "-j writes one JSON object a record"),
    (
        "consume",
        "-u",
        "what is printed is not held back; no flag is needed",
    ),
    ("produce", "-K", KEYS),
    ("produce", "-P", "hulse produce produces without a flag"),
    ("produce", "-z", COMPRESSION),
    (
        "produce",
        "-l",
        "--file FILE reads from a file, one record a line",
    ),
    ("topics", "-r", COPIES),
    ("topics", "-c", RETENTION),
];

/// Flags wherever they are not ours.
const FLAGS: &[(&str, &str)] = &[
    ("--from-beginning", "-o start reads from the beginning"),
    ("--bootstrap-server", SERVER),
    ("--broker-list", SERVER),
    ("--brokers", SERVER),
    ("--service-url", SERVER),
    ("-b", SERVER),
    (
        "--zookeeper",
        "--server HOST:PORT names the server; there is no ZooKeeper",
    ),
    ("--group", SUBSCRIPTION),
    ("--consumer-group", SUBSCRIPTION),
    ("--subscription-name", SUBSCRIPTION),
    ("--topic", TOPIC),
    ("-t", TOPIC),
    (
        "--topics",
        "topics stand without a flag: hulse consume TOPIC TOPIC",
    ),
    ("--max-messages", COUNT),
    ("--num-messages", COUNT),
    (
        "--timeout-ms",
        "-e stops at the end; --timeout 5s bounds a request",
    ),
    ("--property", FORMAT),
    ("--formatter-property", FORMAT),
    ("--reader-property", FORMAT),
    (
        "--producer-property",
        "--compression, --acks and --timeout are flags of their own",
    ),
    (
        "--consumer-property",
        "-o, -n and -e are flags of their own",
    ),
    (
        "-X",
        "what librdkafka sets with -X has flags of its own here: hulse produce --help, hulse consume --help",
    ),
    ("--compression-codec", COMPRESSION),
    ("--compression-type", COMPRESSION),
    ("--replication-factor", COPIES),
    ("--topic-config", RETENTION),
    ("--list", "hulse topics list"),
    ("--describe", "hulse topics describe TOPIC"),
    ("--create", "hulse topics create TOPIC -p 8"),
    ("--delete", "hulse topics delete TOPIC"),
    (
        "--alter",
        "hulse topics partitions TOPIC N, hulse topics update TOPIC",
    ),
];

/// Values of Kafka's `acks`.
const ACKS: &[(&str, &str)] = &[
    ("all", "--acks quorum, the default, is what Kafka calls all"),
    (
        "-1",
        "--acks quorum, the default, is what Kafka calls -1 or all",
    ),
    (
        "1",
        "--acks quorum, the default; one copy alone is never asked for, the server's ack quorum is",
    ),
    ("0", "--acks none is what Kafka calls 0"),
];

/// Commands: behind which, the word, what it is here.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("", "groups", GROUPS),
    ("", "group", GROUPS),
    ("", "consumer-groups", GROUPS),
    ("", "consumers", GROUPS),
    (
        "",
        "admin",
        "there is no admin: hulse topics list, hulse subscriptions list, hulse ledgers list",
    ),
    ("", "cluster", "hulse doctor says how the server is"),
    ("", "brokers", "hulse doctor says how the server is"),
    (
        "",
        "bookies",
        "hulse ledgers list; hulse doctor says how the server is",
    ),
    (
        "",
        "namespaces",
        "hulse topics list TENANT/NAMESPACE; a namespace needs no making",
    ),
    (
        "",
        "tenants",
        "hulse topics list TENANT/NAMESPACE; a tenant needs no making",
    ),
    ("", "start", "hulse standalone"),
    ("", "server", "hulse standalone"),
    ("", "context", "hulse profile"),
    ("topics", "produce", "hulse produce TOPIC"),
    ("topics", "consume", "hulse consume TOPIC"),
    (
        "topics",
        "tail",
        "hulse consume TOPIC follows; hulse topics peek TOPIC shows the newest",
    ),
    (
        "topics",
        "alter",
        "hulse topics update TOPIC, hulse topics partitions TOPIC N",
    ),
    (
        "topics",
        "add-partitions",
        "hulse topics partitions TOPIC N, N in total",
    ),
    (
        "topics",
        "trim-prefix",
        "hulse topics trim TOPIC --before POSITION",
    ),
    (
        "topics",
        "stats",
        "hulse topics describe TOPIC --output wide",
    ),
    (
        "subscriptions",
        "reset",
        "hulse subscriptions seek TOPIC NAME --to POSITION",
    ),
    (
        "subscriptions",
        "reset-cursor",
        "hulse subscriptions seek TOPIC NAME --to POSITION",
    ),
];

/// What a word that the command of this path does not know is called here.
pub(crate) fn word(path: &str, error: &clap::Error) -> Option<&'static str> {
    if error.kind() == ErrorKind::InvalidSubcommand {
        let named = context(error, ContextKind::InvalidSubcommand)?;
        let of = |path| {
            let mut commands = COMMANDS.iter();
            commands.find(|(behind, word, _)| *behind == path && *word == named)
        };
        // The path has every word that is known, also those behind a wrong one.
        let found = of(path).or_else(|| of(""));
        return found.map(|(.., here)| *here);
    }
    let argument = context(error, ContextKind::InvalidArg)?;
    if argument.starts_with("--acks") {
        let value = context(error, ContextKind::InvalidValue)?;
        let found = ACKS.iter().find(|(word, _)| *word == value);
        return found.map(|(_, here)| *here);
    }
    let flag = argument.split(['=', ' ']).next().unwrap_or(&argument);
    let branch = path.split(' ').next().unwrap_or(path);
    let of_command = OF_COMMANDS
        .iter()
        .find(|(command, word, _)| *command == branch && *word == flag);
    let anywhere = || FLAGS.iter().find(|(word, _)| *word == flag);
    match of_command {
        Some((.., here)) => Some(here),
        None => anywhere().map(|(_, here)| *here),
    }
}
