#!/usr/bin/env python3
"""One member of a consumer group, in a process of its own, so that it can be killed: confluent-kafka, kafka-python or aiokafka.

    member.py LIBRARY SETTINGS       SETTINGS is a JSON object, see `Settings` below

It reads, works, commits what it read, and says each step as a JSON object per line, with the moment by the machine's passing time:
    {"at": .., "has": [partition, ..]}           what it has from now on; with "gets": true where a generation gave it something, or nothing
    {"at": .., "read": [[partition, offset, value], ..]}
    {"at": .., "committed": true | "ERROR"}      what became of the commit of what it read last
    {"at": .., "error": "NAME"}                  something else that went wrong
    {"at": .., "left": true}                     it closed its consumer in order
A line on its input, or the end of it, makes it leave.
"""

import asyncio
import json
import sys
import threading
import time

leaves = threading.Event()


class Settings:
    """address, group, topic, protocol (eager, cooperative, consumer), instance, session_ms, batch, work_ms for each record, reset,
    refresh_ms, commits (false: never)."""

    def __init__(self, text):
        self.instance, self.session_ms, self.batch, self.work_ms = None, 6_000, 50, 0
        self.protocol, self.reset, self.refresh_ms, self.commits = "eager", "earliest", 5_000, True
        self.__dict__.update(json.loads(text))


def say(**words):
    print(json.dumps({"at": time.monotonic(), **words}), flush=True)


def listen():
    sys.stdin.readline()
    leaves.set()


def work(settings, rows):
    """What was read is told when the work is done, so that a commit covers what was told."""
    time.sleep(settings.work_ms * len(rows) / 1000)
    say(read=rows)


class Held:
    """What it has; every change is told."""

    def __init__(self):
        self.partitions = set()

    def gets(self, partitions, anew=False):
        self.partitions = set(partitions) if anew else self.partitions | set(partitions)
        say(has=sorted(self.partitions), gets=True)

    def gives(self, partitions):
        self.partitions -= set(partitions)
        say(has=sorted(self.partitions))


def confluent(settings):
    from confluent_kafka import Consumer, KafkaException

    asked = {
        "bootstrap.servers": settings.address, "group.id": settings.group, "auto.offset.reset": settings.reset, "enable.auto.commit": False,
        "log_level": 0, "topic.metadata.refresh.interval.ms": settings.refresh_ms, "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 500,
    }
    if settings.protocol == "consumer":
        asked["group.protocol"] = "consumer"
    else:
        strategy = {"eager": "range", "cooperative": "cooperative-sticky"}[settings.protocol]
        asked |= {"partition.assignment.strategy": strategy, "session.timeout.ms": settings.session_ms, "heartbeat.interval.ms": 500}
    if settings.instance:
        asked["group.instance.id"] = settings.instance
    held = Held()
    consumer = Consumer(asked)
    consumer.subscribe(
        [settings.topic],
        on_assign=lambda _, places: held.gets([place.partition for place in places]),
        on_revoke=lambda _, places: held.gives([place.partition for place in places]),
        on_lost=lambda _, places: held.gives([place.partition for place in places]))
    while not leaves.is_set():
        rows = []
        last = {}
        for message in consumer.consume(settings.batch, 0.2):
            if said := message.error():
                say(error=f"fatal {said.name()}" if said.fatal() else said.name())
                if said.fatal():
                    return
                continue
            rows.append([message.partition(), message.offset(), message.value().decode()])
            last[message.partition()] = message
        if not rows:
            continue
        work(settings, rows)
        try:
            if settings.commits:
                from confluent_kafka import TopicPartition
                places = [TopicPartition(settings.topic, at, message.offset() + 1) for at, message in last.items()]
                wrong = [place.error for place in consumer.commit(offsets=places, asynchronous=False) if place.error]
                say(committed=wrong[0].name() if wrong else True)
        except KafkaException as failure:
            say(committed=failure.args[0].name())
            if failure.args[0].fatal():
                say(error=f"fatal {failure.args[0].name()}")
                return
    consumer.close()
    say(left=True)


def kafka_python(settings):
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    held = Held()

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            held.gives([place.partition for place in revoked])

        def on_partitions_assigned(self, assigned):
            held.gets([place.partition for place in assigned])

        def on_partitions_lost(self, lost):
            held.gives([place.partition for place in lost])

    strategy = CooperativeStickyAssignor if settings.protocol == "cooperative" else RangePartitionAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=settings.address, group_id=settings.group, group_instance_id=settings.instance, enable_auto_commit=False,
        auto_offset_reset=settings.reset, session_timeout_ms=settings.session_ms, heartbeat_interval_ms=500,
        max_poll_records=settings.batch, metadata_max_age_ms=settings.refresh_ms, fetch_max_wait_ms=100,
        partition_assignment_strategy=[strategy], reconnect_backoff_max_ms=500)
    consumer.subscribe([settings.topic], listener=Listener())
    while not leaves.is_set():
        found = consumer.poll(timeout_ms=200)
        rows = [[row.partition, row.offset, row.value.decode()] for part in found.values() for row in part]
        if not rows:
            continue
        work(settings, rows)
        try:
            if settings.commits:
                consumer.commit({place: OffsetAndMetadata(part[-1].offset + 1, "", -1) for place, part in found.items()})
                say(committed=True)
        except KafkaError as failure:
            say(committed=type(failure).__name__)
            if "Fenced" in type(failure).__name__:
                raise
    consumer.close()
    say(left=True)


async def aiokafka(settings):
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    held = Held()

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            held.gives([place.partition for place in revoked])

        async def on_partitions_assigned(self, assigned):
            held.gets([place.partition for place in assigned], anew=True)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.address, group_id=settings.group, group_instance_id=settings.instance, enable_auto_commit=False,
        auto_offset_reset=settings.reset, session_timeout_ms=settings.session_ms, heartbeat_interval_ms=500,
        max_poll_records=settings.batch, metadata_max_age_ms=settings.refresh_ms, fetch_max_wait_ms=100,
        partition_assignment_strategy=[RangePartitionAssignor])
    consumer.subscribe([settings.topic], listener=Listener())
    await consumer.start()
    while not leaves.is_set():
        found = await consumer.getmany(timeout_ms=200)
        rows = [[row.partition, row.offset, row.value.decode()] for part in found.values() for row in part]
        if not rows:
            continue
        work(settings, rows)
        try:
            if settings.commits:
                await consumer.commit({place: part[-1].offset + 1 for place, part in found.items()})
                say(committed=True)
        except KafkaError as failure:
            say(committed=type(failure).__name__)
    await consumer.stop()
    say(left=True)


def main():
    library, settings = sys.argv[1], Settings(sys.argv[2])
    threading.Thread(target=listen, daemon=True).start()
    try:
        if library == "aiokafka":
            asyncio.run(aiokafka(settings))
        else:
            {"confluent": confluent, "kafka-python": kafka_python}[library](settings)
    except Exception as failure:  # Whatever a library throws is told; the member is out then.
        say(error=f"fatal {type(failure).__name__}: {failure}")


main()
