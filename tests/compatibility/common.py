"""The checks that every client library gets, written once against a small adapter.

An adapter has
    codecs                                 names of what it can compress with, "none" first
    producer(address, **settings)          settings: idempotent, codec, acks, linger_ms
        .send(topic, row, partition)       does not wait
        .flush() -> [offset or error text] of everything sent since the last flush, in order
        .close()
    consumer(address, topic, starts, **limits)   starts: {partition: "earliest" | "latest" | offset}; limits: partition_bytes, total_bytes,
                                           min_bytes, wait_ms
        .take(seconds) -> (partition, Row) or None
        .close()
    offset_for(address, topic, time) -> offset or None
    ends(address, topic) -> (first, next)
and, where the client has an admin part: create(address, topic, partitions, configs), delete, describe -> partitions or None, configs ->
dict or None, grow(address, topic, partitions), cluster -> (broker addresses, controller, id), delete_records(address, topic, offset).
What an adapter lacks it leaves out, and the check with it.
"""

import threading
import time

import batches
import wire
from checks import Row, expect, holds, in_order, numbered
from cuts import install_cuts
from damage import install_damage

BIG = 50 << 20


def send_all(adapter, bench, topic, rows, partition=0, **settings):
    """Sends and waits; the offsets."""
    producer = adapter.producer(bench.address, **settings)
    try:
        for row in rows:
            producer.send(topic, row, partition)
        offsets = producer.flush()
    finally:
        producer.close()
    wrong = [offset for offset in offsets if not isinstance(offset, int)]
    holds(f"{len(wrong)} of {len(rows)} not stored: {wrong[:1]}", not wrong)
    return offsets


def read(adapter, bench, topic, count, start="earliest", partition=0, seconds=20, **limits):
    """So many records of one partition, and none more than asked."""
    consumer = adapter.consumer(bench.address, topic, {partition: start}, **limits)
    try:
        return drain(consumer, count, seconds)
    finally:
        consumer.close()


def drain(consumer, count, seconds):
    rows, until = [], time.monotonic() + seconds
    while len(rows) < count:
        holds(f"{len(rows)} of {count} records after {seconds} s", time.monotonic() < until)
        taken = consumer.take(0.5)
        if taken:
            rows.append(taken[1])
    return rows


def install(driver, adapter):
    """Adds the checks that this adapter can serve."""
    install_produce(driver, adapter)
    install_consume(driver, adapter)
    install_records(driver, adapter)
    install_admin(driver, adapter)
    install_cuts(driver, adapter)
    install_damage(driver, adapter)


def install_produce(driver, adapter):
    def stored(bench, codec, idempotent):
        topic = bench.topic("produce")
        values = numbered(500, size=100)
        offsets = send_all(adapter, bench, topic, [Row(value) for value in values], codec=codec, idempotent=idempotent, linger_ms=50)
        expect("offsets", offsets, list(range(500)))
        in_order([row.value for row in read(adapter, bench, topic, 500)], values)
        with bench.connect() as connection:
            found = batches.headers_of(wire.fetch(connection, [(topic, 0, 0, BIG)])[0][5])
        expect("codec of the stored batches", {head[3] & 7 for head in found}, {["none", "gzip", "snappy", "lz4", "zstd"].index(codec)})

    for codec in adapter.codecs:
        driver.check(f"produce-{codec}")(lambda bench, codec=codec: stored(bench, codec, False))
    for codec in adapter.codecs:
        driver.check(f"idempotent-{codec}")(lambda bench, codec=codec: stored(bench, codec, True))

    @driver.check("acks-0", "acks-1")
    def acks(bench, name):
        topic = bench.topic("acks")
        producer = adapter.producer(bench.address, acks=int(name[-1]), idempotent=False)
        producer.send(topic, Row(b"value"), 0)
        producer.flush()
        producer.close()
        expect("the record", read(adapter, bench, topic, 1)[0].value, b"value")


