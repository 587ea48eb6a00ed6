#!/usr/bin/env python3
"""Input that no client should send: the server answers with the right error or closes the connection, lives on, and keeps its memory.

After each check a good client must be served within two seconds; with --pid the server's memory may grow by `ROOM` and no more.
"""

import gzip
import random
import resource
import socket
import struct
import time

import batches
import wire
from checks import Driver, NotRun, Refused, expect, holds

driver = Driver("bad input")
# Bytes by which the server may grow over all of one check.
ROOM = 256 << 20
GIB = 1 << 30


def memory(bench):
    """Resident bytes of the server, or `None`."""
    if not bench.pid:
        return None
    with open(f"/proc/{bench.pid}/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS:"))


def check(name, **how):
    """A check after which the server must live and be no larger."""
    def add(function):
        def guarded(bench):
            before, canary = memory(bench), bench.topic("canary")
            words = function(bench)
            began = time.monotonic()
            with bench.connect(timeout=10) as connection:
                expect("a good client afterwards", wire.produce(connection, canary, batches.batch([b"alive"]))[:2], (0, 0))
            took = time.monotonic() - began
            holds(f"a good client waits {took:.1f} s", took < 2)
            if before is None:
                return words
            grown = memory(bench) - before
            holds(f"the server grew by {grown >> 20} MiB", grown < ROOM)
            return f"{words + ', ' if words else ''}memory {before >> 20} MiB {grown / (1 << 20):+.0f}"
        driver.check(name, **how)(guarded)
        return function
    return add


def closed(bench, data, seconds=5.0):
    """Sends bytes; true when the server closes, the answer's bytes when it answers."""
    with bench.connect(timeout=seconds) as connection:
        try:
            connection.raw(data)
            return connection.receive()[1]
        except wire.Closed:
            return True
        except TimeoutError:
            return False


def frame(api, version, body, flexible=False):
    head = struct.pack(">hhi", api, version, 7) + wire.string("bad") + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def refused(bench, what, data, codes=()):
    """Closed, or answered with one of these codes anywhere in the answer's first bytes."""
    said = closed(bench, data)
    if said is True:
        return
    holds(f"{what}: no answer and not closed", said is not False)
    holds(f"{what}: answered {said[:24].hex()}", any(struct.pack(">h", code) in said[:64] for code in codes))


@check("unknown-apis")
def unknown_apis(bench):
    for api, version in ((999, 0), (-1, 0), (32_767, 3), (4, 0), (5, 0), (6, 0), (7, 0)):
        refused(bench, f"api {api}", frame(api, version, b"\0" * 32), [35])
    with bench.connect() as connection:
        _, ranges = wire.api_versions(connection)
    for api, (low, high) in sorted(ranges.items()):
        if api == wire.API_VERSIONS:
            continue
        for version in {low - 1, high + 1, -1, 32_767}:
            refused(bench, f"api {api} v{version}", frame(api, version, b"\0" * 32), [35])
    for version in range(3):
        refused(bench, f"Produce v{version}", frame(wire.PRODUCE, version, b"\0" * 32), [35])


@check("frame-lengths")
def frame_lengths(bench):
    for length in (-1, -(1 << 31), (1 << 31) - 1, 1 << 30, (100 << 20) + 1):
        expect(f"a frame of {length} bytes is refused by closing", closed(bench, struct.pack(">i", length) + b"\0" * 16), True)
    for length in (0, 1, 3, 7):
        # Eight bytes follow, so that a server which waits for a head has it.
        expect(f"a frame of {length} bytes is refused by closing", closed(bench, struct.pack(">i", length) + b"\0" * 8), True)
    for hello in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64):
        expect(f"{hello[:5]} is refused by closing", closed(bench, hello), True)


@check("frames-promised")
def frames_promised(bench):
    """Long frames are promised and not sent: memory is not taken for a promise."""
    if not bench.pid:
        raise NotRun("needs --node or --pid")
    before, opened = memory(bench), []
    for number in range(20):
        connection = bench.connect()
        api = wire.METADATA if number % 2 else wire.PRODUCE
        connection.raw(struct.pack(">ihhih", 50 << 20, api, 7, 1, 1) + b"x" + b"\0" * 1_000)
        opened.append(connection)
    time.sleep(1)
    grown = memory(bench) - before
    for connection in opened:
        connection.close()
    holds(f"the server took {grown >> 20} MiB for 20 promises of 50 MiB", grown < ROOM)


HUGE = struct.pack(">i", (1 << 31) - 1)


