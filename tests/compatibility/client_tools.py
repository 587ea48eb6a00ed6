#!/usr/bin/env python3
"""Kafka's own tools: console producer, topics, configs, producer-perf-test, and small ones beside them. Each call is a process.

COMPATIBILITY_JARS names the folder with the jars. The console consumer is asked for one partition, which it then assigns itself; without
`--partition` it joins a group.
"""

import json
import os
import re
import subprocess
import tempfile
import time

import batches
from checks import Driver, expect, holds, in_order, numbered
from damage import LOST, damaged

JARS = os.environ["COMPATIBILITY_JARS"]
VERSION = next(name for name in os.listdir(JARS) if re.fullmatch(r"kafka-tools-\d.*", name)).removeprefix("kafka-tools-").removesuffix(".jar")
driver = Driver(f"Kafka's tools {VERSION}")


def tool(bench, main, *arguments, feed=b"", seconds=40, check=True):
    """What it printed."""
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", f"org.apache.kafka.tools.{main}"]
    done = subprocess.run(
        [*command, *map(str, arguments), "--bootstrap-server", bench.address], input=feed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=seconds)
    out = "".join(line + "\n" for line in done.stdout.decode().splitlines() if not line.startswith("SLF4J"))
    if check:
        holds(f"{main} ended with {done.returncode}: {out[-300:]}", done.returncode == 0)
    return out


def console(bench, topic, count, *shown):
    """Records that the console consumer prints, one per line."""
    properties = [word for name in shown for word in ("--formatter-property", name)]
    out = tool(bench, "consumer.ConsoleConsumer", "--topic", topic, "--partition", 0, "--offset", "earliest", "--max-messages", count,
               "--timeout-ms", 20_000, *properties)
    return [line for line in out.splitlines() if not line.startswith("Processed a total")]


def console_produce(bench, name):
    topic = bench.topic("console")
    values = numbered(500, size=100)
    kind, codec = name.split("-")
    settings = ["--command-property", f"enable.idempotence={str(kind == 'idempotent').lower()}", "--compression-codec", codec]
    tool(bench, "ConsoleProducer", "--topic", topic, *settings, feed=b"".join(value + b"\n" for value in values))
    in_order([line.encode() for line in console(bench, topic, 500)], values)


for each in ("none", "gzip", "snappy", "lz4", "zstd"):
    driver.check(f"produce-{each}", long=each not in ("none", "zstd"))(lambda bench, name=f"produce-{each}": console_produce(bench, name))
for each in ("none", "gzip", "snappy", "lz4", "zstd"):
    driver.check(f"idempotent-{each}", long=each not in ("none", "lz4"))(lambda bench, name=f"idempotent-{each}": console_produce(bench, name))


@driver.check("headers", "keys", "tombstone")
def records(bench, name):
    """One record of the console producer has it all; three names, so that the table tells."""
    topic = bench.topic("records")
    settings = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    words = [word for each in settings for word in ("--reader-property", each)]
    feed = b"a:1,b:,a:2\tkey\tvalue\nNULL\tNULL\tvalue\nc:3\tgone\tNULL\n"
    tool(bench, "ConsoleProducer", "--topic", topic, *words, feed=feed)
    rows = bench.read(topic)
    if name == "headers":
        expect("headers", [row.headers for row in rows], [[(b"a", b"1"), (b"b", b""), (b"a", b"2")], [], [(b"c", b"3")]])
        shown = console(bench, topic, 3, "print.headers=true", "print.key=true", "null.literal=NULL")
        expect("printed", shown, ["a:1,b:,a:2\tkey\tvalue", "NO_HEADERS\tNULL\tvalue", "c:3\tgone\tNULL"])
    expect("keys and values", [(row.key, row.value) for row in rows], [(b"key", b"value"), (None, b"value"), (b"gone", None)])


@driver.check("consume-earliest", "mid-batch")
def consume(bench, name):
    topic = bench.topic("consume")
    bench.write(topic, batches.batch(numbered(10), list(range(1_000, 1_010)), batches.GZIP))
    start = 0 if name == "consume-earliest" else 7
    out = tool(bench, "consumer.ConsoleConsumer", "--topic", topic, "--partition", 0, "--offset", start or "earliest", "--max-messages", 10 - start,
               "--timeout-ms", 20_000, "--formatter-property", "print.timestamp=true", "--formatter-property", "print.offset=true")
    expected = [f"CreateTime:{1_000 + number}\tOffset:{number}\t{number:08d}" for number in range(start, 10)]
    expect("records", [line for line in out.splitlines() if line.startswith("CreateTime")], expected)