def three_batches(bench):
    """Three gzip batches of ten records, times 1000, 1001, .."""
    topic = bench.topic("consume")
    for first in (0, 10, 20):
        records = batches.batch(numbered(10, first), list(range(1000 + first, 1010 + first)), batches.GZIP)
        bench.write(topic, records)
    return topic


def install_consume(driver, adapter):
    @driver.check("consume-earliest", "consume-offset", "mid-batch")
    def places(bench, name):
        start = {"consume-earliest": "earliest", "consume-offset": 10, "mid-batch": 17}[name]
        first = 0 if start == "earliest" else start
        rows = read(adapter, bench, three_batches(bench), 30 - first, start)
        expect("offsets", [row.offset for row in rows], list(range(first, 30)))
        expect("values", [row.value for row in rows], numbered(30 - first, first))

    @driver.check("consume-latest")
    def latest(bench):
        topic = three_batches(bench)
        consumer = adapter.consumer(bench.address, topic, {0: "latest"})
        try:
            early = consumer.take(2)
            holds("a record that was there before came", early is None)
            bench.write(topic, batches.batch([b"new"]))
            row = drain(consumer, 1, 20)[0]
        finally:
            consumer.close()
        expect("offset and value", (row.offset, row.value), (30, b"new"))

    @driver.check("consume-time")
    def by_time(bench):
        topic = three_batches(bench)
        offset = adapter.offset_for(bench.address, topic, 1013)
        expect("offset of the time", offset, 13)
        rows = read(adapter, bench, topic, 17, offset)
        expect("first record", (rows[0].offset, rows[0].time), (13, 1013))

    @driver.check("lookup")
    def lookup(bench):
        topic = bench.topic("lookup")
        bench.write(topic, batches.batch(numbered(20), list(range(1, 21)), batches.ZSTD))
        for at in range(1, 21):
            expect(f"offset of time {at}", adapter.offset_for(bench.address, topic, at), at - 1)
        expect("offset of time 0", adapter.offset_for(bench.address, topic, 0), 0)
        expect("offset of a time after the last", adapter.offset_for(bench.address, topic, 21), None)

    @driver.check("end")
    def end(bench):
        topic = three_batches(bench)
        expect("ends", adapter.ends(bench.address, topic), (0, 30))
        consumer = adapter.consumer(bench.address, topic, {0: "earliest"})
        try:
            rows = drain(consumer, 30, 20)
            holds("a record comes after the last", consumer.take(1) is None)
            expect("position", consumer.position(0), rows[-1].offset + 1)
            holds("the end is not told", consumer.ended(0))
        finally:
            consumer.close()

    @driver.check("fetch-limits")
    def limits(bench):
        topic = bench.topic("limits", 3, max_message_bytes=6 << 20)
        value = b"v" * (126 << 10)
        # 5 MiB where the server takes it.
        many = min(40, bench.limit(topic) // len(value) - 1) if bench.long else 6
        large = batches.batch([value] * many)
        for partition in range(3):
            for records in (large, batches.batch([value])) if partition == 0 else (batches.batch([value]),) * 2:
                bench.write(topic, records, partition)
        count = many + 5
        for settings in ({"partition_bytes": 1024}, {"partition_bytes": 1024, "total_bytes": 1024}):
            starts = {0: "earliest", 1: "earliest", 2: "earliest"}
            consumer = adapter.consumer(bench.address, topic, starts, **settings)
            try:
                rows = drain(consumer, count, 30)
            finally:
                consumer.close()
            holds("a value is cut", all(len(row.value) == len(value) for row in rows))

    @driver.check("long-poll")
    def long_poll(bench):
        topic = bench.topic("wait")
        consumer = adapter.consumer(bench.address, topic, {0: "earliest"}, wait_ms=5_000)
        try:
            holds("an empty topic has a record", consumer.take(1) is None)
            since = []
            for number in range(3):
                threading.Timer(0.2, lambda: (since.append(time.monotonic()), bench.write(topic, batches.batch([b"wake"])))).start()
                drain(consumer, 1, 10)
                since[number] = (time.monotonic() - since[number]) * 1000
        finally:
            consumer.close()
        holds(f"woken {min(since):.0f} ms after the record was sent", min(since) < 100)
        consumer = adapter.consumer(bench.address, topic, {0: "earliest"}, wait_ms=1_000, min_bytes=1 << 20)
        try:
            began = time.monotonic()
            drain(consumer, 3, 10)
            took = time.monotonic() - began
        finally:
            consumer.close()
        holds(f"too few bytes for min bytes came after {took:.1f} s of 1 s", 0.8 < took < 4)
        return f"woken after {min(since):.1f} ms"

    @driver.check("many-partitions")
    def many(bench):
        count = 100
        topic = bench.topic("many", count)
        producer = adapter.producer(bench.address, linger_ms=20)
        for number in range(5):
            for partition in range(count):
                producer.send(topic, Row(b"%d/%d" % (partition, number)), partition)
        errors = [offset for offset in producer.flush() if not isinstance(offset, int)]
        producer.close()
        holds(f"not stored: {errors[:1]}", not errors)
        consumer = adapter.consumer(bench.address, topic, {partition: "earliest" for partition in range(count)})
        try:
            rows = drain(consumer, 5 * count, 30)
        finally:
            consumer.close()
        for partition in range(count):
            mine = [row.value for row in rows if row.value.startswith(b"%d/" % partition)]
            in_order(mine, [b"%d/%d" % (partition, number) for number in range(5)])


def install_records(driver, adapter):
    def round_trip(bench, topic, rows):
        """Sent by the client, read by it and without it."""
        send_all(adapter, bench, topic, rows, linger_ms=50)
        return ("the client's", read(adapter, bench, topic, len(rows))), ("the raw", bench.read(topic))

    @driver.check("headers")
    def headers(bench):
        sent = [("a", b"1"), ("b", b""), ("a", b"2"), ("null", None), ("a", b"1"), ("\u00fc", b"\xff\x00")]
        if not adapter.null_headers:
            sent = [header for header in sent if header[1] is not None]
        for who, rows in round_trip(bench, bench.topic("headers"), [Row(b"v", headers=sent), Row(b"w")]):
            found = [(name if isinstance(name, str) else name.decode(), content) for name, content in rows[0].headers]
            expect(f"headers of {who} record", found, sent)
            expect(f"headers of {who} record without", list(rows[1].headers), [])

    @driver.check("keys")
    def keys(bench):
        sent = [None, b"", b"key", bytes(range(256))]
        for who, rows in round_trip(bench, bench.topic("keys"), [Row(b"v", key) for key in sent]):
            expect(f"{who} keys", [row.key for row in rows], sent)

    @driver.check("tombstone")
    def tombstone(bench):
        sent = [None, b"", b"v"]
        for who, rows in round_trip(bench, bench.topic("tombstone"), [Row(value, b"k") for value in sent]):
            expect(f"{who} values", [row.value for row in rows], sent)

    @driver.check("timestamps")
    def timestamps(bench):
        sent = [1_700_000_000_123, 1, 1_700_000_000_000] if adapter.own_times else [None] * 3
        now = int(time.time() * 1000)
        for who, rows in round_trip(bench, bench.topic("times"), [Row(b"v", time=at) for at in sent]):
            if adapter.own_times:
                expect(f"{who} times", [row.time for row in rows], sent)
            holds(f"{who} time is not of now", adapter.own_times or all(abs(row.time - now) < 10_000 for row in rows))
        topic = bench.append_time_topic("append-time")
        for who, rows in round_trip(bench, topic, [Row(b"v", time=1 if adapter.own_times else None)]):
            holds(f"{who} append time is not of now", abs(rows[0].time - now) < 20_000)

    @driver.check("size-limit")
    def size_limit(bench):
        topic = bench.topic("size")
        limit = bench.limit(topic)
        # What a batch of one record takes beside the value: 61 bytes of batch, at most 20 of record.
        fits, large = b"f" * (limit - 90), b"l" * (limit + 1)
        send_all(adapter, bench, topic, [Row(fits)], size=2 * limit)
        producer = adapter.producer(bench.address, size=2 * limit)
        producer.send(topic, Row(large), 0)
        said = producer.flush()[0]
        producer.close()
        holds(f"answered {said} to a record above the limit", not isinstance(said, int) and adapter.too_large in said)
        rows = read(adapter, bench, topic, 1)
        expect("bytes read", len(rows[0].value), len(fits))
        with bench.connect() as connection:
            expect("end", wire.list_offset(connection, topic, -1)[2], 1)
        return f"limit {limit}"


def install_admin(driver, adapter):
    if not hasattr(adapter, "create"):
        return

    @driver.check("topics")
    def topics(bench):
        topic = bench.name("admin")
        expect("a topic that is not", adapter.describe(bench.address, topic), None)
        expect("create", adapter.create(bench.address, topic, 3, {}), None)
        expect("partitions", adapter.describe(bench.address, topic), 3)
        said = adapter.create(bench.address, topic, 3, {})
        holds(f"created again: {said}", said and "exist" in said.lower())
        expect("delete", adapter.delete(bench.address, topic), None)
        expect("a topic that was deleted", adapter.describe(bench.address, topic), None)
        said = adapter.delete(bench.address, topic)
        holds(f"deleted again: {said}", said and "unknown" in said.lower())

    @driver.check("configs")
    def configs(bench):
        topic = bench.name("configs")
        asked = {"message.timestamp.type": "LogAppendTime"}
        expect("create", adapter.create(bench.address, topic, 1, asked), None)
        bench.wait_for(topic, 1)
        told = adapter.configs(bench.address, topic)
        expect("settings", {key: told.get(key) for key in asked}, asked)
        smaller = bench.name("smaller")
        refusal = adapter.create(bench.address, smaller, 1, {"max.message.bytes": "200000"})
        if refusal:
            holds(f"max.message.bytes: {refusal}", "config" in refusal.lower())
        else:
            bench.wait_for(smaller, 1)
            expect("max.message.bytes", adapter.configs(bench.address, smaller).get("max.message.bytes"), "200000")
        holds("cleanup.policy is not told", told.get("cleanup.policy"))
        holds("settings of a topic that is not", adapter.configs(bench.address, bench.name("none")) is None)
        return f"max.message.bytes of a topic: {refusal or 'taken'}"

    @driver.check("partitions")
    def partitions(bench):
        topic = bench.topic("grow", 1)
        expect("more partitions", adapter.grow(bench.address, topic, 4), None)
        bench.wait_for(topic, 4)
        expect("partitions", adapter.describe(bench.address, topic), 4)
        send_all(adapter, bench, topic, [Row(b"last")], partition=3)
        expect("the record", read(adapter, bench, topic, 1, partition=3)[0].value, b"last")
        said = adapter.grow(bench.address, topic, 2)
        holds(f"fewer partitions: {said}", said)

    @driver.check("cluster")
    def cluster(bench):
        brokers, controller, name = adapter.cluster(bench.address)
        holds(f"brokers {brokers}", bench.address in brokers)
        holds(f"controller {controller}", controller is not None)
        holds("no cluster id", name)

    if hasattr(adapter, "delete_records"):
        @driver.check("delete-records")
        def delete_records(bench):
            topic = three_batches(bench)
            expect("delete up to 15", adapter.delete_records(bench.address, topic, 15), None)
            expect("ends", adapter.ends(bench.address, topic), (15, 30))
            rows = read(adapter, bench, topic, 15)
            expect("first record", rows[0].offset, 15)
