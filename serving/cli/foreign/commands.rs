//! Commands of other tools.

const GROUPS: &str = "groups of consumers are subscriptions here: hulse subscriptions list, hulse consume TOPIC -s NAME";

/// Commands: behind which, the word, what it is here.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("", "groups", GROUPS),
    ("", "group", GROUPS),
    ("", "consumer-groups", GROUPS),
    ("", "consumers", GROUPS),
    (
        "",
        "admin",
        "there is no admin: hulse topics list, hulse subscriptions list, hulse ledgers list",
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
    (
        "subscriptions",
        "skip-all",
        "hulse subscriptions clear TOPIC NAME",
    ),
    (
        "subscriptions",
        "clear-backlog",
        "hulse subscriptions clear TOPIC NAME",
    ),
    (
        "topics",
        "set-retention",
        "hulse topics update TOPIC --retention 30d",
    ),
    (
        "topics",
        "set-backlog-quota",
        "hulse topics update TOPIC --backlog-size 10GiB",
    ),
    ("topics", "subscriptions", "hulse subscriptions list TOPIC"),
    ("topics", "get", "hulse topics describe TOPIC"),
    ("topics", "show", "hulse topics describe TOPIC"),
    ("topics", "rm", "hulse topics delete TOPIC"),
    ("topics", "ls", "hulse topics list"),
    ("", "list", "hulse topics list"),
    ("", "create", "hulse topics create TOPIC"),
    ("", "delete", "hulse topics delete TOPIC"),
    ("", "describe", "hulse topics describe TOPIC"),
    ("", "peek", "hulse topics peek TOPIC"),
    ("", "copy", "hulse topics copy SOURCE TARGET"),
    ("", "trim", "hulse topics trim TOPIC --before POSITION"),
    (
        "",
        "seek",
        "hulse subscriptions seek TOPIC NAME --to POSITION",
    ),
    ("", "tail", "hulse consume TOPIC"),
    ("", "read", "hulse consume TOPIC"),
    ("", "fetch", "hulse consume TOPIC"),
    ("", "subscribe", "hulse consume TOPIC -s NAME"),
    ("", "send", "hulse produce TOPIC"),
    ("", "publish", "hulse produce TOPIC"),
    ("", "status", "hulse doctor says how the server is"),
    ("", "health", "hulse doctor says how the server is"),
    ("", "run", "hulse standalone"),
    ("", "serve", "hulse standalone"),
    ("", "version", "hulse --version"),
];
