//! The fields of each served request, as the walk needs them: by their size, not by their meaning.

use super::schema::{Field, Kind, Schema, Tag, always, between, since};

const BOOL: Kind = Kind::Fixed(1);
const I8: Kind = Kind::Fixed(1);
const I16: Kind = Kind::Fixed(2);
const I32: Kind = Kind::Fixed(4);
const I64: Kind = Kind::Fixed(8);
const UUID: Kind = Kind::Fixed(16);

const fn fields(fields: &'static [Field]) -> Schema {
    Schema { fields, tags: &[] }
}

pub(super) static API_VERSIONS: Schema = fields(&[since(3, Kind::Text), since(3, Kind::Text)]);

pub(super) static METADATA: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&METADATA_TOPIC))),
    since(4, BOOL),
    between(8, 10, BOOL),
    since(8, BOOL),
]);
static METADATA_TOPIC: Schema = fields(&[since(10, UUID), always(Kind::Text)]);

pub(super) static PRODUCE: Schema = fields(&[
    always(Kind::Text),
    always(I16),
    always(I32),
    always(Kind::Array(&Kind::Struct(&PRODUCE_TOPIC))),
]);
static PRODUCE_TOPIC: Schema = fields(&[
    between(0, 12, Kind::Name),
    since(13, UUID),
    always(Kind::Array(&Kind::Struct(&PRODUCE_PARTITION))),
]);
static PRODUCE_PARTITION: Schema = fields(&[always(I32), always(Kind::Bytes)]);

pub(super) static FETCH: Schema = Schema {
    fields: &[
        between(0, 14, I32),
        always(I32),
        always(I32),
        always(I32),
        always(I8),
        since(7, I32),
        since(7, I32),
        always(Kind::Array(&Kind::Struct(&FETCH_TOPIC))),
        since(7, Kind::Array(&Kind::Struct(&FORGOTTEN_TOPIC))),
        since(11, Kind::Text),
    ],
    tags: &[
        Tag {
            tag: 0,
            from: 12,
            kind: Kind::Text,
        },
        Tag {
            tag: 1,
            from: 15,
            kind: Kind::Struct(&REPLICA_STATE),
        },
    ],
};
static REPLICA_STATE: Schema = fields(&[always(I32), always(I64)]);
static FETCH_TOPIC: Schema = fields(&[
    between(0, 12, Kind::Name),
    since(13, UUID),
    always(Kind::Array(&Kind::Struct(&FETCH_PARTITION))),
]);
static FETCH_PARTITION: Schema = Schema {
    fields: &[
        always(I32),
        since(9, I32),
        always(I64),
        since(12, I32),
        since(5, I64),
        always(I32),
    ],
    tags: &[
        Tag {
            tag: 0,
            from: 17,
            kind: UUID,
        },
        Tag {
            tag: 1,
            from: 18,
            kind: I64,
        },
    ],
};
static FORGOTTEN_TOPIC: Schema = fields(&[
    between(7, 12, Kind::Name),
    since(13, UUID),
    since(7, Kind::Array(&I32)),
]);

pub(super) static LIST_OFFSETS: Schema = fields(&[
    always(I32),
    since(2, I8),
    always(Kind::Array(&Kind::Struct(&LIST_OFFSETS_TOPIC))),
    since(10, I32),
]);
static LIST_OFFSETS_TOPIC: Schema = fields(&[
    always(Kind::Name),
    always(Kind::Array(&Kind::Struct(&LIST_OFFSETS_PARTITION))),
]);
static LIST_OFFSETS_PARTITION: Schema = fields(&[always(I32), since(4, I32), always(I64)]);

pub(super) static LEADER_EPOCH: Schema = fields(&[
    since(3, I32),
    always(Kind::Array(&Kind::Struct(&LEADER_EPOCH_TOPIC))),
]);
static LEADER_EPOCH_TOPIC: Schema = fields(&[
    always(Kind::Name),
    always(Kind::Array(&Kind::Struct(&LEADER_EPOCH_PARTITION))),
]);
static LEADER_EPOCH_PARTITION: Schema = fields(&[always(I32), always(I32), always(I32)]);

