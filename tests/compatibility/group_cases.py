#!/usr/bin/env python3
"""Consumer groups in trouble: the cases KA-06, GR-01, GR-02 and GR-05, and row 19 of serving.md F2, by Kafka's client libraries.

Environment as for client_groups.py; libraries that are not there are left out of the mixed group.
"""

import os
import signal
import threading
import time

import batches
import wire
from checks import Driver, NotRun, Refused, expect, holds, numbered
from crew import Crew, Feeder, JavaHost, committed, wait_for
from proxy import Proxy

driver = Driver("groups in trouble")
# What a coordinator and its members say to each other.
TALK = (wire.JOIN_GROUP, wire.SYNC_GROUP, wire.HEARTBEAT, wire.CONSUMER_GROUP_HEARTBEAT)


def all_came(crew, feeder, seconds=60):
    """Everything that was fed came; how it ended."""
    sent = feeder.stop()
    wait_for("all numbers", lambda: not crew.missing(sent), seconds)
    crew.end()
    repeats = crew.judge(sent)
    return f"{len(sent)} numbers, {repeats} came twice"


def all_committed(bench, crew):
    """Every partition is committed to its end."""
    with bench.connect() as connection:
        told = committed(connection, crew.group, crew.topic, range(crew.partitions))
        ends = {at: wire.list_offset(connection, crew.topic, -1, at)[2] for at in range(crew.partitions)}
    expect("committed", told, ends)


@driver.check("group-mixed", seconds=240)
def mixed(bench):
    """KA-06: every library in one group; then one after the other leaves, the first first, so that leaders go."""
    partitions = 4
    topic = bench.topic("mixed", partitions)
    feeder = Feeder(bench, topic, partitions, 40)
    crew = Crew(bench, topic, partitions, bench.name("mixed"), session_ms=10_000)
    libraries = ["kafka-python", "confluent", "kafkajs", "aiokafka", "franz-go", "java", "confluent", "kafka-python"]
    if not os.environ.get("COMPATIBILITY_GO"):
        libraries.remove("franz-go")
    if not os.environ.get("COMPATIBILITY_NODE"):
        libraries.remove("kafkajs")
    host = JavaHost() if os.environ.get("COMPATIBILITY_JARS") else libraries.remove("java")
    slowest = 0.0
    try:
        for library in libraries:
            crew.start(library, host if library == "java" else None)
            slowest = max(slowest, crew.shared(30) if len(crew.members) > 1 else crew.shared(45) * 0)
        # The last one had nothing to wait for.
        time.sleep(1)
        before = [member.gets for member in crew.members]
        stranger = Crew(bench, topic, partitions, crew.group, session_ms=10_000)
        other = stranger.start("confluent", protocol="cooperative")
        time.sleep(3)
        holds(f"a member with another protocol has {other.has}", not other.has)
        stranger.end()
        holds("the others saw the one that was refused", before == [member.gets for member in crew.members])
        for member in crew.members[:-1]:
            member.leave()
            wait_for(f"{member.name} leaves", lambda member=member: member.ended is not None, 20)
            slowest = max(slowest, crew.shared(20))
        return f"{len(libraries)} members, shared again after at most {slowest:.1f} s, {all_came(crew, feeder)}"
    finally:
        crew.end()
        feeder.stop()
        if host:
            host.kill()


def grows(bench, client, protocol, reset):
    """GR-02 for one library; how long until somebody had the new partitions."""
    topic = bench.topic("grows", 8)
    crew = Crew(bench, topic, 8, bench.name(f"grows-{client}"), protocol=protocol, reset=reset, refresh_ms=2_000, session_ms=10_000)
    try:
        for _ in range(2):
            crew.start(client)
        crew.shared(45)
        if reset == "latest":
            # Where the end is they ask for after they were told what they have.
            time.sleep(3)
        for partition in range(8):
            bench.write(topic, batches.batch(numbered(10)), partition)
        wait_for("records of the old partitions", lambda: len(crew.rows()) == 80, 30)
        with bench.connect() as connection:
            expect("more partitions", wire.error(wire.add_partitions(connection, topic, 16)), "NONE")
        bench.wait_for(topic, 16)
        for partition in range(8, 16):
            bench.write(topic, batches.batch(numbered(125)), partition)
        crew.partitions = 16
        took = crew.shared(30)
        if reset == "earliest":
            wait_for(f"records of the new partitions with {client}", lambda: len(crew.rows()) == 80 + 1_000, 30)
        else:
            time.sleep(2)
        read = {}
        for _, _, partition, offset, _, _ in crew.rows():
            read[partition] = max(read.get(partition, 0), offset + 1)
        crew.end()
        with bench.connect() as connection:
            told = committed(connection, crew.group, topic, range(16))
        expect("what is committed", {at: offset for at, offset in told.items() if offset >= 0}, read)
        return took
    finally:
        crew.end()


