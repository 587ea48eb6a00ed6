#!/usr/bin/env python3
"""Rules of the wire, byte by byte, that a client library would hide: versions, times, limits, waiting, order, duplicates.

Cases KA-01, KA-03, KA-05, OR-03 and LD-06 name the steps; `checks.EXPLAINED` the checks.
"""

import random
import struct
import threading
import time

import batches
import wire
from checks import Driver, expect, holds, in_order, numbered

driver = Driver("raw socket")
BIG = 50 << 20


def compact(text):
    """A string of a version with tagged fields."""
    return bytes([len(text) + 1]) + text.encode()


@driver.check("versions")
def versions(bench):
    with bench.connect() as connection:
        code, ranges = wire.api_versions(connection)
        expect("ApiVersions v0", code, 0)
        low, high = ranges[wire.API_VERSIONS]
        holds("Produce must be told from 0 on, or old clients read the table wrongly", ranges[wire.PRODUCE][0] == 0)
        for version in range(low, min(high, 4) + 1):
            body = compact("compat") + compact("1") + b"\0" if version >= 3 else b""
            fields = connection.ask(wire.API_VERSIONS, version, body, flexible=version >= 3)
            expect(f"ApiVersions v{version}", fields.take("h"), 0)
            if version < 3:
                count = len(fields.array(lambda f: f.take("hhh")))
                if version:
                    fields.take("i")
                fields.end()
            else:
                count = fields.take("B") - 1
                entries = [(fields.take("hhh"), fields.take("B")) for _ in range(count)]
                holds("entries carry no tags", all(tags == 0 for _, tags in entries))
            expect(f"entries of v{version}", count, len(ranges))
        for version in (high + 1, 127):
            body = compact("compat") + compact("1") + b"\0"
            fields = connection.ask(wire.API_VERSIONS, version, body, flexible=True)
            expect(f"ApiVersions v{version}", wire.error(fields.take("h")), "UNSUPPORTED_VERSION")
            told = {api: (first, last) for api, first, last in fields.array(lambda f: f.take("hhh"))}
            fields.end()
            expect(f"the range of ApiVersions in the answer to v{version}", told.get(wire.API_VERSIONS), (low, high))
        expect("the connection afterwards", wire.api_versions(connection)[0], 0)
    return f"{len(ranges)} APIs"


def lookups(bench, topic, expected):
    """`expected`: asked time: (time, offset)."""
    with bench.connect() as connection:
        for asked, (at, offset) in expected.items():
            expect(f"time {asked}", wire.list_offset(connection, topic, asked), (0, at, offset))


NONE = (-1, -1)


def max_time(bench, topic):
    """The record of the highest time: (error, time, offset); ListOffsets v7 has tagged fields."""
    with bench.connect() as connection:
        partition = struct.pack(">iiq", 0, -1, -3) + b"\0"
        topics = b"\2" + compact(topic) + b"\2" + partition + b"\0"
        body = struct.pack(">ib", -1, 0) + topics + b"\0"
        fields = connection.ask(wire.LIST_OFFSETS, 7, body, flexible=True)
        fields.take("Bi"), fields.take("B"), fields.bytes(fields.take("B") - 1), fields.take("B")
        _, code, at, offset = fields.take("ihqq")
        return code, at, offset


@driver.check("lookup")
def lookup(bench):
    topic = bench.topic("times")
    with bench.connect() as connection:
        for at in (2, 4, 6, 8):
            expect("produce", wire.produce(connection, topic, batches.batch([b"%d" % at], [at]))[0], 0)
    expected = {0: (2, 0), 1: (2, 0), 2: (2, 0), 3: (4, 1), 4: (4, 1), 5: (6, 2), 6: (6, 2), 7: (8, 3), 8: (8, 3), 9: NONE, -1: (-1, 4), -2: (-1, 0)}
    lookups(bench, topic, expected)
    expect("highest time", max_time(bench, topic), (0, 8, 3))
    for codec in (batches.NONE, batches.GZIP, batches.ZSTD):
        topic = bench.topic("inside")
        with bench.connect() as connection:
            values = numbered(20)
            expect("produce", wire.produce(connection, topic, batches.batch(values, list(range(1, 21)), codec))[0], 0)
        lookups(bench, topic, {at: (at, at - 1) for at in range(1, 21)} | {0: (1, 0), 21: NONE})
    mixed = {5: (5, 0), 6: (9, 2), 10: NONE, -1: (-1, 4)}
    one, four = bench.topic("one-batch"), bench.topic("four-batches")
    with bench.connect() as connection:
        expect("produce", wire.produce(connection, one, batches.batch(numbered(4), [5, 1, 9, 3]))[0], 0)
        for at in (5, 1, 9, 3):
            expect("produce", wire.produce(connection, four, batches.batch([b"x"], [at]))[0], 0)
    for topic in (one, four):
        lookups(bench, topic, mixed)
        expect("highest time", max_time(bench, topic), (0, 9, 2))
    append_time(bench)
    empty = bench.topic("empty")
    lookups(bench, empty, {0: NONE, -1: (-1, 0), -2: (-1, 0)})