@driver.check("lookup")
def lookup(bench):
    topic = bench.topic("lookup", 2)
    bench.write(topic, batches.batch(numbered(20), list(range(1, 21)), batches.ZSTD))
    for asked, offset in ((-1, 20), (-2, 0), (7, 6), (-3, 19)):
        out = tool(bench, "GetOffsetShell", "--topic", topic, "--time", asked)
        holds(f"time {asked}: {out}", f"{topic}:0:{offset}\n" in out)


@driver.check("topics")
def topics(bench):
    topic = bench.name("tool")
    tool(bench, "TopicCommand", "--create", "--topic", topic, "--partitions", 2, "--config", "message.timestamp.type=LogAppendTime")
    holds("the new topic is not listed", topic in tool(bench, "TopicCommand", "--list").split())
    told = tool(bench, "TopicCommand", "--describe", "--topic", topic)
    holds(told, "PartitionCount: 2" in told and told.count("Leader: ") == 2 and "Leader: none" not in told and "message.timestamp.type=LogAppendTime" in told)
    said = tool(bench, "TopicCommand", "--create", "--topic", topic, "--partitions", 2, check=False)
    holds(f"created again: {said}", "exists" in said)
    tool(bench, "TopicCommand", "--delete", "--topic", topic)
    holds("the deleted topic is listed", topic not in tool(bench, "TopicCommand", "--list").split())


@driver.check("partitions")
def partitions(bench):
    topic = bench.topic("grow")
    tool(bench, "TopicCommand", "--alter", "--topic", topic, "--partitions", 4)
    holds("not four partitions", "PartitionCount: 4" in tool(bench, "TopicCommand", "--describe", "--topic", topic))


@driver.check("configs")
def configs(bench):
    topic = bench.append_time_topic("configs")
    told = tool(bench, "ConfigCommand", "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
    holds(told[:200], re.search(r"message\.timestamp\.type=LogAppendTime .*DYNAMIC_TOPIC_CONFIG:message\.timestamp\.type=LogAppendTime", told))
    changed = tool(bench, "ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic)
    holds(f"only what was set is told without --all: {changed}", "message.timestamp.type" in changed and "cleanup.policy" not in changed)


@driver.check("cluster", "versions")
def cluster(bench, name):
    if name == "cluster":
        holds("no cluster id", re.search(r"Cluster ID: \S+", tool(bench, "ClusterTool", "cluster-id")))
        return None
    told = tool(bench, "BrokerApiVersionsCommand")
    holds(told[:200], "Produce(0): 0 to" in told and "Fetch(1): 4 to" in told)
    return None


@driver.check("group")
def group(bench):
    topic = bench.topic("group")
    bench.write(topic, batches.batch(numbered(1)))
    for protocol in ("classic", "consumer"):
        settings = ["--group", bench.name("group"), "--from-beginning", "--max-messages", 1, "--command-property", f"group.protocol={protocol}"]
        said = tool(bench, "consumer.ConsoleConsumer", "--topic", topic, *settings, seconds=30, check=False)
        holds(f"{protocol}: {said}", "Processed a total of 1 messages" in said)


@driver.check("delete-records")
def delete_records(bench):
    topic = bench.topic("trim")
    bench.write(topic, batches.batch(numbered(20)))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 15}]}, file)
        file.flush()
        out = tool(bench, "DeleteRecordsCommand", "--offset-json-file", file.name)
    holds(out, "low_watermark: 15" in out)
    holds("the log does not begin at 15", f"{topic}:0:15\n" in tool(bench, "GetOffsetShell", "--topic", topic, "--time", -2))


@driver.check("producer-perf")
def producer_perf(bench):
    topic = bench.topic("perf", 3)
    out = tool(bench, "ProducerPerformance", "--topic", topic, "--num-records", 20_000, "--record-size", 100, "--throughput", -1,
               "--command-property", "acks=all", "enable.idempotence=true")
    holds(out, out.startswith("20000 records sent"))
    stored = sum(int(line.rsplit(":", 1)[1]) for line in tool(bench, "GetOffsetShell", "--topic", topic, "--time", -1).splitlines())
    expect("records stored", stored, 20_000)
    return out.split(",")[1].strip()


@driver.check("damaged", seconds=150)
def damaged_partition(bench):
    """The console consumer prints what is below the lost record and ends with an error."""
    topic = damaged(bench)
    began = time.monotonic()
    said = tool(bench, "consumer.ConsoleConsumer", "--topic", topic, "--partition", 0, "--offset", "earliest", "--timeout-ms", 60_000,
                seconds=90, check=False)
    took = time.monotonic() - began
    shown = [line for line in said.splitlines() if line.isdigit()]
    expect("records below", [line.encode() for line in shown], numbered(LOST))
    holds(f"it waited for {took:.0f} s: {said[-300:]}", took < 45)
    return f"ended after {took:.1f} s"


driver.main()
