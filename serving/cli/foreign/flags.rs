//! Flags of other tools.

const SERVER: &str = "--server HOST:PORT names the server; its gRPC port is 7400 by default, 9092 is for Kafka's clients";
const READ_AS: &str = "-s NAME reads through a subscription, which keeps its place";
const SUBSCRIPTION: &str =
    "hulse consume TOPIC -s NAME reads through a subscription, which keeps its place";
const NAME: &str =
    "topic and subscription stand without a flag: hulse subscriptions describe TOPIC NAME";
const TOPIC: &str = "the topic stands without a flag: hulse produce TOPIC, hulse consume TOPIC, hulse topics create TOPIC";
const FROM: &str = "-o POSITION says where reading begins, e.g. -o start, -o -10, -o @-15m";
const COUNT: &str = "-n N stops after N records";
const FORMAT: &str =
    "-f FORMAT says how a record is written, e.g. -f '%k\\t%v\\n'; %h stands for its headers";
const HEADERS: &str =
    "-f FORMAT says how a record is written, e.g. -f '%k\\t%v\\n'; -H NAME=VALUE adds a header";
const KEYS: &str = "-f says where the key is, e.g. -f '%k:%v\\n'";
const COMPRESSION: &str = "--compression lz4 or zstd";
const CODEC: &str = "hulse produce --compression takes none, lz4 and zstd; Kafka's clients send gzip and snappy too, and hulse consume reads all five";
const COPIES: &str = "hulse topics create TOPIC -r N says how many copies its records have, --ack-quorum how many are waited for; hulse topics update changes it";
const RETENTION: &str = "--retention TIME and --retention-size SIZE are flags of their own";
const UPDATE_RETENTION: &str =
    "hulse topics update TOPIC --retention 30d --retention-size 50GiB says how long records stay";
const BACKLOG: &str =
    "--backlog-size SIZE, --backlog-age TIME and --backlog-policy POLICY are flags of their own";
const UPDATE_BACKLOG: &str = "hulse topics update TOPIC --backlog-size SIZE --backlog-policy reject limits what subscriptions keep";
const TO: &str = "--to POSITION says where they go, e.g. --to start, --to @-15m, --to -10";
const BEGINS: &str = "--from POSITION says where it begins: start, end, an offset, @TIME";
const BEFORE: &str = "--before POSITION names the first record that stays";
const LISTEN: &str = "--grpc, --http and --kafka name the addresses, e.g. --grpc 127.0.0.1:7400";
const YES: &str = "--yes does it without asking; --dry-run only says what would be done";