pub(super) static FIND_COORDINATOR: Schema = fields(&[
    between(0, 3, Kind::Text),
    since(1, I8),
    since(4, Kind::Array(&Kind::Text)),
]);

pub(super) static OFFSET_FETCH: Schema = fields(&[
    between(0, 7, Kind::Text),
    between(0, 7, Kind::Array(&Kind::Struct(&COMMITTED_TOPIC))),
    since(8, Kind::Array(&Kind::Struct(&COMMITTED_GROUP))),
    since(7, BOOL),
]);
static COMMITTED_GROUP: Schema = fields(&[
    always(Kind::Text),
    since(9, Kind::Text),
    since(9, I32),
    always(Kind::Array(&Kind::Struct(&COMMITTED_TOPIC))),
]);
static COMMITTED_TOPIC: Schema = fields(&[always(Kind::Name), always(Kind::Array(&I32))]);

pub(super) static INIT_PRODUCER_ID: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    since(3, I64),
    since(3, I16),
]);

pub(super) static CREATE_TOPICS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&NEW_TOPIC))),
    always(I32),
    always(BOOL),
]);
static NEW_TOPIC: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    always(I16),
    always(Kind::Array(&Kind::Struct(&NEW_TOPIC_ASSIGNMENT))),
    always(Kind::Array(&Kind::Struct(&NEW_TOPIC_CONFIG))),
]);
static NEW_TOPIC_ASSIGNMENT: Schema = fields(&[always(I32), always(Kind::Array(&I32))]);
static NEW_TOPIC_CONFIG: Schema = fields(&[always(Kind::Text), always(Kind::Text)]);

pub(super) static DELETE_TOPICS: Schema = fields(&[
    since(6, Kind::Array(&Kind::Struct(&DELETED_TOPIC))),
    between(0, 5, Kind::Array(&Kind::Text)),
    always(I32),
]);
static DELETED_TOPIC: Schema = fields(&[always(Kind::Text), always(UUID)]);

pub(super) static CREATE_PARTITIONS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&GROWN_TOPIC))),
    always(I32),
    always(BOOL),
]);
static GROWN_TOPIC: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    always(Kind::Array(&Kind::Struct(&GROWN_ASSIGNMENT))),
]);
static GROWN_ASSIGNMENT: Schema = fields(&[always(Kind::Array(&I32))]);

pub(super) static DESCRIBE_CONFIGS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&CONFIG_RESOURCE))),
    always(BOOL),
    since(3, BOOL),
]);
static CONFIG_RESOURCE: Schema = fields(&[
    always(I8),
    always(Kind::Text),
    always(Kind::Array(&Kind::Text)),
]);

pub(super) static DELETE_RECORDS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&TRIMMED_TOPIC))),
    always(I32),
]);
static TRIMMED_TOPIC: Schema = fields(&[
    always(Kind::Text),
    always(Kind::Array(&Kind::Struct(&TRIMMED_PARTITION))),
]);
static TRIMMED_PARTITION: Schema = fields(&[always(I32), always(I64)]);

pub(super) static ALTER_CONFIGS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&ALTERED_RESOURCE))),
    always(BOOL),
]);
static ALTERED_RESOURCE: Schema = fields(&[
    always(I8),
    always(Kind::Text),
    always(Kind::Array(&Kind::Struct(&NEW_TOPIC_CONFIG))),
]);

pub(super) static INCREMENTAL_ALTER_CONFIGS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&CHANGED_RESOURCE))),
    always(BOOL),
]);
static CHANGED_RESOURCE: Schema = fields(&[
    always(I8),
    always(Kind::Text),
    always(Kind::Array(&Kind::Struct(&CHANGED_CONFIG))),
]);
static CHANGED_CONFIG: Schema = fields(&[always(Kind::Text), always(I8), always(Kind::Text)]);

