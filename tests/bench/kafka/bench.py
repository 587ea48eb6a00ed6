#!/usr/bin/env python3
"""Hulse beside Apache Kafka: both on this machine and disk, driven by the same client programs, in interleaved rounds.

    tests/bench/kafka/run [--quick] [--rounds N] [--only SERIES,..] [--apache-only] [--keep]

What is compared
    cached   Apache Kafka as it comes (an ack means: in the page cache; the kernel writes later) with Hulse at sync=off (the same).
    synced   Apache Kafka with log.flush.interval.messages=1 (each append is flushed before the ack) with Hulse at sync=always.
    One node, one copy, no TLS, no compression; acks=all, idempotent producers. Apache Kafka runs in KRaft with the flags of its own start
    script (G1, heap fixed at 1 GiB). While one is driven the other is up and idle; dirty pages are written out between runs.

Clients: ProducerPerformance of Kafka's tools and a small Java consumer that assigns; load.c over librdkafka, which has the simple consumer.
A server's processor time is the kernel's count for its process over a run; a client's likewise. Medians of the rounds.

Series: start (exec to first acknowledged record), throughput, memory, latency (20 % and 60 % of the slower one's maximum), fetch (beside sendfile).
"""

import argparse
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import time

import clients
import copies
from clients import Clients, cpu_seconds, create, delete, memory_mb, wire
from node import Node

import batches

SETTINGS = {
    ("apache", "cached"): {},
    ("apache", "synced"): {"log.flush.interval.messages": 1},
    ("hulse", "cached"): {"bookie.sync": "off"},
    ("hulse", "synced"): {"bookie.sync": "always"},
}
PORTS = {"apache": 17740, "hulse": 17750}


class Table:
    """Rows of medians, with the ratio and the goal."""

    def __init__(self):
        self.values = {}
        self.rows = []

    def add(self, what, server, value):
        self.values.setdefault(what, {}).setdefault(server, []).append(value)

    def median(self, what, server):
        found = self.values.get(what, {}).get(server)
        return statistics.median(found) if found else None

    def text(self):
        head = f"{'':58} {'Kafka':>10} {'Hulse':>10} {'Hulse/Kafka':>12}  goal"
        lines = [head, "-" * len(head)]
        for what in self.values:
            kafka, hulse = self.median(what, "apache"), self.median(what, "hulse")
            ratio = f"{hulse / kafka:.3f}" if kafka and hulse else ""
            cells = [f"{value:.3f}" if value is not None and value < 10 else f"{value:.1f}" if value is not None else "" for value in (kafka, hulse)]
            lines.append(f"{what:58} {cells[0]:>10} {cells[1]:>10} {ratio:>12}  {goal(what)}")
        return "\n".join(lines)


def goal(what):
    """The goal figure of a row, a ratio Hulse/Kafka."""
    for part, words in {
        "server cpu": "at most 0.5", "memory": "at most 0.25", "first ack": "at most 0.1", "p99": "at most 0.5", "MB/s, client": "",
        "MB/s": "at least 1.5 where the client is not the limit", "share of sendfile": "Hulse at least 0.7",
    }.items():
        if part in what:
            return words
    return ""


