#!/usr/bin/env python3
"""Consumer groups by Kafka's client libraries: the same life of a group for each library and protocol, all at the same time on one server,
as most of it is waiting.

Every group reads one topic that is written to from the first moment to the last. COMPATIBILITY_JARS and COMPATIBILITY_CLASSES as for
client_java.py, COMPATIBILITY_NODE names the folder with kafkajs, COMPATIBILITY_GO the program of go/member.go; a client that is not there is left out, which `run` tells.
"""

import os
import re
import subprocess
import threading
import time

import aiokafka
import confluent_kafka
import kafka

import group_admin
from checks import Driver, Elsewhere, NotRun, Refused, holds, say
from crew import HERE, Crew, Feeder, JavaHost, committed, wait_for

PARTITIONS = 6
# Sessions of classic members: longer than a server takes to come back on a busy machine. Those of the newer protocol are the server's, 45 s.
SESSION_MS = 25_000
NEWER_SESSION = 45

CONFLUENT = f"confluent-kafka {confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})"
NAMES = {"confluent": CONFLUENT, "kafka-python": f"kafka-python {kafka.__version__}", "aiokafka": f"aiokafka {aiokafka.__version__}"}
# [(client, protocols)]
PARTIES = [("confluent", ("eager", "cooperative", "consumer")), ("kafka-python", ("eager", "cooperative")), ("aiokafka", ("eager",))]

if node := os.environ.get("COMPATIBILITY_NODE"):
    asked = ["node", "-p", "require('kafkajs/package.json').version"]
    NAMES["kafkajs"] = "kafkajs " + subprocess.run(asked, env=os.environ | {"NODE_PATH": node}, capture_output=True, text=True).stdout.strip()
    PARTIES.append(("kafkajs", ("eager",)))
if os.environ.get("COMPATIBILITY_GO"):
    NAMES["franz-go"] = "franz-go " + re.search(r"franz-go v(\S+)", (HERE / "go" / "go.mod").read_text())[1]
    PARTIES.append(("franz-go", ("eager", "cooperative", "consumer")))
if os.environ.get("COMPATIBILITY_JARS"):
    NAMES["java"] = f"java {group_admin.java_version()}"
    PARTIES.append(("java", ("eager", "cooperative", "consumer")))


class Stage:
    """Where the lives of all groups meet: the server is killed once, when each is ready or has failed."""

    def __init__(self, bench, groups):
        self.bench, self.groups = bench, groups
        self.arrived, self.lock = 0, threading.Lock()
        self.over = threading.Event()
        self.killed = self.back = None

    def arrive(self):
        with self.lock:
            self.arrived += 1
            last = self.arrived == self.groups
        if last:
            self.killed = time.monotonic()
            self.bench.kill()
            self.back = time.monotonic()
            self.over.set()


class Life:
    """One group of one library and protocol."""

    check = None

    def __init__(self, bench, stage, feeder, client, protocol, hosts):
        self.stage, self.feeder, self.client, self.protocol, self.hosts = stage, feeder, client, protocol, hosts
        self.crew = Crew(bench, feeder.topic, PARTITIONS, bench.name(f"{client}-{self.check or protocol}"), protocol=protocol, session_ms=SESSION_MS)
        self.bench, self.outcome, self.words, self.took = bench, None, "", 0.0
        self.staged = False

    def start(self, doomed=False):
        host = self.hosts[doomed] if self.client == "java" else None
        member = self.crew.start(self.client, host)
        return member

    def run(self):
        began = time.monotonic()
        try:
            self.words = self.live()
            self.outcome = "passed"
        except Refused as failure:
            self.outcome, self.words = "failed", str(failure)
        except Exception as failure:  # What a client throws is its failure.
            self.outcome, self.words = "failed", f"{type(failure).__name__}: {failure}"
        finally:
            if not self.staged:
                self.stage.arrive()
        self.took = time.monotonic() - began

    def live(self):
        """Members come; the server dies; one is killed, one leaves."""
        crew, times = self.crew, []
        self.start()
        crew.shared(45)
        self.start()
        times.append(crew.shared(45))
        leaver = self.start()
        times.append(crew.shared(45))
        doomed = self.start(doomed=True)
        times.append(crew.shared(45))
        self.server_dies()
        self.kill(doomed)
        gone = crew.shared(25 + (NEWER_SESSION if self.protocol == "consumer" else SESSION_MS / 1000))
        leaver.leave()
        wait_for("a member leaves", lambda: leaver.ended is not None, 20)
        times.append(crew.shared(20))
        return f"shared again after at most {max(times):.1f} s, after a kill {gone:.1f} s"

    def server_dies(self):
        """And comes back: nobody notices more than a pause."""
        crew = self.crew
        crew.all_read_after(time.monotonic(), 30)
        before = [len(member.changes) for member in crew.members]
        self.staged = True
        self.stage.arrive()
        holds("the server is not killed", self.stage.over.wait(150))
        crew.all_read_after(self.stage.back, 60)
        changed = [member.name for member, count in zip(crew.members, before) if len(member.changes) != count]
        if self.client == "kafkajs":
            # It ends and joins anew by itself when its connection breaks; what it committed stands.
            crew.shared(60)
            return
        holds(f"partitions changed hands as the server came back: {changed}", not changed)

    def kill(self, member):
        if self.client == "java":
            # One process has the doomed of all its groups.
            self.hosts["ready"].wait(120)
        member.kill()

    def finish(self, sent):
        """All numbers have come; who is there leaves, and everything is committed."""
        began = time.monotonic()
        crew = self.crew
        try:
            if self.outcome == "passed":
                wait_for("all numbers", lambda: not crew.missing(sent), 60)
                errors = [error for member in crew.members for error in member.errors if error.startswith("fatal")]
                holds(f"errors {errors}", not errors or self.check == "static")
        except Refused as failure:
            self.outcome, self.words = "failed", f"{failure}; {len(crew.missing(sent))} of {len(sent)} numbers came to nobody"
        crew.end()
        try:
            if self.outcome == "passed":
                # Of two processes with one static id the older hears only later that it is fenced.
                # kafkajs begins anew when its connection breaks, while what it was at goes on and commits in the name of the new member.
                repeats = crew.judge(sent, fenced=self.check == "static" or self.client == "kafkajs")
                ends = {}
                for partition, offset in sent:
                    ends[partition] = max(ends.get(partition, 0), offset + 1)
                with self.bench.connect() as connection:
                    told = committed(connection, crew.group, crew.topic, range(PARTITIONS))
                behind = {at: (told.get(at), end) for at, end in ends.items() if told.get(at, -1) < end}
                holds(f"not committed: {behind}", not behind)
                self.words += f", {len(sent)} numbers, {repeats} came twice"
        except Refused as failure:
            self.outcome, self.words = "failed", str(failure)
        say(NAMES[self.client], f"group-{self.check or self.protocol}", self.outcome, self.words, self.took + time.monotonic() - began)