/// Flags of one command, or of its branch: where, the flag, what it is here. What stands first goes first.
pub(super) const OF_COMMANDS: &[(&str, &str, &str)] = &[
    ("consume", "--from", FROM),
    ("consume", "--from-offset", FROM),
    ("consume", "--from-beginning", FROM),
    ("consume", "--beginning", FROM),
    ("consume", "--earliest", FROM),
    ("consume", "--latest", FROM),
    ("consume", "--start", FROM),
    ("consume", "--start-offset", FROM),
    ("consume", "--position", FROM),
    (
        "consume",
        "--since",
        "-o @TIME begins at a time, e.g. -o @-15m or -o @2026-01-31",
    ),
    (
        "consume",
        "--to",
        "-o FROM:TO reads a range, e.g. -o 100:200; -e stops at the end",
    ),
    (
        "consume",
        "--until",
        "-o FROM:TO reads a range, e.g. -o @-2h:-1h; -e stops at the end",
    ),
    ("consume", "-c", COUNT),
    ("consume", "-m", COUNT),
    ("consume", "--count", COUNT),
    ("consume", "--limit", COUNT),
    ("consume", "--max-messages", COUNT),
    ("consume", "--num-messages", COUNT),
    ("consume", "--max-records", COUNT),
    ("consume", "-g", READ_AS),
    ("consume", "-G", READ_AS),
    ("consume", "--group", READ_AS),
    ("consume", "--consumer-group", READ_AS),
    ("consume", "--group-id", READ_AS),
    ("consume", "--subscription-name", READ_AS),
    (
        "consume",
        "--subscription-type",
        "--type exclusive or failover, beside -s NAME",
    ),
    (
        "consume",
        "--subscription-position",
        "-o start or -o end says where a new subscription begins",
    ),
    ("consume", "-C", "hulse consume consumes without a flag"),
    ("consume", "-K", KEYS),
    ("consume", "-D", FORMAT),
    ("consume", "--property", FORMAT),
    ("consume", "--formatter-property", FORMAT),
    (
        "consume",
        "--timeout-ms",
        "-e stops at the end; --timeout 5s bounds a request",
    ),
    (
        "consume",
        "--consumer-property",
        "-o, -n and -e are flags of their own",
    ),
    ("consume", "-J", "-j writes one JSON object a record"),
    (
        "consume",
        "-u",
        "what is printed is not held back; no flag is needed",
    ),
    ("produce", "-K", KEYS),
    ("produce", "-D", KEYS),
    ("produce", "-P", "hulse produce produces without a flag"),
    ("produce", "-z", COMPRESSION),
    ("produce", "--compression-codec", COMPRESSION),
    ("produce", "--compression-type", COMPRESSION),
    ("produce", "--property", HEADERS),
    ("produce", "--reader-property", HEADERS),
    (
        "produce",
        "--producer-property",
        "--compression, --acks and --timeout are flags of their own",
    ),
    (
        "produce",
        "-l",
        "--file FILE reads from a file, one record a line",
    ),
    (
        "produce",
        "-m",
        "echo TEXT | hulse produce TOPIC sends a text; --file FILE reads from a file",
    ),
    (
        "produce",
        "--messages",
        "echo TEXT | hulse produce TOPIC sends a text; --file FILE reads from a file",
    ),
    (
        "produce",
        "--request-required-acks",
        "--acks quorum, the default, or none",
    ),
    ("topics create", "-c", RETENTION),
    ("topics create", "--topic-config", RETENTION),
    ("topics create", "--retention-time", RETENTION),
    ("topics create", "--retention-ms", RETENTION),
    ("topics create", "--retention-bytes", RETENTION),
    ("topics create", "--ttl", RETENTION),
    ("topics create", "--quota", BACKLOG),
    ("topics create", "--backlog-quota", BACKLOG),
    ("topics update", "-c", RETENTION),
    ("topics update", "--topic-config", RETENTION),
    ("topics update", "--add-config", RETENTION),
    ("topics update", "--retention-time", RETENTION),
    ("topics update", "--retention-ms", RETENTION),
    ("topics update", "--retention-bytes", RETENTION),
    ("topics update", "--ttl", RETENTION),
    ("topics update", "--quota", BACKLOG),
    ("topics update", "--backlog-quota", BACKLOG),
    ("topics update", "--backlog-limit", BACKLOG),
    ("topics update", "--policy", BACKLOG),
    (
        "topics update",
        "--partitions",
        "hulse topics partitions TOPIC N sets their number",
    ),
    ("topics peek", "--from", FROM),
    ("topics peek", "--from-beginning", FROM),
    ("topics peek", "--count", "-n N shows N records"),
    ("topics peek", "--limit", "-n N shows N records"),
    ("topics trim", "--to", BEFORE),
    ("topics trim", "--until", BEFORE),
    ("topics trim", "--offset", BEFORE),
    ("topics trim", "-o", BEFORE),
    ("topics delete", "--force", YES),
    ("topics delete", "-f", YES),
    ("subscriptions create", "--offset", BEGINS),
    ("subscriptions create", "-o", BEGINS),
    ("subscriptions create", "--to", BEGINS),
    ("subscriptions create", "--from-beginning", BEGINS),
    ("subscriptions create", "--earliest", BEGINS),
    ("subscriptions create", "--latest", BEGINS),
    ("subscriptions create", "--messageId", BEGINS),
    ("subscriptions seek", "--from", TO),
    ("subscriptions seek", "--offset", TO),
    ("subscriptions seek", "-o", TO),
    ("subscriptions seek", "--from-beginning", TO),
    ("subscriptions seek", "--to-earliest", TO),
    ("subscriptions seek", "--to-latest", TO),
    ("subscriptions seek", "--to-offset", TO),
    ("subscriptions seek", "--to-datetime", TO),
    ("subscriptions seek", "--shift-by", TO),
    ("subscriptions seek", "--by-duration", TO),
    ("subscriptions seek", "--time", TO),
    ("subscriptions seek", "--messageId", TO),
    ("subscriptions seek", "--execute", YES),
    (
        "subscriptions skip",
        "--count",
        "-n N passes over N records",
    ),
    ("subscriptions", "-s", NAME),
    ("subscriptions", "--subscription", NAME),
    ("subscriptions", "--subscription-name", NAME),
    ("subscriptions", "--group", NAME),
    ("subscriptions", "--consumer-group", NAME),
    ("subscriptions", "-g", NAME),
    ("standalone", "--port", LISTEN),
    ("standalone", "--listen", LISTEN),
    ("standalone", "--address", LISTEN),
    (
        "standalone",
        "--data-dir",
        "--data DIR names the data directory",
    ),
    ("standalone", "--dir", "--data DIR names the data directory"),
    ("standalone", "-d", "--data DIR names the data directory"),
    (
        "bench produce",
        "--record-size",
        "--size 1KiB says how large a record is",
    ),
    (
        "bench produce",
        "--throughput",
        "--rate N sends N records per second",
    ),
];

