"""What a driver is made of: named checks, each with its own topics, reported one line each.

A line is `client version | check | passed/failed/not run | words`. A driver ends with 1 if a check failed. Checks of the same name mean the
same thing for each client; the names are explained in `EXPLAINED`, which heads the table.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import traceback

import batches
import wire

NODE = pathlib.Path(__file__).resolve().parent.parent / "bench" / "kafka" / "node.py"

# Name of a check: what it shows.
EXPLAINED = {
    "produce-CODEC": "500 records, acks=all, not idempotent, read back from the earliest offset in order",
    "idempotent-CODEC": "the same with an idempotent producer",
    "acks-0, acks-1": "a record is stored and read back",
    "consume-earliest, -offset, -latest, -time": "by assignment, from there; `-time` asks for a time",
    "mid-batch": "reading begins inside a compressed batch: first record is the one asked for",
    "headers": "order kept, duplicate names, null and empty value",
    "keys": "null and empty key stay apart",
    "tombstone": "a null value stays null, an empty one empty",
    "timestamps": "create time kept; append time set by the server where the topic says so",
    "size-limit": "a record just below the limit of the topic is stored; one above it is refused as too large",
    "lookup": "KA-03: offset for a time, also inside a compressed batch",
    "end": "KA-04: the end of a partition is told, position and end offset are equal",
    "fetch-limits": "KA-05: partition limit below one batch; all records arrive",
    "long-poll": "KA-05: min bytes with max wait; a record ends the wait",
    "many-partitions": "100 partitions are written and read, none starves",
    "versions": "KA-01: ranges of versions are agreed on",
    "topics": "create, describe, create again (refused), delete, describe again",
    "configs": "topic settings of a creation are told back, or the creation is refused; unknown topic is refused",
    "partitions": "a topic gets more partitions, the new ones are written and read",
    "cluster": "brokers, controller and cluster id are told",
    "delete-records": "the log starts later; reading before it is out of range",
    "group": "a consumer of a group reads and commits; the next one of the group goes on behind it, by each protocol that the client has",
    "group-eager, -cooperative, -consumer": "a group by that protocol reads a topic that is written to all the while; members join and leave, the "
        "server is killed, a member is killed: every number arrives, none that was committed comes again, no partition is had by two at once, "
        "nobody changes partitions as the server comes back",
    "group-static": "GR-04: static members keep their partitions over a restart of the server and of their own process; of two with one id the older is fenced",
    "group-offsets": "the client's own admin calls or tool: groups are listed and described, offsets set back and read from there, the group deleted",
    "group-mixed": "KA-06: one group of all client libraries by protocol `range`, whose leader is stopped each time; one that offers another protocol is refused alone",
    "group-grows": "GR-02: partitions are added, and what is written to them at once arrives, from the earliest; with latest no end is stored for what nobody read",
    "group-commits": "GR-01: commits after each record while members come and go start no further round: at most two generations for each change",
    "group-slow": "GR-05: partitions change hands while members work: nothing that was committed comes again, and a member that was paused too long commits nothing",
    "group-moves": "F2 row 19: the server is killed as partitions are given up, and answers are lost: no partition is had by two at once, nothing is lost",
    "recreate": "a topic is deleted and created again under a running producer, which goes on",
    "order-pipelined": "OR-03: five requests in flight on one connection, others among them, to a topic just made: answers and log in order",
    "duplicates": "LD-06, F2 row 2: each of a producer's last five batches sent again gets its offset, the sixth last is out of order",
    "bytes-kept": "stored bytes are the sent ones but for base offset and leader epoch, duplicate headers and all",
    "auto-create": "a topic comes into being with its first record",
    "producer-perf": "20,000 records of producer-perf-test are all stored",
    "A to B": "1,000 records of client A, with key and duplicate headers, read by client B",
    "order-cuts": "OR-03: pipelined idempotent produce, the connection cut several times: order kept, nothing twice, nothing lost",
    "retry-window": "LD-06: server killed and link cut with requests open: nothing twice, nothing lost",
    "damaged": "a record that storage has lost: the client gets what is below, is told within a minute, and reads on behind it if asked to",
    "grpc-*": "Hulse's own wire, by a client generated from its protos: produce, read, subscribe, shared work, dead letters, keys, typed refusals",
    "idle-producer": "LD-07: one producer, silent for longer than the server remembers it, goes on; also over a restart",
}


class Refused(Exception):
    """A check found something else than it must."""


class Elsewhere(Exception):
    """A check that is made on a node of its own, which `run` starts: left out here without a word."""


class NotRun(Exception):
    """A check cannot be made here; says why."""


def expect(what, found, expected):
    """Found must be expected."""
    if found != expected:
        raise Refused(f"{what}: {short(found)} instead of {short(expected)}")


def holds(words, condition):
    """The condition must hold."""
    if not condition:
        raise Refused(words)


def short(value):
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:120]} .. {text[-30:]}"


class Row:
    """A record as a client was given it, or gives it."""

    __slots__ = ("offset", "time", "key", "value", "headers")

    def __init__(self, value, key=None, headers=(), time=None, offset=None):
        self.value, self.key, self.headers, self.time, self.offset = value, key, list(headers), time, offset


class Bench:
    """What a check may use."""

    def __init__(self, arguments):
        self.address = arguments.address
        self.long = arguments.long
        self.options = arguments
        self.run = f"{random.getrandbits(32):08x}"
        self.count = 0

    def connect(self, **how):
        return wire.Connection(self.address, **how)

    def name(self, stem):
        """A topic name that nobody used before."""
        self.count += 1
        return f"compat-{self.run}-{self.count}-{stem}"

    def topic(self, stem, partitions=1, **configs):
        """A new topic, made without the client under test."""
        name = self.name(stem)
        settings = {key.replace("_", "."): str(value) for key, value in configs.items()}
        with self.connect() as connection:
            code = wire.create_topic(connection, name, partitions, settings)
            if code and self.optional(settings):
                code = wire.create_topic(connection, name, partitions)
            if code:
                raise Refused(f"the topic could not be created: {wire.error(code)}")
        self.wait_for(name, partitions)
        return name

    @staticmethod
    def optional(settings):
        """True for settings that a check can do without: a server with one size for all topics says INVALID_CONFIG."""
        return set(settings) <= {"max.message.bytes"}

    def wait_for(self, topic, partitions):
        """Waits until every partition answers."""
        until = time.monotonic() + 10
        with self.connect() as connection:
            while time.monotonic() < until:
                _, topics = wire.metadata(connection, [topic])
                led = topics[topic][0] == 0 and len(topics[topic][1]) == partitions
                if led and all(wire.list_offset(connection, topic, -1, index)[0] == 0 for index in range(partitions)):
                    return
                time.sleep(0.05)
        raise Refused("the topic has no leader after 10 s")

    def write(self, topic, records, partition=0):
        """Writes a batch without the client under test."""
        with self.connect() as connection:
            expect("raw produce", wire.error(wire.produce(connection, topic, records, partition)[0]), "NONE")

    def read(self, topic, partition=0):
        """All records of a partition, without the client under test; they must not be compressed."""
        rows, offset = [], 0
        with self.connect() as connection:
            while True:
                answer = wire.fetch(connection, [(topic, partition, offset, 50 << 20)], max_wait_ms=50)[0]
                expect("raw fetch", wire.error(answer[2]), "NONE")
                if not answer[5]:
                    return rows
                rows += [Row(value, key, headers, at, place) for place, at, key, value, headers in batches.records_of(answer[5])]
                offset = rows[-1].offset + 1

    def limit(self, topic):
        """Largest batch that the topic takes."""
        with self.connect() as connection:
            value = wire.topic_config(connection, topic, "max.message.bytes")
        if value is None:
            raise Refused("the topic does not tell max.message.bytes")
        return int(value)

    def append_time_topic(self, stem):
        return self.topic(stem, message_timestamp_type="LogAppendTime")

    @property
    def can_kill(self):
        return bool(self.options.kill or self.options.node)

    def kill(self):
        """Kills the server hard and starts it again, with the command that was given."""
        if not self.can_kill:
            raise NotRun("needs --node FOLDER or --kill COMMAND, to kill the server and start it again")
        command = self.options.kill or f"{sys.executable} {NODE} kill --data {self.options.node}"
        subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)

    @property
    def pid(self):
        """Process of the server, or `None`; another one after each kill."""
        if self.options.node:
            return json.loads((pathlib.Path(self.options.node) / "node.json").read_text())["pid"]
        return self.options.pid

    def expiry(self):
        """Seconds after which the server forgets a silent producer."""
        if not self.options.expiry:
            raise Elsewhere if self.options.node else NotRun("needs --expiry SECONDS, as the server is configured")
        return self.options.expiry


class Driver:
    """The checks of one client."""

    def __init__(self, client):
        self.client = client
        self.checks = []

    def check(self, *names, seconds=60, long=False):
        """Adds a check; with several names it is called with each."""
        def add(function):
            for name in names:
                call = function if len(names) == 1 else (lambda bench, name=name: function(bench, name))
                self.checks.append((name, call, seconds, long))
            return function
        return add

    def main(self):
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("address", help="host:port of the Kafka listener")
        parser.add_argument("--long", action="store_true", help="also what takes minutes")
        parser.add_argument("--checks", default="", help="checks whose names contain this; several with commas")
        parser.add_argument("--pid", type=int, help="process id of the server: its memory is watched")
        parser.add_argument("--node", help="folder of a server that tests/bench/kafka/node.py started: its memory is watched, and it is killed")
        parser.add_argument("--kill", help="command that kills the server and starts it again at the same address")
        parser.add_argument("--expiry", type=float, help="seconds after which the server forgets a silent producer")
        parser.add_argument("--hulse", help="the hulse binary; for what Hulse's own client shares with Kafka's")
        parser.add_argument("--grpc", help="host:port of Hulse's own listener")
        parser.add_argument("--trace", action="store_true", help="print where a check failed")
        bench = Bench(parser.parse_args())
        signal.signal(signal.SIGALRM, _late)
        wanted = bench.options.checks.split(",")
        outcomes = [self._one(bench, *check) for check in self.checks
                    if any(part in check[0] for part in wanted) and (bench.long or not check[3])]
        # A library's threads may still wait for something; nothing of them is needed.
        sys.stdout.flush()
        os._exit(1 if "failed" in outcomes else 0)

    def _one(self, bench, name, call, seconds, _long):
        began = time.monotonic()
        signal.alarm(seconds)
        try:
            words = call(bench)
            outcome = "passed"
        except Elsewhere:
            return "elsewhere"
        except NotRun as reason:
            outcome, words = "not run", str(reason)
        except Exception as failure:  # Whatever a client throws is this check's failure.
            outcome = "failed"
            words = str(failure) if isinstance(failure, Refused) else f"{type(failure).__name__}: {failure}"
            if bench.options.trace:
                traceback.print_exc()
        finally:
            signal.alarm(0)
        say(self.client, name, outcome, words, time.monotonic() - began)
        return outcome


def say(client, name, outcome, words, took):
    """The line of a check."""
    words = " ".join((words or "").split())[:300]
    # In one piece: several threads may have something to say.
    print(f"{client} | {name} | {outcome} | {words + ', ' if words else ''}{took:.1f} s\n", end="", flush=True)


def _late(*_):
    raise Refused("no end in the time given")


def numbered(count, start=0, size=0):
    """Numbered values, padded to `size` bytes."""
    return [f"{number:08d}".encode().ljust(size, b".") for number in range(start, start + count)]


def in_order(found, expected):
    """Nothing lost, nothing twice, in order; says which it was."""
    if found == expected:
        return
    missing, extra = set(expected) - set(found), len(found) - len(set(found))
    if missing:
        raise Refused(f"{len(missing)} of {len(expected)} lost, first {short(min(missing))}")
    if extra:
        raise Refused(f"{extra} stored twice")
    wrong = next(at for at, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
    raise Refused(f"order: at {wrong} stands {short(found[wrong])} instead of {short(expected[wrong])}")