pub(super) static DESCRIBE_CLUSTER: Schema = fields(&[always(BOOL), since(1, I8), since(2, BOOL)]);

pub(super) static DESCRIBE_TOPIC_PARTITIONS: Schema = fields(&[
    always(Kind::Array(&Kind::Struct(&DESCRIBED_TOPIC))),
    always(I32),
    always(Kind::Optional(&DESCRIBED_CURSOR)),
]);
static DESCRIBED_TOPIC: Schema = fields(&[always(Kind::Text)]);
static DESCRIBED_CURSOR: Schema = fields(&[always(Kind::Text), always(I32)]);

pub(super) static JOIN_GROUP: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    since(1, I32),
    always(Kind::Text),
    since(5, Kind::Text),
    always(Kind::Text),
    always(Kind::Array(&Kind::Struct(&GROUP_PROTOCOL))),
    since(8, Kind::Text),
]);
static GROUP_PROTOCOL: Schema = fields(&[always(Kind::Text), always(Kind::Bytes)]);

pub(super) static SYNC_GROUP: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    always(Kind::Text),
    since(3, Kind::Text),
    since(5, Kind::Text),
    since(5, Kind::Text),
    always(Kind::Array(&Kind::Struct(&GROUP_PROTOCOL))),
]);

pub(super) static HEARTBEAT: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    always(Kind::Text),
    since(3, Kind::Text),
]);

pub(super) static LEAVE_GROUP: Schema = fields(&[
    always(Kind::Text),
    between(0, 2, Kind::Text),
    since(3, Kind::Array(&Kind::Struct(&LEAVER))),
]);
static LEAVER: Schema = fields(&[always(Kind::Text), always(Kind::Text), since(5, Kind::Text)]);

pub(super) static OFFSET_COMMIT: Schema = fields(&[
    always(Kind::Text),
    always(I32),
    always(Kind::Text),
    since(7, Kind::Text),
    between(2, 4, I64),
    always(Kind::Array(&Kind::Struct(&NEW_OFFSETS_TOPIC))),
]);
static NEW_OFFSETS_TOPIC: Schema = fields(&[
    always(Kind::Name),
    always(Kind::Array(&Kind::Struct(&NEW_OFFSET))),
]);
static NEW_OFFSET: Schema = fields(&[always(I32), always(I64), since(6, I32), always(Kind::Text)]);

pub(super) static OFFSET_DELETE: Schema = fields(&[
    always(Kind::Text),
    always(Kind::Array(&Kind::Struct(&COMMITTED_TOPIC))),
]);

pub(super) static LIST_GROUPS: Schema = fields(&[
    since(4, Kind::Array(&Kind::Text)),
    since(5, Kind::Array(&Kind::Text)),
]);

pub(super) static DESCRIBE_GROUPS: Schema =
    fields(&[always(Kind::Array(&Kind::Text)), since(3, BOOL)]);

pub(super) static DELETE_GROUPS: Schema = fields(&[always(Kind::Array(&Kind::Text))]);

pub(super) static MEMBER_HEARTBEAT: Schema = fields(&[
    always(Kind::Text),
    always(Kind::Text),
    always(I32),
    always(Kind::Text),
    always(Kind::Text),
    always(I32),
    always(Kind::Array(&Kind::Text)),
    since(1, Kind::Text),
    always(Kind::Text),
    always(Kind::Array(&Kind::Struct(&OWNED_TOPIC))),
]);
static OWNED_TOPIC: Schema = fields(&[always(UUID), always(Kind::Array(&I32))]);

pub(super) static DESCRIBE_NEWER_GROUPS: Schema =
    fields(&[always(Kind::Array(&Kind::Text)), always(BOOL)]);