@check("array-counts")
def array_counts(bench):
    """Counts and lengths that the frame cannot hold."""
    topic = wire.string("t")
    some = {
        "Metadata topics": (wire.METADATA, 4, HUGE),
        "Metadata v9 topics": (wire.METADATA, 9, b"\xff\xff\xff\xff\x0f"),
        "Metadata name": (wire.METADATA, 4, struct.pack(">ih", 1, 32_767) + b"ab"),
        "Metadata negative name": (wire.METADATA, 4, struct.pack(">ih", 1, -2)),
        "Produce topics": (wire.PRODUCE, 7, wire.string(None) + struct.pack(">hi", -1, 1_000) + HUGE),
        "Produce partitions": (wire.PRODUCE, 7, wire.string(None) + struct.pack(">hii", -1, 1_000, 1) + topic + HUGE),
        "Produce records": (wire.PRODUCE, 7, wire.string(None) + struct.pack(">hii", -1, 1_000, 1) + topic + struct.pack(">iii", 1, 0, (1 << 31) - 1)),
        "Produce v9 records": (wire.PRODUCE, 9, b"\0" + struct.pack(">hi", -1, 1_000) + b"\2\2t\2\0\0\0\0\xff\xff\xff\xff\x0f"),
        "Fetch topics": (wire.FETCH, 4, struct.pack(">iiiib", -1, 0, 0, 1, 0) + HUGE),
        "Fetch partitions": (wire.FETCH, 4, struct.pack(">iiiibi", -1, 0, 0, 1, 0, 1) + topic + HUGE),
        "Fetch forgotten": (wire.FETCH, 7, struct.pack(">iiiibiii", -1, 0, 0, 1, 0, 0, -1, 0) + HUGE),
        "Fetch v12 topics": (wire.FETCH, 12, struct.pack(">iiiibii", -1, 0, 0, 1, 0, 0, -1) + b"\xff\xff\xff\xff\x0f"),
        "ListOffsets topics": (wire.LIST_OFFSETS, 2, struct.pack(">ib", -1, 0) + HUGE),
        "ListOffsets partitions": (wire.LIST_OFFSETS, 2, struct.pack(">ibi", -1, 0, 1) + topic + HUGE),
        "CreateTopics topics": (wire.CREATE_TOPICS, 4, HUGE),
        "CreateTopics assignments": (wire.CREATE_TOPICS, 4, struct.pack(">i", 1) + topic + struct.pack(">ih", 1, 1) + HUGE),
        "DeleteTopics names": (wire.DELETE_TOPICS, 1, HUGE),
        "DescribeConfigs resources": (wire.DESCRIBE_CONFIGS, 1, HUGE),
        "DescribeConfigs keys": (wire.DESCRIBE_CONFIGS, 1, struct.pack(">ib", 1, 2) + topic + HUGE),
        "CreatePartitions topics": (wire.CREATE_PARTITIONS, 1, HUGE),
        "DeleteRecords topics": (wire.DELETE_RECORDS, 1, HUGE),
        "tagged fields": (wire.METADATA, 9, b"\1\0\0\0\xff\xff\xff\xff\x0f"),
    }
    for what, (api, version, body) in some.items():
        flexible = (api, version) in ((wire.METADATA, 9), (wire.PRODUCE, 9), (wire.FETCH, 12))
        refused(bench, what, frame(api, version, body, flexible), [42, 2, 87])
    long_client = struct.pack(">hhih", wire.METADATA, 4, 1, 32_767) + b"abc"
    expect("a client id longer than the frame", closed(bench, struct.pack(">i", len(long_client)) + long_client), True)


def produced(bench, topic, records, acks=-1):
    """The error's name; `closed` when the server closed."""
    with bench.connect(timeout=5) as connection:
        try:
            return wire.error(wire.produce(connection, topic, records, acks=acks)[0])
        except wire.Closed:
            return "closed"
        except TimeoutError:
            return "no answer"


