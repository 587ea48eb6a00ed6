#!/usr/bin/env python3
"""kcat, with Debian's librdkafka: an old client, which asks for old versions. One process per action; records are compared as it prints them."""

import json
import re
import subprocess
import time

import batches
import wire
from checks import Driver, expect, holds, in_order, numbered


def kcat(bench, *arguments, feed=b"", seconds=30, check=True):
    """Runs it; (exit code, output, what it said)."""
    done = subprocess.run(
        ["kcat", "-b", bench.address, *map(str, arguments)], input=feed, capture_output=True, timeout=seconds)
    if check:
        holds(f"kcat {arguments[0]} ended with {done.returncode}: {done.stderr.decode()[-200:]}", done.returncode == 0)
    return done.returncode, done.stdout, done.stderr.decode()


def produce(bench, topic, values, *arguments, partition=0, **how):
    """One record per line."""
    return kcat(bench, "-P", "-t", topic, "-p", partition, *arguments, feed=b"".join(value + b"\n" for value in values), **how)


def consume(bench, topic, *arguments, start="beginning", partition=0):
    """Records up to the end as kcat's JSON objects."""
    _, out, _ = kcat(bench, "-C", "-q", "-e", "-J", "-t", topic, "-p", partition, "-o", start, *arguments)
    return [json.loads(line) for line in out.splitlines()]


def payloads(rows):
    return [row["payload"].encode() for row in rows]


def version():
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True)
    found = re.search(r"Version ([\d.]+).*librdkafka ([\d.]+)", said.stdout + said.stderr)
    return f"kcat {found[1]} (librdkafka {found[2]})"


driver = Driver(version())


def stored(bench, codec, idempotent):
    topic = bench.topic("produce")
    values = numbered(500, size=100)
    settings = ["-z", codec, "-X", f"enable.idempotence={idempotent}", "-X", "linger.ms=50"]
    produce(bench, topic, values, *settings)
    rows = consume(bench, topic)
    in_order(payloads(rows), values)
    expect("offsets", [row["offset"] for row in rows], list(range(500)))
    with bench.connect() as connection:
        found = batches.headers_of(wire.fetch(connection, [(topic, 0, 0, 50 << 20)])[0][5])
    expect("codec of the stored batches", {head[3] & 7 for head in found}, {["none", "gzip", "snappy", "lz4", "zstd"].index(codec)})


for each in ("none", "gzip", "snappy", "lz4", "zstd"):
    driver.check(f"produce-{each}")(lambda bench, codec=each: stored(bench, codec, "false"))
for each in ("none", "gzip", "snappy", "lz4", "zstd"):
    driver.check(f"idempotent-{each}")(lambda bench, codec=each: stored(bench, codec, "true"))


@driver.check("acks-0", "acks-1")
def acks(bench, name):
    topic = bench.topic("acks")
    produce(bench, topic, [b"value"], "-X", f"acks={name[-1]}")
    expect("the record", payloads(consume(bench, topic)), [b"value"])


def three_batches(bench):
    topic = bench.topic("consume")
    for first in (0, 10, 20):
        bench.write(topic, batches.batch(numbered(10, first), list(range(1000 + first, 1010 + first)), batches.GZIP))
    return topic


@driver.check("consume-earliest", "consume-offset", "mid-batch", "consume-time")
def places(bench, name):
    start, first = {
        "consume-earliest": ("beginning", 0), "consume-offset": (10, 10), "mid-batch": (17, 17), "consume-time": ("s@1013", 13),
    }[name]
    rows = consume(bench, three_batches(bench), start=start)
    expect("offsets", [row["offset"] for row in rows], list(range(first, 30)))
    expect("values", payloads(rows), numbered(30 - first, first))
    expect("times", [row["ts"] for row in rows], list(range(1000 + first, 1030)))


@driver.check("consume-latest")
def latest(bench):
    topic = three_batches(bench)
    process = subprocess.Popen(["kcat", "-b", bench.address, "-C", "-q", "-J", "-u", "-c", "1", "-t", topic, "-p", "0", "-o", "end"], stdout=subprocess.PIPE)
    try:
        time.sleep(2)
        bench.write(topic, batches.batch([b"new"]))
        row = json.loads(process.communicate(timeout=20)[0])
    finally:
        process.kill()
    expect("offset and value", (row["offset"], row["payload"]), (30, "new"))


@driver.check("lookup")
def lookup(bench):
    topic = bench.topic("lookup")
    bench.write(topic, batches.batch(numbered(20), list(range(1, 21)), batches.ZSTD))
    for asked, expected in {0: 0, 1: 0, 7: 6, 20: 19, 21: -1, -2: 0, -1: 20}.items():
        _, out, _ = kcat(bench, "-Q", "-t", f"{topic}:0:{asked}")
        expect(f"answer for {asked}", out.decode().split()[-1], str(expected))


@driver.check("end")
def end(bench):
    topic = three_batches(bench)
    _, _, said = kcat(bench, "-C", "-e", "-t", topic, "-p", 0, "-o", "beginning")
    holds(f"the end is not told: {said}", "Reached end" in said and "offset 30" in said)