@driver.check("group-grows", seconds=180)
def all_grow(bench):
    """By several libraries at once."""
    kinds = [("confluent", "eager", "earliest"), ("confluent", "consumer", "earliest"), ("kafka-python", "eager", "earliest"),
             ("aiokafka", "eager", "earliest"), ("confluent", "eager", "latest")]
    found, wrong = [], []

    def one(kind):
        try:
            found.append(grows(bench, *kind))
        except Exception as failure:  # Told below.
            wrong.append(f"{' '.join(kind)}: {failure}")

    threads = [threading.Thread(target=one, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holds("; ".join(wrong), not wrong)
    return f"shared after at most {max(found):.1f} s"


@driver.check("group-moves", seconds=240)
def moves(bench):
    """F2 row 19: classic members and some of the newer protocol in one group, answers lost, and the coordinator's end as somebody gives up."""
    if not bench.can_kill:
        raise NotRun("needs --node FOLDER or --kill COMMAND, to kill the server and start it again")
    partitions = 6
    topic = bench.topic("moves", partitions)
    feeder = Feeder(bench, topic, partitions, 40)
    proxy = Proxy(bench.address)
    crew = Crew(bench, topic, partitions, bench.name("moves"), session_ms=20_000)
    crew.address = proxy.address
    slowest = kills = 0
    try:
        crew.start("confluent", protocol="cooperative")
        crew.start("confluent", protocol="consumer")
        crew.shared(60)
        proxy.loses = TALK
        for protocol in ("consumer", "cooperative", "consumer"):
            had = {member.name: set(member.has) for member in crew.living()}
            crew.start("confluent", protocol=protocol)
            wait_for("somebody gives something up", lambda had=had: any(
                had[member.name] - member.has for member in crew.living() if member.name in had), 60)
            bench.kill()
            kills += 1
            slowest = max(slowest, crew.shared(60))
        for member in crew.members[:2]:
            member.leave()
        wait_for("they leave", lambda: all(member.ended for member in crew.members[:2]), 30)
        slowest = max(slowest, crew.shared(60))
        proxy.loses = ()
        holds("no answer was lost", proxy.lost)
        ended = all_came(crew, feeder)
        return f"{kills} kills, {proxy.lost} answers lost, shared again after at most {slowest:.1f} s, {ended}"
    finally:
        crew.end()
        feeder.stop()
        proxy.close()


@driver.check("group-commits", seconds=400, long=True)
def commits(bench):
    """GR-01, by both cooperative and eager librdkafka and by kafka-python."""
    said = []
    for client, protocol, most in (("confluent", "cooperative", 2), ("confluent", "eager", 2), ("kafka-python", "eager", 2)):
        topic = bench.topic("commits", 12)
        feeder = Feeder(bench, topic, 12, 120)
        crew = Crew(bench, topic, 12, bench.name("commits"), protocol=protocol, batch=1, session_ms=10_000)
        try:
            for _ in range(6):
                crew.start(client)
            crew.shared(60)
            slowest = 0.0
            for change in ("come", "leave", "renew"):
                time.sleep(3)
                leaver = None if change == "come" else crew.members[1 if change == "leave" else 2]
                stay = [member for member in crew.living() if member is not leaver]
                before = [member.gets for member in stay]
                for _ in range(2 if change == "renew" else 1):
                    if leaver and leaver.ended is None:
                        leaver.leave()
                        wait_for("a member leaves", lambda leaver=leaver: leaver.ended is not None, 20)
                    else:
                        crew.start(client)
                slowest = max(slowest, crew.shared(15))
                time.sleep(2)
                rounds = max(member.gets - count for member, count in zip(stay, before))
                allowed = most * (2 if change == "renew" else 1)
                holds(f"{client} {protocol}, {change}: {rounds} generations, not {allowed}", rounds <= allowed)
            said.append(f"{client} {protocol}: {slowest:.1f} s, {all_came(crew, feeder)}")
        finally:
            crew.end()
            feeder.stop()
    return "; ".join(said)


@driver.check("group-slow", seconds=240, long=True)
def slow(bench):
    """GR-05: batches of half a second; joins, a leave, and a member that sleeps longer than its session."""
    partitions, count = 6, 400
    topic = bench.topic("slow", partitions)
    sent = {}
    for partition in range(partitions):
        values = numbered(count, count * partition)
        bench.write(topic, batches.batch(values), partition)
        sent |= {(partition, offset): value.decode() for offset, value in enumerate(values)}
    crew = Crew(bench, topic, partitions, bench.name("slow"), protocol="cooperative", batch=20, work_ms=25, session_ms=8_000)
    try:
        crew.start("confluent")
        crew.shared(45)
        time.sleep(2)
        leaver, sleeper = crew.start("confluent"), crew.start("confluent")
        crew.shared(45)
        time.sleep(5)
        leaver.leave()
        wait_for("a member leaves", lambda: leaver.ended is not None, 20)
        crew.shared(20)
        # It is at work when it falls asleep: what it commits afterwards is late.
        wait_for("it works", lambda: sleeper.reads and sleeper.reads[-1][2], 20)
        had = set(sleeper.has)
        sleeper.signal(signal.SIGSTOP)
        asleep = time.monotonic()
        first = crew.members[0]
        wait_for("the others have all", lambda: first.has == set(range(partitions)), 40)
        with bench.connect() as connection:
            before = committed(connection, crew.group, topic, range(partitions))
        time.sleep(max(0.0, 20 - (time.monotonic() - asleep)))
        sleeper.signal(signal.SIGCONT)
        woke = time.monotonic()
        wait_for("it says what became of its commit", lambda: any(
            at > woke and said is not None for at, _, said in sleeper.reads) or sleeper.has != had, 30)
        late = [said for at, _, said in sleeper.reads if asleep < at < woke + 2 and said]
        with bench.connect() as connection:
            after = committed(connection, crew.group, topic, range(partitions))
        holds(f"offsets went back: {before} to {after}", all(after[at] >= before[at] for at in before))
        wait_for("all numbers", lambda: not crew.missing(sent), 120)
        wait_for("the last commit", lambda: all(member.reads[-1][2] for member in crew.living() if member.reads), 20)
        crew.end()
        # While it slept it did not know that it had nothing.
        repeats = crew.judge(sent, fenced=True)
        all_committed(bench, crew)
        return f"{len(sent)} numbers, {repeats} came twice; what the one that slept heard of its commit: {late or 'it made none'}"
    finally:
        sleeper = locals().get("sleeper")
        if sleeper and sleeper.ended is None:
            sleeper.signal(signal.SIGCONT)
        crew.end()


if __name__ == "__main__":
    driver.main()