@check("batches-that-lie")
def lying_batches(bench):
    topic = bench.topic("lies")
    good = batches.batch([b"a", b"b"])
    rows = good[61:]

    def header(at, layout, value, reseal=True):
        data = bytearray(good)
        struct.pack_into(layout, data, at, value)
        if reseal:
            struct.pack_into(">I", data, 17, batches.crc32c(data[21:]))
        return bytes(data)

    invalid = {"INVALID_RECORD", "CORRUPT_MESSAGE", "closed", "INVALID_REQUEST", "UNSUPPORTED_FOR_MESSAGE_FORMAT"}
    cases = {
        "a wrong CRC": (header(17, ">I", 1, False), {"CORRUPT_MESSAGE"}),
        "a flipped bit in a record": (good[:-3] + bytes([good[-3] ^ 1]) + good[-2:], {"CORRUPT_MESSAGE"}),
        "magic 0": (header(16, ">b", 0), invalid),
        "magic 1": (header(16, ">b", 1), invalid),
        "magic 3": (header(16, ">b", 3), invalid),
        "more records told than there are offsets": (header(57, ">i", 3), invalid),
        "a last offset too high": (header(23, ">i", 9), invalid),
        "a negative count": (header(57, ">i", -1), invalid),
        "a count of 2^31-1": (batches.sealed(rows, (1 << 31) - 1), invalid),
        "no records": (batches.sealed(b"", 0), invalid),
        "a length beyond the bytes": (header(8, ">i", 1_000, False), invalid),
        "a length below the header": (header(8, ">i", 20, False), invalid),
        "a negative length": (header(8, ">i", -5, False), invalid),
        "half a batch": (good[:30], invalid),
        "two batches": (good + good, invalid),
        "a control batch": (batches.sealed(rows, 2, attributes=0x20), invalid),
        "codec 7": (batches.sealed(rows, 2, attributes=7), invalid | {"UNSUPPORTED_COMPRESSION_TYPE", "UNKNOWN_SERVER_ERROR"}),
        "a producer without a sequence": (batches.sealed(rows, 2, producer=5, epoch=0, sequence=-1), invalid),
        "empty bytes": (b"", invalid),
    }
    wrong = []
    for what, (records, allowed) in cases.items():
        said = produced(bench, topic, records)
        if said not in allowed:
            wrong.append(f"{what}: {said}")
    expect("acks of 5", produced(bench, topic, good, 5), "INVALID_REQUIRED_ACKS")
    with bench.connect() as connection:
        end = wire.list_offset(connection, topic, -1)[2]
    holds(f"{'; '.join(wrong)}; end {end}", not wrong)
    expect("records stored", end, 0)
    return f"{len(cases)} batches"


@check("batches-kafka-takes")
def batches_kafka_takes(bench):
    """What Apache Kafka 4.4 stores, or leaves without an answer: refused or closed here."""
    topic = bench.topic("strict")
    good = batches.batch([b"a", b"b"])
    cases = {
        "bytes after the batch": good + b"\0\0\0",
        "a producer without an epoch": batches.sealed(good[61:], 2, producer=5, epoch=-1, sequence=0),
        "null bytes": None,
    }
    said = {what: produced(bench, topic, records) for what, records in cases.items()}
    wrong = [f"{what}: {word}" for what, word in said.items() if word in ("NONE", "no answer")]
    holds("; ".join(wrong), not wrong)