class StaticLife(Life):
    """GR-04: two static members, of which the first is started anew and then taken over."""

    check = "static"

    def start(self, instance, doomed=False):
        host = self.hosts[doomed] if self.client == "java" else None
        return self.crew.start(self.client, host, instance=instance, session_ms=30_000)

    def live(self):
        crew = self.crew
        first = self.start("1", doomed=True)
        other = self.start("2")
        crew.shared(60)
        self.server_dies()
        had, changes = set(first.has), len(other.changes)
        self.kill(first)
        time.sleep(2)
        second = self.start("1")
        took = wait_for("the partitions of the former process", lambda: second.has == had, 25)
        third = self.start("1")
        wait_for("the partitions of the older process", lambda: third.has == had, 25)
        wait_for("the older process is fenced", lambda: second.ended or second.errors, 40)
        if second.ended is None:
            second.end(time.monotonic())
        wait_for("the newer process reads", lambda: third.reads and third.reads_after(time.monotonic() - 1), 20)
        holds(f"the newer process is fenced: {third.errors}", not third.errors)
        holds("the other member saw a rebalance", len(other.changes) == changes)
        return f"a new process had its partitions after {took:.1f} s; the older of two: {(second.errors or ['ended'])[0][:60]}"

def lives(bench):
    """The life of every group; True when all are well."""
    if not bench.can_kill:
        raise NotRun("needs --node FOLDER or --kill COMMAND, to kill the server and start it again")
    topic = bench.topic("members", PARTITIONS)
    feeder = Feeder(bench, topic, PARTITIONS)
    kinds = [(client, protocol) for client, protocols in PARTIES for protocol in protocols]
    fixed = [(client, "eager") for client in ("confluent", "kafka-python", "franz-go", "java") if client in NAMES]
    stage = Stage(bench, len(kinds) + len(fixed))
    hosts = {}
    if "java" in NAMES:
        hosts = {False: JavaHost(), True: JavaHost(), "ready": threading.Barrier(sum(client == "java" for client, _ in kinds + fixed))}
    all_of_them = [Life(bench, stage, feeder, *kind, hosts) for kind in kinds] + [StaticLife(bench, stage, feeder, *kind, hosts) for kind in fixed]
    threads = [threading.Thread(target=life.run, daemon=True) for life in all_of_them]
    for thread in threads:
        thread.start()
        # Not all compilers and importers at once.
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    sent = feeder.stop()
    enders = [threading.Thread(target=life.finish, args=(sent,)) for life in all_of_them]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join()
    for host in (hosts.get(False), hosts.get(True)):
        if host:
            host.kill()
    return all(life.outcome == "passed" for life in all_of_them)


driver = Driver("groups")


@driver.check("group-lives", seconds=400)
def group_lives(bench):
    """Prints a line for each client."""
    holds("see the lines above", lives(bench))
    raise Elsewhere


@driver.check("group-offsets", seconds=300)
def group_offsets(bench):
    """Prints a line for each client."""
    wanted = {"confluent": group_admin.Confluent, "kafka-python": group_admin.KafkaPython, "kafkajs": group_admin.Kafkajs}
    outcomes = []

    def one(name, check):
        began, words, outcome = time.monotonic(), None, "passed"
        try:
            words = check()
        except Exception as failure:  # What a client throws is its failure.
            outcome = "failed"
            words = str(failure) if isinstance(failure, Refused) else f"{type(failure).__name__}: {failure}"
        outcomes.append(outcome)
        say(name, "group-offsets", outcome, words, time.monotonic() - began)

    def library(client, kind):
        admin = kind(bench.address)
        try:
            return group_admin.by_library(bench, client, admin)
        finally:
            admin.close()

    def tools():
        box = group_admin.Tools(bench.address)
        try:
            return group_admin.by_tools(bench, box)
        finally:
            box.close()

    work = [(NAMES[client], lambda client=client, kind=kind: library(client, kind)) for client, kind in wanted.items() if client in NAMES]
    if "java" in NAMES:
        work.append((f"Kafka's tools {group_admin.java_version()}", tools))
    threads = [threading.Thread(target=one, args=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holds("see the lines above", "failed" not in outcomes)
    raise Elsewhere


if __name__ == "__main__":
    driver.main()