@driver.check("fetch-limits")
def limits(bench):
    topic = bench.topic("limits", 3, max_message_bytes=6 << 20)
    value = b"v" * (126 << 10)
    for partition in range(3):
        for count in (6, 1) if partition == 0 else (1, 1):
            bench.write(topic, batches.batch([value] * count), partition)
    settings = ["-X", "max.partition.fetch.bytes=1024", "-X", "fetch.max.bytes=1024", "-X", "message.max.bytes=1000"]
    _, out, _ = kcat(bench, "-C", "-q", "-e", "-t", topic, "-o", "beginning", "-f", "%p %S\n", *settings)
    found = sorted(out.decode().split("\n")[:-1])
    expect("records", found, sorted([f"0 {len(value)}"] * 7 + [f"1 {len(value)}"] * 2 + [f"2 {len(value)}"] * 2))


@driver.check("many-partitions")
def many(bench):
    count = 100
    topic = bench.topic("many", count)
    values = numbered(1_000)
    # Keyed, so that all partitions get some and each key is found in its own.
    kcat(bench, "-P", "-t", topic, "-K", ":", feed=b"".join(b"%s:%s\n" % (value[-3:], value) for value in values))
    _, out, _ = kcat(bench, "-C", "-q", "-e", "-t", topic, "-o", "beginning", "-f", "%s\n")
    in_order(sorted(out.split()), values)


@driver.check("headers")
def headers(bench):
    topic = bench.topic("headers")
    produce(bench, topic, [b"v"], "-H", "a=1", "-H", "b=", "-H", "a=2", "-H", "null", "-H", "a=1")
    sent = ["a", "1", "b", "", "a", "2", "null", None, "a", "1"]
    expect("headers", consume(bench, topic)[0]["headers"], sent)
    raw = [(name.decode(), None if content is None else content.decode()) for name, content in bench.read(topic)[0].headers]
    expect("the raw headers", raw, list(zip(sent[::2], sent[1::2])))


@driver.check("keys")
def keys(bench):
    topic = bench.topic("keys")
    produce(bench, topic, [b"v"])
    produce(bench, topic, [b":v", b"key:v"], "-K", ":")
    expect("keys", [row["key"] for row in consume(bench, topic)], [None, "", "key"])
    expect("the raw keys", [row.key for row in bench.read(topic)], [None, b"", b"key"])


@driver.check("tombstone")
def tombstone(bench):
    topic = bench.topic("tombstone")
    produce(bench, topic, [b"k:"], "-K", ":", "-Z")
    produce(bench, topic, [b"k:", b"k:v"], "-K", ":")
    expect("values", [row["payload"] for row in consume(bench, topic)], [None, "", "v"])
    expect("the raw values", [row.value for row in bench.read(topic)], [None, b"", b"v"])


@driver.check("timestamps")
def timestamps(bench):
    now = int(time.time() * 1000)
    for topic, kind in ((bench.topic("times"), "create"), (bench.append_time_topic("append-time"), "logappend")):
        produce(bench, topic, [b"v"])
        row = consume(bench, topic)[0]
        expect("kind of time", row["tstype"], kind)
        holds("the time is not of now", abs(row["ts"] - now) < 20_000)


@driver.check("size-limit")
def size_limit(bench):
    topic = bench.topic("size")
    limit = bench.limit(topic)
    room = ["-X", f"message.max.bytes={2 * limit}"]
    produce(bench, topic, [b"f" * (limit - 90)], *room)
    code, _, said = produce(bench, topic, [b"l" * (limit + 1)], *room, check=False)
    holds(f"exit code {code}: {said}", code and "Message size too large" in said)
    expect("sizes stored", [len(value) for value in payloads(consume(bench, topic))], [limit - 90])
    return f"limit {limit}"


@driver.check("cluster")
def cluster(bench):
    topic = bench.topic("list", 3)
    found = json.loads(kcat(bench, "-L", "-J")[1])
    holds(f"brokers {found['brokers']}", bench.address in [broker["name"] for broker in found["brokers"]])
    holds("no controller", found["controllerid"] in [broker["id"] for broker in found["brokers"]])
    partitions = [len(row["partitions"]) for row in found["topics"] if row["topic"] == topic]
    expect("partitions", partitions, [3])


@driver.check("group")
def group(bench):
    topic = bench.topic("group")
    produce(bench, topic, [b"first", b"second"])
    name = bench.name("group")
    # The first consumer of the group reads one and commits it as it ends; the next one goes on behind it.
    for expected in ("first", "second"):
        code, out, said = kcat(bench, "-G", name, "-X", "auto.offset.reset=earliest", "-c", "1", topic, check=False)
        holds(f"exit code {code}: {said}", code == 0 and expected in str(out))


@driver.check("auto-create")
def auto_create(bench):
    topic = bench.name("auto")
    produce(bench, topic, [b"first"], partition=-1)
    expect("the record", payloads(consume(bench, topic)), [b"first"])


if __name__ == "__main__":
    driver.main()