class Bench:
    def __init__(self, options):
        self.options = options
        self.table = Table()
        self.clients = Clients(options.jars, options.build)
        self.clients.compile()
        self.servers = ["apache"] if options.apache_only else ["apache", "hulse"]
        self.folder = pathlib.Path(options.folder).resolve()
        self.nodes = {}
        self.count = 0

    def wanted(self, series):
        return not self.options.only or series in self.options.only.split(",")

    def say(self, words):
        print(f"[{time.strftime('%H:%M:%S')}] {words}", file=sys.stderr, flush=True)

    def node(self, server, mode, wait=True):
        program = self.options.jars if server == "apache" else self.options.binary
        return Node(server, self.folder / f"{server}-{mode}", PORTS[server], program, SETTINGS[server, mode], wait)

    def begin(self, mode):
        self.nodes = {server: self.node(server, mode) for server in self.servers}

    def finish(self):
        for server, node in self.nodes.items():
            node.stop()
            if not self.options.keep:
                shutil.rmtree(node.data, ignore_errors=True)
        self.nodes = {}

    def topic(self):
        self.count += 1
        return f"bench-{self.count}"

    def settle(self):
        """Dirty pages of one server are not to slow the other."""
        os.sync()
        time.sleep(0.5)

    # ---- series ----------------------------------------------------------------------------------------------------------------

    def start(self, mode):
        """From exec to the first acknowledged record: in an empty folder (Kafka's was formatted before), and in one with records."""
        record = batches.batch([b"first"])
        for round_number in range(self.options.rounds + 2):
            for server in self.servers:
                self.settle()
                node = self.node(server, mode, wait=False)
                taken = first_ack(node, record)
                kind = "empty folder" if round_number == 0 else "restart"
                self.table.add(f"{mode}: start to first ack, {kind}, s", server, taken)
                node.stop()
        for server in self.servers:
            shutil.rmtree(self.folder / f"{server}-{mode}", ignore_errors=True)

    def throughput(self, mode, shapes):
        for size, partitions, megabytes in shapes:
            for client in ("librdkafka", "java"):
                for _ in range(self.options.rounds):
                    for server in self.servers:
                        self.one_load(mode, server, client, size, partitions, megabytes)

    def one_load(self, mode, server, client, size, partitions, megabytes):
        node, topic = self.nodes[server], self.topic()
        records = megabytes * 1_000_000 // size
        create(node.address, topic, partitions)
        self.settle()
        what = f"{mode}: {client}, {size} B x {partitions}"
        for verb, act in (("produce", self.clients.produce), ("consume", self.clients.consume)):
            before = cpu_seconds(node.pid)
            began = time.monotonic()
            rate, client_cpu = act(client, node.address, topic, partitions, size, records)
            took = time.monotonic() - began
            used = cpu_seconds(node.pid) - before
            self.table.add(f"{what}: {verb} MB/s", server, rate)
            self.table.add(f"{what}: {verb} server cpu, ms per MB", server, used * 1000 / megabytes)
            self.table.add(f"{what}: {verb} client cores", server, client_cpu / took)
            self.say(f"{server} {what} {verb}: {rate:.0f} MB/s, server {used * 1000 / megabytes:.2f} ms/MB, client {client_cpu / took:.2f} cores")
        delete(node.address, topic)

    def memory(self, mode):
        for server, node in self.nodes.items():
            now, highest = memory_mb(node.pid)
            self.table.add(f"{mode}: memory after the same work, MB", server, now)
            self.table.add(f"{mode}: memory at its highest, MB", server, highest)

    def latency(self, mode):
        """Rates come from the throughput of this run; without it a short one is measured first."""
        size, partitions = 1024, 10
        what = f"{mode}: librdkafka, {size} B x {partitions}: produce MB/s"
        if what not in self.table.values:
            for server in self.servers:
                self.one_load(mode, server, "librdkafka", size, partitions, 100)
        slower = min(self.table.median(what, server) for server in self.servers) * 1e6 / size
        for share in (20, 60):
            rate = max(100, int(slower * share / 100))
            records = int(rate * self.options.seconds)
            for _ in range(self.options.rounds):
                for server in self.servers:
                    node, topic = self.nodes[server], self.topic()
                    create(node.address, topic, partitions)
                    self.settle()
                    before = cpu_seconds(node.pid)
                    found = self.clients.rate(node.address, topic, partitions, size, records, rate)
                    used = cpu_seconds(node.pid) - before
                    name = f"{mode}: {share} % ({rate} records/s)"
                    for side, word in (("ack", "produce"), ("arrival", "end to end")):
                        for percentile in ("p50", "p99"):
                            self.table.add(f"{name}: {word} {percentile}, ms", server, found[f"{side}_{percentile}"])
                    self.table.add(f"{name}: server cpu, ms per MB in and out", server, used * 1000 / (records * size / 1e6))
                    self.say(f"{server} {name}: {found}")
                    delete(node.address, topic)

    def fetch(self, mode):
        megabytes = 100 if self.options.quick else 400
        for server, node in self.nodes.items():
            topic = self.topic()
            create(node.address, topic, 1)
            records, length = copies.fill(node.address, topic, megabytes)
            self.settle()
            reference = self.folder / "reference"
            with open(reference, "wb") as file:
                for _ in range(length >> 20):
                    file.write(os.urandom(1 << 20))
            for _ in range(self.options.rounds + 1):
                before = cpu_seconds(node.pid)
                plain = copies.fetch(node.address, topic, records)
                used = cpu_seconds(node.pid) - before
                beside = copies.sendfile(reference, (length >> 20) << 20)
                self.table.add(f"{mode}: plain fetch, MB/s", server, plain)
                self.table.add(f"{mode}: share of sendfile", server, plain / beside)
                self.table.add(f"{mode}: plain fetch, processor ns per byte delivered", server, used * 1e9 / length)
                self.say(f"{server} fetch {plain:.0f} MB/s, sendfile {beside:.0f} MB/s")
            reference.unlink()
            delete(node.address, topic)

    def all(self):
        quick = self.options.quick
        every = [(size, partitions, 60 if size == 100 else 200) for size in (1024, 100) for partitions in (1, 10, 100)]
        shapes = {"cached": [(1024, 10, 50)] if quick else every, "synced": [(1024, 10, 20)] if quick else [(1024, 10, 100)]}
        for mode in ("cached", "synced"):
            if self.wanted("start"):
                self.start(mode)
            if not any(self.wanted(series) for series in ("throughput", "memory", "latency", "fetch")):
                continue
            self.begin(mode)
            try:
                # The Java machine compiles what it runs often; both get the same work first, which is not counted.
                warm = Table()
                kept, self.table = self.table, warm
                for server in self.servers:
                    self.one_load(mode, server, "librdkafka", 1024, 10, 20 if quick else 200)
                self.table = kept
                if self.wanted("throughput"):
                    self.throughput(mode, shapes[mode])
                if self.wanted("memory"):
                    self.memory(mode)
                if self.wanted("latency"):
                    self.latency(mode)
                if self.wanted("fetch") and mode == "cached":
                    self.fetch(mode)
            finally:
                self.finish()