def append_time(bench):
    """The server's time counts, not the producer's."""
    topic = bench.append_time_topic("append-time")
    with bench.connect() as connection:
        before = int(time.time() * 1000)
        code, base, appended, _ = wire.produce(connection, topic, batches.batch(numbered(3), [1, 2, 3]))
        expect("produce", (code, base), (0, 0))
        holds(f"append time {appended} is not the time of day", abs(appended - before) < 5_000)
        expect("time 1", wire.list_offset(connection, topic, 1), (0, appended, 0))
        expect("after it", wire.list_offset(connection, topic, appended + 1), (0, -1, -1))
        rows = batches.records_of(wire.fetch(connection, [(topic, 0, 0, BIG)])[0][5])
        expect("times of the records", [row[1] for row in rows], [appended] * 3)


@driver.check("fetch-limits")
def fetch_limits(bench):
    topic = bench.topic("limits", 3, max_message_bytes=6 << 20)
    with bench.connect() as connection:
        small, large = batches.batch([b"s" * (126 << 10)]), batches.batch([b"l" * (512 << 10)])
        if bench.long:  # 5 MiB where the server takes it.
            large = batches.batch([b"l" * (min(5 << 20, bench.limit(topic)) - 100)])
        for partition in range(3):
            for records in (large, small) if partition == 0 else (small, small):
                expect("produce", wire.produce(connection, topic, records, partition)[0], 0)
        for limit, total in ((1, BIG), (1 << 10, BIG), (BIG, 1 << 10), (1, 1)):
            data = wire.fetch(connection, [(topic, 0, 0, limit)], max_bytes=total)[0][5]
            found = [(base, count) for base, _, count, _, _ in batches.headers_of(data)]
            holds(f"limits {limit} and {total}: no whole first batch", found and found[0][0] == 0)
            expect(f"batches within limits {limit} and {total}", len(found), 1)
        turns = []
        for number in range(9):
            order = [(topic, (number + step) % 3, 0, BIG) for step in range(3)]
            answers = wire.fetch(connection, order, max_bytes=1 << 10)
            filled = [partition for _, partition, _, _, _, data in answers if data]
            holds(f"{len(filled)} partitions have records within a limit below one batch", len(filled) == 1)
            turns += filled
        expect("partitions that had their turn", sorted(set(turns)), [0, 1, 2])
        records_null = [answer for answer in wire.fetch(connection, [(topic, 1, 2, BIG)], max_wait_ms=1) if answer[5] is None]
        holds("records of an empty answer are null, not empty", not records_null)


def waited(bench, topic, wait, minimum, after=None, offset=0):
    """Milliseconds a fetch took and its records; a record is written `after` ms."""
    with bench.connect() as connection, bench.connect() as writer:
        wire.api_versions(connection), wire.api_versions(writer)
        marks = []
        if after is not None:
            def write():
                time.sleep(after / 1000)
                marks.append(time.monotonic())
                wire.produce(writer, topic, batches.batch([b"wake"]))
            threading.Thread(target=write).start()
        began = time.monotonic()
        answer = wire.fetch(connection, [(topic, 0, offset, BIG)], max_wait_ms=wait, min_bytes=minimum)[0]
        ended = time.monotonic()
        return (ended - began) * 1000, (ended - marks[0]) * 1000 if marks else None, answer[5]


@driver.check("long-poll")
def long_poll(bench):
    topic = bench.topic("wait")
    took = min((waited(bench, topic, 500, 1)[0] for _ in range(3)), key=lambda ms: abs(ms - 500))
    holds(f"an empty fetch of 500 ms ended after {took:.0f} ms", 400 <= took <= 600)
    woken = []
    for offset in range(3):
        whole, since, data = waited(bench, topic, 3_000, 1, after=200, offset=offset)
        holds(f"the record did not end the wait ({whole:.0f} ms)", data and whole < 2_000)
        woken.append(since)
    holds(f"woken {min(woken):.0f} ms after the record was sent", min(woken) < 50)
    took, _, data = waited(bench, topic, 500, 1 << 20)
    holds("what is there comes at the end of the wait", data and 400 <= took <= 700)
    return f"empty {took:.0f} ms, woken after {min(woken):.1f} ms"