def bomb(codec):
    """A valid batch of one record with a value of 1 GiB of zeros, and one that says so of a second record's time."""
    size = GIB
    value_length = batches.varint(size)
    body_length = 1 + 1 + 1 + 1 + len(value_length) + size + 1
    front = batches.varint(body_length) + b"\0" + batches.varint(0) + batches.varint(0) + batches.varint(-1) + value_length
    back = batches.varint(0)
    if codec == batches.ZSTD:
        packed = batches.zstd_frame([(front, 1)] + [(b"\0", 131_072)] * (size // 131_072) + [(back, 1)])
    else:
        packed = gzip.compress(front) + gzip.compress(b"\0" * (1 << 24), 9) * (size >> 24) + gzip.compress(back)
    return batches.sealed(packed, 1, codec, 1_000, 2_000)


@check("bombs", seconds=240)
def bombs(bench):
    """A gigabyte of zeros in one batch: stored or refused, looked into for a time, fetched."""
    words = []
    for name, codec in (("gzip", batches.GZIP), ("zstd", batches.ZSTD)):
        records = bomb(codec)
        topic = bench.topic("bomb")
        with bench.connect(timeout=60) as connection:
            code = wire.produce(connection, topic, records)[0]
            looked = wire.list_offset(connection, topic, 1_500)
            words.append(f"{name} of {len(records)} bytes: {wire.error(code)}, looked up: {wire.error(looked[0])}")
            if code == 0:
                answer = wire.fetch(connection, [(topic, 0, 0, 8 << 20)])[0]
                expect("the fetched batch", batches.headers_of(answer[5])[0][4][61:] == records[61:], True)
    return "; ".join(words)


@check("names")
def names(bench):
    with bench.connect() as connection:
        wrong = []
        for name in ("", ".", "..", "a b", "a/b", "\u00fc", "x" * 250, "a\0b"):
            code = wire.create_topic(connection, name)
            if wire.error(code) != "INVALID_TOPIC_EXCEPTION":
                wrong.append(f"{name[:9]!r}: {wire.error(code)}")
        holds("; ".join(wrong), not wrong)
        for count in (0, -2, 1 << 30):
            code = wire.create_topic(connection, bench.name("count"), count)
            holds(f"{count} partitions: {wire.error(code)}", code != 0)
        code = wire.create_topic(connection, bench.name("setting"), 1, {"no.such.setting": "1"})
        expect("a setting that is not", wire.error(code), "INVALID_CONFIG")
        code = wire.produce(connection, bench.topic("one"), batches.batch([b"x"]), 77)[0]
        expect("a partition that is not", wire.error(code), "UNKNOWN_TOPIC_OR_PARTITION")


@check("half-frames")
def half_frames(bench):
    """Frames cut at every byte, then closed; many left open."""
    data = frame(wire.PRODUCE, 7, wire.produce_body(bench.topic("half"), 0, batches.batch([b"x"])))
    for cut in range(1, len(data), 3):
        with bench.connect() as connection:
            connection.raw(data[:cut])
    opened = []
    for number in range(200):
        connection = bench.connect()
        connection.raw(data[:1 + number % (len(data) - 1)])
        opened.append(connection)
    with bench.connect() as connection:
        expect("a good client meanwhile", wire.api_versions(connection)[0], 0)
    for connection in opened:
        connection.close()


@check("never-reads", seconds=120)
def never_reads(bench):
    """Twenty clients ask for a thousand fetches of 1 MiB each and read nothing."""
    topic = bench.topic("unread")
    with bench.connect() as connection:
        for _ in range(8):
            expect("produce", wire.produce(connection, topic, batches.batch([b"u" * 900_000]))[0], 0)
    before, opened = memory(bench), []
    asked = 0
    for _ in range(20):
        connection = bench.connect(receive_buffer=4_096, timeout=0.5)
        opened.append(connection)
        try:
            for _ in range(1_000):
                connection.send(wire.FETCH, wire.FETCH_VERSION, wire.fetch_body([(topic, 0, 0, 8 << 20)]))
                asked += 1
        except (TimeoutError, wire.Closed):
            pass  # The server stopped reading, as it should.
    worst = 0.0
    grown = 0
    for _ in range(20):
        began = time.monotonic()
        with bench.connect(timeout=20) as connection:
            expect("a good client meanwhile", wire.produce(connection, topic, batches.batch([b"x"]))[0], 0)
        worst = max(worst, time.monotonic() - began)
        grown = max(grown, memory(bench) - before) if before else 0
        time.sleep(0.1)
    for connection in opened:
        connection.close()
    holds(f"a good client waited {worst:.1f} s", worst < 2)
    holds(f"the server grew by {grown >> 20} MiB", grown < ROOM)
    return f"{asked} fetches asked, a good client waited {worst * 1000:.0f} ms at most, the server grew by {grown >> 20} MiB"


@check("idle-connections", seconds=240)
def idle_connections(bench):
    wanted = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + 100:
        if hard != resource.RLIM_INFINITY and hard < wanted + 100:
            raise NotRun(f"needs {wanted + 100} open files, the limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + 100, hard))
    host, port = wire.split(bench.address)
    before, opened = memory(bench), []
    began = time.monotonic()
    try:
        for number in range(wanted):
            connection = socket.create_connection((host, port), 10)
            if number % 2:
                connection.sendall(frame(wire.API_VERSIONS, 0, b""))
            opened.append(connection)
        answers = 0
        for connection in opened[1::2]:
            connection.settimeout(20)
            answers += len(connection.recv(4)) == 4
        took = time.monotonic() - began
        expect("answers", answers, wanted // 2)
        began = time.monotonic()
        with bench.connect() as connection:
            expect("a good client meanwhile", wire.api_versions(connection)[0], 0)
        waited = time.monotonic() - began
        each = f", {(memory(bench) - before) // wanted} bytes of memory each" if before else ""
    except OSError as said:
        raise Refused(f"after {len(opened)} connections: {said}") from None
    finally:
        for connection in opened:
            connection.close()
    holds(f"a good client waited {waited:.1f} s", waited < 1)
    return f"{wanted} connections in {took:.1f} s{each}"


@check("garbage", seconds=300)
def garbage(bench):
    """Random bodies behind good heads, for every version told; any answer will do, but the server must live."""
    dice = random.Random(4)
    with bench.connect() as connection:
        _, ranges = wire.api_versions(connection)
    frames = silent = 0
    for api, (low, high) in sorted(ranges.items()):
        if api not in (0, 1, 2, 3, 18, 19, 20, 21, 22, 23, 32, 37, 60):
            continue  # What a controller or another broker asks is not ours to try here.
        for version in range(low, high + 1):
            for _ in range(30 if bench.long else 4):
                small = bytes(dice.choice((0, 0, 0, 1, 2, 0xFF, dice.getrandbits(8))) for _ in range(dice.randrange(0, 120)))
                with bench.connect(timeout=0.3) as connection:
                    frames += 1
                    try:
                        connection.raw(frame(api, version, small, flexible=dice.random() < 0.5))
                        connection.receive()
                    except wire.Closed:
                        pass
                    except TimeoutError:
                        silent += 1
    return f"{frames} frames, {silent} without an answer in 0.3 s"


driver.main()