def first_ack(node, record):
    """Seconds from exec to the first acknowledged record; the topic is made by the first round."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if node.process.poll() is not None:
            sys.exit(f"the node does not start; see {node.data / 'node.log'}")
        try:
            with wire.Connection(node.address, timeout=5) as connection:
                while True:
                    _, topics = wire.metadata(connection, ["first"])
                    if topics["first"][0]:
                        wire.create_topic(connection, "first")
                    if wire.produce(connection, "first", record)[0] == 0:
                        return time.monotonic() - node.started
                    time.sleep(0.002)
        except (OSError, wire.Closed, struct.error, TimeoutError):
            time.sleep(0.002)
    sys.exit("no record was acknowledged in 60 s")


def conditions(options):
    """Of the run, for the head of the result."""
    def first(command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout.splitlines()[0] if done.stdout else "?"

    disk = shutil.disk_usage(options.folder)
    kafka = next(path.name for path in pathlib.Path(options.jars).glob("kafka_2.13-*.jar"))
    lines = [
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {first(['git', '-C', str(clients.HERE), 'rev-parse', '--short', 'HEAD'])}, "
        f"{options.rounds} rounds{', --quick' if options.quick else ''}",
        f"{os.cpu_count()} processors, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB memory, disk {disk.free / 1e9:.0f} GB free, "
        f"load {os.getloadavg()[0]:.1f} at the start; clients and servers share the processors",
        f"{kafka.removesuffix('.jar')}, {first(['java', '-version'])}; {first([options.binary, '--version']) if not options.apache_only else 'Hulse not run'}",
        "cached: Kafka's default beside sync=off; synced: log.flush.interval.messages=1 beside sync=always. acks=all, idempotent, 5 ms, 128 KiB.",
        "Medians. MB = 10^6 bytes of values. Client cores: processor seconds of the client per second of its run; near 1, the client is the limit.",
        "Instructions per byte cannot be counted where the machine has no counters; processor time per byte stands for them.",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars", required=True, help="folder with Kafka's jars")
    parser.add_argument("--build", required=True, help="folder for our compiled clients")
    parser.add_argument("--binary", help="the hulse program, built for release")
    parser.add_argument("--folder", required=True, help="where the nodes keep their data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15, help="of each run at a fixed rate")
    parser.add_argument("--quick", action="store_true", help="one shape, little data: shows that it works")
    parser.add_argument("--only", default="", help="series, with commas")
    parser.add_argument("--apache-only", action="store_true", help="absolute numbers of Apache Kafka")
    parser.add_argument("--keep", action="store_true", help="leave the nodes' data")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 5
    for port in PORTS.values():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                sys.exit(f"port {port} is taken")
    pathlib.Path(options.folder).mkdir(parents=True, exist_ok=True)
    head = conditions(options)
    bench = Bench(options)
    bench.all()
    print(f"{head}\n\n{bench.table.text()}")


if __name__ == "__main__":
    main()