@driver.check("order-pipelined", seconds=400)
def order_pipelined(bench):
    """OR-03: requests in flight on one connection, of several kinds, to a topic just made; idempotence off."""
    for _ in range(20 if bench.long else 3):
        topic = bench.name("fresh")
        with bench.connect() as connection:
            expect("create", wire.create_topic(connection, topic), 0)
        sizes = [9, 1] * (1_000 if bench.long else 200)
        values = numbered(sum(sizes))
        with bench.connect() as connection:
            pipelined(connection, topic, sizes, values)
        with bench.connect() as connection:
            in_order([value for _, _, _, value, _ in everything(connection, topic)], values)


def everything(connection, topic, partition=0):
    """All records of a partition, not compressed."""
    rows, offset = [], 0
    while True:
        answer = wire.fetch(connection, [(topic, partition, offset, BIG)], max_wait_ms=100)[0]
        expect("fetch", answer[2], 0)
        data = answer[5]
        if not data:
            return rows
        rows += batches.records_of(data)
        offset = rows[-1][0] + 1


def pipelined(connection, topic, sizes, values):
    """Five requests at a time; now and then others among them. Answers come in the order of asking."""
    waiting, at = [], 0

    def take():
        kind, sent = waiting.pop(0)
        got, body = connection.receive()
        expect("correlation id", got, sent)
        if kind == wire.PRODUCE:
            expect("produce", wire.error(wire.produced(wire.Fields(body))[0]), "NONE")

    for number, size in enumerate(sizes):
        while len(waiting) >= 5:
            take()
        body = wire.produce_body(topic, 0, batches.batch(values[at:at + size]))
        waiting.append((wire.PRODUCE, connection.send(wire.PRODUCE, 7, body)))
        at += size
        if number % 7 == 3:
            waiting.append((wire.METADATA, connection.send(wire.METADATA, 4, wire.array([wire.string(topic)]) + b"\0")))
        if number % 11 == 5:
            waiting.append((wire.FETCH, connection.send(wire.FETCH, wire.FETCH_VERSION, wire.fetch_body([(topic, 0, 0, 1)], max_wait_ms=0))))
    while waiting:
        take()


@driver.check("duplicates")
def duplicates(bench):
    """The last five batches of a producer are known again, the sixth last is out of order; nothing is stored twice."""
    topic = bench.topic("again")
    with bench.connect() as connection:
        producer, epoch = wire.init_producer(connection)
        sent = [batches.batch(numbered(3, at), producer=producer, epoch=epoch, sequence=at) for at in range(0, 24, 3)]
        for number, records in enumerate(sent):
            code, base, _, _ = wire.produce(connection, topic, records)
            expect("produce", (wire.error(code), base), ("NONE", number * 3))
    resent(bench, topic, sent)
    words = "five known again"
    if bench.can_kill and bench.long:
        bench.kill()
        resent(bench, topic, sent)
        words += ", also after the server was killed"
    with bench.connect() as connection:
        following = batches.batch(numbered(1, 24), producer=producer, epoch=epoch, sequence=24)
        gap = batches.batch(numbered(1, 30), producer=producer, epoch=epoch, sequence=30)
        older = batches.batch(numbered(1, 25), producer=producer, epoch=epoch - 1 if epoch else -1, sequence=25)
        newer = batches.batch(numbered(1, 25), producer=producer, epoch=epoch + 1, sequence=0)
        stale = batches.batch(numbered(1, 26), producer=producer, epoch=epoch, sequence=25)
        expect("the next sequence", wire.produce(connection, topic, following)[:2], (0, 24))
        expect("a gap", wire.error(wire.produce(connection, topic, gap)[0]), "OUT_OF_ORDER_SEQUENCE_NUMBER")
        holds("an epoch below 0 was stored", wire.produce(connection, topic, older)[0] != 0)
        expect("a higher epoch, chosen by the client", wire.produce(connection, topic, newer)[:2], (0, 25))
        expect("the lower epoch after it", wire.error(wire.produce(connection, topic, stale)[0]), "INVALID_PRODUCER_EPOCH")
        expect("end of the log", wire.list_offset(connection, topic, -1)[2], 26)
    return words