/// Flags wherever they are not ours.
pub(super) const FLAGS: &[(&str, &str)] = &[
    ("--bootstrap-server", SERVER),
    ("--bootstrap-servers", SERVER),
    ("--broker-list", SERVER),
    ("--brokers", SERVER),
    ("--broker", SERVER),
    ("--service-url", SERVER),
    ("--admin-url", SERVER),
    ("--url", SERVER),
    ("--host", SERVER),
    ("--address", SERVER),
    ("-b", SERVER),
    (
        "--zookeeper",
        "--server HOST:PORT names the server; there is no ZooKeeper",
    ),
    (
        "--from-beginning",
        "hulse consume TOPIC -o start reads from the beginning",
    ),
    (
        "--from",
        "hulse consume TOPIC -o POSITION says where reading begins",
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
    (
        "--max-messages",
        "hulse consume TOPIC -n N stops after N records",
    ),
    (
        "-X",
        "what librdkafka is told there has flags of its own here: hulse produce --help, hulse consume --help",
    ),
    ("--replication-factor", COPIES),
    ("--min-insync-replicas", COPIES),
    ("--bookkeeper-ensemble", COPIES),
    ("--bookkeeper-write-quorum", COPIES),
    ("--bookkeeper-ack-quorum", COPIES),
    ("--retention-time", UPDATE_RETENTION),
    ("--retention-ms", UPDATE_RETENTION),
    ("--ttl", UPDATE_RETENTION),
    ("--topic-config", UPDATE_RETENTION),
    ("--add-config", UPDATE_RETENTION),
    ("--quota", UPDATE_BACKLOG),
    ("--backlog-quota", UPDATE_BACKLOG),
    ("--list", "hulse topics list"),
    ("-L", "hulse topics list"),
    ("--describe", "hulse topics describe TOPIC"),
    ("--create", "hulse topics create TOPIC -p 8"),
    ("--delete", "hulse topics delete TOPIC"),
    (
        "--alter",
        "hulse topics partitions TOPIC N, hulse topics update TOPIC",
    ),
    (
        "--reset-offsets",
        "hulse subscriptions seek TOPIC NAME --to POSITION",
    ),
    ("-y", YES),
    ("--assume-yes", YES),
    ("--json", "-j, or --output json"),
];

/// Values of Kafka's `acks`.
pub(super) const ACKS: &[(&str, &str)] = &[
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

/// Codecs that Kafka's clients have and ours do not send.
pub(super) const CODECS: &[(&str, &str)] = &[("gzip", CODEC), ("snappy", CODEC)];

/// What `--config NAME=VALUE` of Kafka's scripts is called here, where `--config` names a file.
pub(super) const CONFIG: &str = UPDATE_RETENTION;
