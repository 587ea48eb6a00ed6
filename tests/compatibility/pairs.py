#!/usr/bin/env python3
"""KA-01, step 3: what each client produces, each client reads: 1,000 numbered records with keys and headers, each producer with another codec.

COMPATIBILITY_JARS and COMPATIBILITY_CLASSES as for client_java.py.
"""

import client_confluent
import client_java
import client_kafka_python
import client_kcat
from checks import Driver, Row, expect, in_order, numbered
from common import drain, send_all

COUNT = 1_000
LIBRARIES = {
    "librdkafka": (client_confluent.Adapter(), "snappy"),
    "kafka-python": (client_kafka_python.Adapter(), "gzip"),
    "java": (client_java.Adapter(), "zstd"),
}
NAMES = [*LIBRARIES, "kcat"]

driver = Driver("pairs")
topics = {}


def produced(bench, name):
    """The topic with the records of this producer; made once."""
    if name in topics:
        return topics[name]
    topic = bench.topic(name)
    values = numbered(COUNT, size=60)
    if name == "kcat":
        feed = b"".join(b"key:%s\n" % value for value in values)
        client_kcat.kcat(bench, "-P", "-t", topic, "-p", 0, "-z", "lz4", "-K", ":", "-H", "h=1", "-H", "h=2", feed=feed)
    else:
        adapter, codec = LIBRARIES[name]
        rows = [Row(value, b"key", [("h", b"1"), ("h", b"2")]) for value in values]
        send_all(adapter, bench, topic, rows, codec=codec, idempotent=True, linger_ms=20)
    topics[name] = topic
    return topic


def consumed(bench, name, topic):
    """[(key, value, headers)] as this consumer has them."""
    if name == "kcat":
        rows = client_kcat.consume(bench, topic)
        return [(row["key"].encode(), row["payload"].encode(), [part.encode() for part in row["headers"]]) for row in rows]
    adapter, _ = LIBRARIES[name]
    consumer = adapter.consumer(bench.address, topic, {0: "earliest"})
    try:
        rows = drain(consumer, COUNT, 30)
    finally:
        consumer.close()
    flat = [[part.encode() if isinstance(part, str) else part for header in row.headers for part in header] for row in rows]
    return [(row.key, row.value, headers) for row, headers in zip(rows, flat)]


def pair(bench, producer, consumer):
    rows = consumed(bench, consumer, produced(bench, producer))
    in_order([value for _, value, _ in rows], numbered(COUNT, size=60))
    expect("key and headers", {(key, *headers) for key, _, headers in rows}, {(b"key", b"h", b"1", b"h", b"2")})


for each in NAMES:
    for other in NAMES:
        driver.check(f"{each} to {other}")(lambda bench, producer=each, consumer=other: pair(bench, producer, consumer))
driver.main()