def resent(bench, topic, sent):
    with bench.connect() as connection:
        for number in range(len(sent) - 5, len(sent)):
            code, base, _, _ = wire.produce(connection, topic, sent[number])
            expect(f"batch {number} again", (wire.error(code), base), ("NONE", number * 3))
        code = wire.produce(connection, topic, sent[-6])[0]
        expect("the sixth last again", wire.error(code), "OUT_OF_ORDER_SEQUENCE_NUMBER")
        expect("end of the log", wire.list_offset(connection, topic, -1)[2], len(sent) * 3)


@driver.check("bytes-kept")
def bytes_kept(bench):
    """Stored bytes are the producer's: only base offset and leader epoch, which the CRC leaves out, may differ."""
    topic = bench.topic("bytes")
    headers = [[(b"h", b"1"), (b"h", b"1"), (b"", b""), (b"n", None)], []]
    sent = [batches.batch([b"a", b"b"], [7, 8], codec, [None, b""], headers) for codec in (batches.NONE, batches.GZIP, batches.ZSTD)]
    with bench.connect() as connection:
        for records in sent:
            expect("produce", wire.produce(connection, topic, records)[0], 0)
        found = batches.headers_of(wire.fetch(connection, [(topic, 0, 0, BIG)])[0][5])
    expect("offsets", [head[:3] for head in found], [(0, 1, 2), (2, 3, 2), (4, 5, 2)])
    for number, (head, records) in enumerate(zip(found, sent)):
        holds(f"batch {number} differs", head[4][16:] == records[16:] and head[4][8:12] == records[8:12])


@driver.check("mid-batch")
def mid_batch(bench):
    """An offset inside a batch brings the whole batch; one beyond the end is out of range."""
    topic = bench.topic("middle")
    with bench.connect() as connection:
        expect("produce", wire.produce(connection, topic, batches.batch(numbered(10), codec=batches.GZIP))[0], 0)
        answer = wire.fetch(connection, [(topic, 0, 7, BIG)])[0]
        expect("the batch", [head[:3] for head in batches.headers_of(answer[5])], [(0, 9, 10)])
        expect("ends", answer[3:5], (10, 10))
        for offset in (11, -1):
            expect(f"offset {offset}", wire.error(wire.fetch(connection, [(topic, 0, offset, BIG)])[0][2]), "OFFSET_OUT_OF_RANGE")


@driver.check("acks-0")
def acks_none(bench):
    """No answer; an error closes the connection."""
    topic = bench.topic("acks")
    with bench.connect() as connection:
        connection.send(wire.PRODUCE, 7, wire.produce_body(topic, 0, batches.batch([b"a"]), acks=0))
        expect("the next answer", wire.api_versions(connection)[0], 0)
        until = time.monotonic() + 5
        while wire.list_offset(connection, topic, -1)[2] != 1:
            holds("the record is not stored after 5 s", time.monotonic() < until)
        connection.send(wire.PRODUCE, 7, wire.produce_body(topic, 99, batches.batch([b"a"]), acks=0))
        try:
            connection.ask(wire.API_VERSIONS, 0, b"")
        except wire.Closed:
            return
    holds("the connection is open after an error that cannot be told", False)


@driver.check("many-partitions")
def many_partitions(bench):
    """One request with batches for 100 partitions, one fetch of all; a small total limit lets none starve when the order rotates."""
    count = 100
    topic = bench.topic("many", count)
    rows = [struct.pack(">i", index) + wire.blob(batches.batch([b"%d" % index] * 3)) for index in range(count)]
    with bench.connect() as connection:
        body = wire.string(None) + struct.pack(">hi", -1, 30_000) + wire.array([wire.string(topic) + wire.array(rows)])
        fields = connection.ask(wire.PRODUCE, 7, body)
        codes = fields.array(lambda f: (f.string(), f.array(lambda g: g.take("ihqqq")[1])))[0][1]
        expect("produce", codes, [0] * count)
        left = list(range(count))
        random.Random(1).shuffle(left)
        rounds = 0
        while left:
            rounds += 1
            holds(f"{len(left)} partitions starve", rounds <= count)
            answers = wire.fetch(connection, [(topic, index, 0, 1 << 20) for index in left], max_bytes=2_000)
            got = [index for _, index, _, _, _, data in answers if data]
            left = [index for index in left if index not in got]
    return f"{rounds} fetches of 2,000 bytes"


driver.main()
