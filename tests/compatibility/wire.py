"""Kafka's wire without any client library: frames, fields, and the few requests that the raw drivers and the preparation of topics need.

Versions without tagged fields are used on purpose: they are the oldest that a server must still answer, and the simplest to read here.
What newer versions look like is judged by the Java driver, which has Kafka's own message classes.
"""

import socket
import struct
import time

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 18, 19, 20, 21
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 10, 11, 12, 14, 68
INIT_PRODUCER_ID, DESCRIBE_CONFIGS, CREATE_PARTITIONS, DESCRIBE_CLUSTER = 22, 32, 37, 60

ERRORS = {
    -1: "UNKNOWN_SERVER_ERROR", 0: "NONE", 1: "OFFSET_OUT_OF_RANGE", 2: "CORRUPT_MESSAGE", 3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER", 7: "REQUEST_TIMED_OUT", 14: "COORDINATOR_LOAD_IN_PROGRESS", 10: "MESSAGE_TOO_LARGE", 17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE", 21: "INVALID_REQUIRED_ACKS", 32: "INVALID_TIMESTAMP", 35: "UNSUPPORTED_VERSION",
    36: "TOPIC_ALREADY_EXISTS", 37: "INVALID_PARTITIONS", 38: "INVALID_REPLICATION_FACTOR", 40: "INVALID_CONFIG", 42: "INVALID_REQUEST",
    43: "UNSUPPORTED_FOR_MESSAGE_FORMAT", 45: "OUT_OF_ORDER_SEQUENCE_NUMBER", 46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH", 56: "KAFKA_STORAGE_ERROR", 59: "UNKNOWN_PRODUCER_ID", 76: "UNSUPPORTED_COMPRESSION_TYPE",
    87: "INVALID_RECORD", 100: "UNKNOWN_TOPIC_ID",
}


def error(code):
    """The name of an error code."""
    return ERRORS.get(code, f"error {code}")


def string(text):
    """A nullable string."""
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def blob(data):
    """Nullable bytes."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def array(items):
    """An array of encoded items; `None` is the null array."""
    return struct.pack(">i", -1) if items is None else struct.pack(">i", len(items)) + b"".join(items)


class Fields:
    """Takes fields off an answer, in order."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        values = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return values[0] if len(values) == 1 else values

    def bytes(self, length):
        piece = self.data[self.at:self.at + length]
        if len(piece) < length:
            raise ValueError(f"the answer ends {length - len(piece)} bytes early")
        self.at += length
        return piece

    def string(self):
        length = self.take("h")
        return None if length < 0 else self.bytes(length).decode()

    def blob(self):
        length = self.take("i")
        return None if length < 0 else self.bytes(length)

    def array(self, item):
        return [item(self) for _ in range(self.take("i"))]

    def end(self):
        if self.at != len(self.data):
            raise ValueError(f"{len(self.data) - self.at} bytes follow the answer")


def split(address):
    """host:port as a pair."""
    host, port = address.rsplit(":", 1)
    return host, int(port)


class Closed(Exception):
    """The server closed the connection."""


