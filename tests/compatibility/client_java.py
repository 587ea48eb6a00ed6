#!/usr/bin/env python3
"""Kafka's Java clients: the checks of common.py, through java/Bridge.java; and java/Versions.java, which reads every answer to its last byte.

COMPATIBILITY_JARS names the folder with the jars, COMPATIBILITY_CLASSES the one with our compiled classes.
"""

import base64
import itertools
import json
import os
import subprocess
import time

import batches
import wire
from checks import Driver, Refused, Row, expect, holds, numbered
from common import install

PATH = f"{os.environ['COMPATIBILITY_CLASSES']}:{os.environ['COMPATIBILITY_JARS']}/*"
JAVA = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", PATH]


class Bridge:
    """The Java process."""

    def __init__(self):
        self.process = subprocess.Popen([*JAVA, "Bridge"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.ids = itertools.count(1)

    def tell(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")

    def ask(self, **line):
        """The answer's `found`; an error is thrown."""
        said = self.said(**line)
        if "error" in said:
            raise Refused(f"{said['error']}: {said['words']}")
        return said["found"]

    def said(self, **line):
        self.tell(**line)
        self.process.stdin.flush()
        text = self.process.stdout.readline()
        holds("the Java process ended", text)
        return json.loads(text)

    def error(self, **line):
        """`None`, or the error's name."""
        return self.said(**line).get("error")


bridge = Bridge()


def coded(data):
    return None if data is None else base64.b64encode(data).decode()


def plain(text):
    return None if text is None else base64.b64decode(text)


class ProducerAdapter:
    def __init__(self, address, idempotent=False, codec="none", acks="all", linger_ms=5, size=4 << 20, patience=60, batch_bytes=16_384):
        self.id = next(bridge.ids)
        bridge.ask(do="producer", id=self.id, settings={
            "bootstrap.servers": address, "enable.idempotence": str(idempotent).lower(), "compression.type": codec, "acks": acks,
            "linger.ms": linger_ms, "max.request.size": size, "batch.size": batch_bytes, "delivery.timeout.ms": patience * 1000,
            "request.timeout.ms": min(30, patience) * 1000 - 1000, "buffer.memory": 128 << 20, "reconnect.backoff.max.ms": 500,
            "enable.metrics.push": "false",
        })

    def send(self, topic, row, partition):
        headers = [[name, coded(content)] for name, content in row.headers]
        bridge.tell(do="send", id=self.id, topic=topic, partition=partition, key=coded(row.key), value=coded(row.value), headers=headers, time=row.time)
        bridge.process.stdin.flush()

    def flush(self):
        return bridge.ask(do="flush", id=self.id)

    def close(self):
        bridge.ask(do="end producer", id=self.id)


class ConsumerAdapter:
    def __init__(self, address, topic, starts, partition_bytes=None, total_bytes=None, min_bytes=None, wait_ms=None):
        settings = settings_of(address) | {
            key: value for key, value in {
                "max.partition.fetch.bytes": partition_bytes, "fetch.max.bytes": total_bytes, "fetch.min.bytes": min_bytes,
                "fetch.max.wait.ms": wait_ms,
            }.items() if value
        }
        self.id, self.topic, self.address, self.rows = next(bridge.ids), topic, address, []
        bridge.ask(do="consumer", id=self.id, settings=settings, topic=topic, starts=list(starts.items()))

    def take(self, seconds):
        if not self.rows:
            self.rows = bridge.ask(do="take", id=self.id, ms=int(seconds * 1000))
        if not self.rows:
            return None
        row = self.rows.pop(0)
        headers = [(name, plain(content)) for name, content in row["headers"]]
        return row["partition"], Row(plain(row["value"]), plain(row["key"]), headers, row["time"], row["offset"])

    def position(self, partition):
        return bridge.ask(do="position", id=self.id, topic=self.topic, partition=partition)

    def ended(self, partition):
        ends = bridge.ask(do="ends", settings=settings_of(self.address), topic=self.topic, partition=partition)
        return self.position(partition) == ends[1]

    def close(self):
        bridge.ask(do="end consumer", id=self.id)


def settings_of(address):
    return {"bootstrap.servers": address, "enable.auto.commit": "false", "enable.metrics.push": "false"}


class Adapter:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    own_times = True
    null_headers = True
    too_large = "RecordTooLarge"
    in_flight = 5
    producer = ProducerAdapter
    consumer = ConsumerAdapter

    def offset_for(self, address, topic, at):
        return bridge.ask(do="offset_for", settings=settings_of(address), topic=topic, time=at)

    def ends(self, address, topic):
        return tuple(bridge.ask(do="ends", settings=settings_of(address), topic=topic))

    def create(self, address, topic, partitions, configs):
        return bridge.error(do="create", address=address, topic=topic, partitions=partitions, configs=configs)

    def delete(self, address, topic):
        return bridge.error(do="delete", address=address, topic=topic)

    def describe(self, address, topic):
        return bridge.said(do="describe", address=address, topic=topic).get("found")

    def configs(self, address, topic):
        return bridge.said(do="configs", address=address, topic=topic).get("found")

    def grow(self, address, topic, partitions):
        return bridge.error(do="grow", address=address, topic=topic, partitions=partitions)

    def cluster(self, address):
        return bridge.ask(do="cluster", address=address)

    def delete_records(self, address, topic, offset):
        return bridge.error(do="delete_records", address=address, topic=topic, offset=offset)


driver = Driver(f"java {bridge.ask(do='version')}")


@driver.check("versions")
def versions(bench):
    topic = bench.topic("versions")
    host, port = wire.split(bench.address)
    done = subprocess.run([*JAVA, "Versions", host, str(port), topic], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    holds(done.stdout.replace("\n", "; "), done.returncode == 0)
    return done.stdout.strip()


@driver.check("group")
def group(bench):
    topic = bench.topic("group")
    bench.write(topic, batches.batch(numbered(1)))
    for protocol in ("classic", "consumer"):
        settings = settings_of(bench.address) | {"group.id": bench.name("group"), "group.protocol": protocol}
        expect(protocol, bridge.error(do="join", settings=settings, topic=topic), None)


install(driver, Adapter())
if __name__ == "__main__":
    driver.main()