class Connection:
    """One connection; requests may be pipelined, answers are taken in order."""

    def __init__(self, address, timeout=30.0, receive_buffer=None):
        host, port = split(address)
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.next = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def frame(self, api, version, body, client="raw", flexible=False):
        """The bytes of a request and its correlation id."""
        correlation = self.next
        self.next += 1
        head = struct.pack(">hhi", api, version, correlation) + string(client) + (b"\0" if flexible else b"")
        return struct.pack(">i", len(head) + len(body)) + head + body, correlation

    def send(self, api, version, body, **how):
        data, correlation = self.frame(api, version, body, **how)
        self.raw(data)
        return correlation

    def raw(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as broken:
            raise Closed(str(broken)) from None

    def exactly(self, length):
        data = bytearray()
        while len(data) < length:
            try:
                piece = self.socket.recv(min(length - len(data), 1 << 20))
            except ConnectionError as broken:
                raise Closed(str(broken)) from None
            if not piece:
                raise Closed("end of stream")
            data += piece
        return bytes(data)

    def receive(self):
        """The next answer: correlation id and body."""
        length = struct.unpack(">i", self.exactly(4))[0]
        data = self.exactly(length)
        return struct.unpack_from(">i", data)[0], data[4:]

    def ask(self, api, version, body, **how):
        """One request, its answer's fields."""
        sent = self.send(api, version, body, **how)
        got, answer = self.receive()
        if got != sent:
            raise ValueError(f"asked {sent}, answered {got}")
        return Fields(answer)


# ---- requests ---------------------------------------------------------------------------------------------------------------------

def api_versions(connection, version=0):
    """Error code and {api: (min, max)}."""
    fields = connection.ask(API_VERSIONS, version, b"")
    code = fields.take("h")
    return code, {api: (low, high) for api, low, high in fields.array(lambda f: f.take("hhh"))}


def create_topic(connection, name, partitions=1, configs=None):
    """The error code."""
    settings = [string(key) + string(value) for key, value in (configs or {}).items()]
    topic = string(name) + struct.pack(">ih", partitions, -1 if partitions < 0 else 1) + array([]) + array(settings)
    fields = connection.ask(CREATE_TOPICS, 4, array([topic]) + struct.pack(">i?", 30_000, False))
    fields.take("i")
    return fields.array(lambda f: (f.string(), f.take("h"), f.string()))[0][1]


def delete_topic(connection, name):
    """The error code."""
    fields = connection.ask(DELETE_TOPICS, 1, array([string(name)]) + struct.pack(">i", 30_000))
    fields.take("i")
    return fields.array(lambda f: (f.string(), f.take("h")))[0][1]


def metadata(connection, topics):
    """Brokers {id: (host, port)} and topics {name: (error, {partition: leader})}; Metadata v4, creates nothing."""
    wanted = None if topics is None else [string(topic) for topic in topics]
    fields = connection.ask(METADATA, 4, array(wanted) + b"\0")
    fields.take("i")
    brokers = {node: (host, port) for node, host, port, _ in
               fields.array(lambda f: (f.take("i"), f.string(), f.take("i"), f.string()))}
    fields.string(), fields.take("i")

    def partition(f):
        code, index, leader = f.take("hii")
        f.array(lambda g: g.take("i")), f.array(lambda g: g.take("i"))
        return code, index, leader

    found = {}
    for _ in range(fields.take("i")):
        code, name, _internal = fields.take("h"), fields.string(), fields.take("?")
        found[name] = (code, {index: leader for _, index, leader in fields.array(partition)})
    return brokers, found


def add_partitions(connection, topic, count):
    """The topic has so many from now on; the error code. CreatePartitions v0."""
    wanted = string(topic) + struct.pack(">i", count) + array(None)
    fields = connection.ask(CREATE_PARTITIONS, 0, array([wanted]) + struct.pack(">i?", 30_000, False))
    fields.take("i")
    return fields.array(lambda f: (f.string(), f.take("h"), f.string()))[0][1]


def topic_config(connection, topic, key):
    """The value of a topic's key, or `None`."""
    resource = struct.pack(">b", 2) + string(topic) + array([string(key)])
    fields = connection.ask(DESCRIBE_CONFIGS, 1, array([resource]) + b"\0")
    fields.take("i")

    def entry(f):
        name, value = f.string(), f.string()
        f.take("?b?"), f.array(lambda g: (g.string(), g.string(), g.take("b")))
        return name, value

    def answer(f):
        f.take("h"), f.string(), f.take("b"), f.string()
        return dict(f.array(entry))

    return fields.array(answer)[0].get(key)


def produce_body(topic, partition, records, acks=-1, timeout_ms=30_000, version=7):
    """Produce v3 to v8."""
    data = array([string(topic) + array([struct.pack(">i", partition) + blob(records)])])
    return string(None) + struct.pack(">hi", acks, timeout_ms) + data


def produced(fields, version=7):
    """(error, base offset, append time, log start) of the only partition of an answer."""
    def partition(f):
        index, code, base, appended = f.take("ihqq")
        start = f.take("q") if version >= 5 else None
        if version >= 8:
            f.array(lambda g: (g.take("i"), g.string())), f.string()
        return code, base, appended, start

    answer = fields.array(lambda f: (f.string(), f.array(partition)))
    fields.take("i")
    fields.end()
    return answer[0][1][0]


def produce(connection, topic, records, partition=0, acks=-1, version=7):
    """Sends one batch and waits: (error, base offset, append time, log start)."""
    return produced(connection.ask(PRODUCE, version, produce_body(topic, partition, records, acks)), version)


def init_producer(connection):
    """A new producer id and its epoch; a server that is about to have some is asked again."""
    for _ in range(100):
        fields = connection.ask(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
        fields.take("i")
        code, producer, epoch = fields.take("hqh")
        if code != 14:
            break
        time.sleep(0.1)
    if code:
        raise ValueError(f"InitProducerId: {error(code)}")
    return producer, epoch


def fetch_body(wanted, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, isolation=0):
    """Fetch v11, without a session; `wanted`: (topic, partition, offset, partition limit), in the order of asking."""
    topics = [string(topic) + array([struct.pack(">iiqqi", partition, -1, offset, -1, limit)]) for topic, partition, offset, limit in wanted]
    head = struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, isolation, 0, -1)
    return head + array(topics) + array([]) + string("")


def fetched(fields):
    """[(topic, partition, error, high watermark, last stable, records)], in the order of the answer."""
    fields.take("i")
    code, _session = fields.take("hi")
    if code:
        raise ValueError(f"Fetch: {error(code)}")
    answers = []
    for _ in range(fields.take("i")):
        topic = fields.string()
        for _ in range(fields.take("i")):
            index, code, high, stable, _start = fields.take("ihqqq")
            fields.array(lambda f: f.take("qq"))
            fields.take("i")
            answers.append((topic, index, code, high, stable, fields.blob()))
    fields.end()
    return answers


# The oldest version that may carry zstd is 10.
FETCH_VERSION = 11


def fetch(connection, wanted, **limits):
    """Fetches; `wanted` as of `fetch_body`."""
    return fetched(connection.ask(FETCH, FETCH_VERSION, fetch_body(wanted, **limits)))


def list_offset(connection, topic, asked, partition=0, isolation=0):
    """(error, time, offset) for a time, -1 latest, -2 earliest; ListOffsets v2."""
    body = struct.pack(">ib", -1, isolation) + array([string(topic) + array([struct.pack(">iq", partition, asked)])])
    fields = connection.ask(LIST_OFFSETS, 2, body)
    fields.take("i")
    answer = fields.array(lambda f: (f.string(), f.array(lambda g: g.take("ihqq"))))
    fields.end()
    _, code, at, offset = answer[0][1][0]
    return code, at, offset
