#!/usr/bin/env python3
"""confluent-kafka, which carries librdkafka: the checks of common.py."""

import time

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

import batches
from checks import Driver, Row, expect, holds, numbered
from common import install


class ProducerAdapter:
    def __init__(self, address, idempotent=False, codec="none", acks="all", linger_ms=5, size=4 << 20, patience=60, batch_bytes=16_384):
        self.outcomes = []
        self.fatal = []
        self.producer = Producer({
            "bootstrap.servers": address, "enable.idempotence": idempotent, "compression.type": codec, "acks": acks, "linger.ms": linger_ms,
            "message.max.bytes": max(size, 1_000_000), "max.in.flight.requests.per.connection": 5, "message.timeout.ms": patience * 1000,
            "log_level": 0, "error_cb": self._error, "queue.buffering.max.messages": 1_000_000, "retry.backoff.ms": 100, "batch.size": batch_bytes,
            "reconnect.backoff.max.ms": 500,
        })

    def _error(self, said):
        if said.fatal():
            self.fatal.append(str(said))

    def send(self, topic, row, partition):
        place = len(self.outcomes)
        self.outcomes.append(None)

        def stored(said, message):
            self.outcomes[place] = said.name() if said else message.offset()

        extra = {} if row.time is None else {"timestamp": row.time}
        self.producer.produce(topic, row.value, row.key, partition, stored, headers=row.headers or None, **extra)
        self.producer.poll(0)

    def flush(self):
        self.producer.flush()
        found, self.outcomes = self.outcomes, []
        return self.fatal or found

    def close(self):
        self.producer.flush(5)


class ConsumerAdapter:
    def __init__(self, address, topic, starts, partition_bytes=None, total_bytes=None, min_bytes=None, wait_ms=None):
        # A group id must be given, also where nothing is committed and no group is joined.
        settings = {
            "bootstrap.servers": address, "group.id": f"none-{time.monotonic_ns()}", "enable.auto.commit": False, "enable.partition.eof": True,
            "log_level": 0, "check.crcs": True,
        }
        if partition_bytes:
            settings["max.partition.fetch.bytes"] = partition_bytes
        if total_bytes:
            settings |= {"fetch.max.bytes": total_bytes, "message.max.bytes": max(total_bytes, 1000)}
        if min_bytes:
            settings["fetch.min.bytes"] = min_bytes
        if wait_ms:
            settings["fetch.wait.max.ms"] = wait_ms
        places = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}
        self.topic, self.at_end = topic, set()
        self.consumer = Consumer(settings)
        self.consumer.assign([TopicPartition(topic, partition, places.get(start, start)) for partition, start in starts.items()])

    def take(self, seconds):
        message = self.consumer.poll(seconds)
        if message is None:
            return None
        said = message.error()
        if said:
            if said.code() == KafkaError._PARTITION_EOF:
                self.at_end.add(message.partition())
                return None
            raise KafkaException(said)
        row = Row(message.value(), message.key(), message.headers() or [], message.timestamp()[1], message.offset())
        return message.partition(), row

    def position(self, partition):
        return self.consumer.position([TopicPartition(self.topic, partition)])[0].offset

    def ended(self, partition):
        return partition in self.at_end

    def close(self):
        self.consumer.close()


def _outcome(futures):
    """`None`, or what the only future of an admin call says."""
    (future,) = futures.values()
    try:
        future.result(30)
        return None
    except KafkaException as said:
        return said.args[0].name()


class Adapter:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    own_times = True
    null_headers = True
    too_large = "MSG_SIZE_TOO_LARGE"
    in_flight = 5
    producer = ProducerAdapter
    consumer = ConsumerAdapter

    def __init__(self):
        self.admins = {}

    def _consumer(self, address):
        return Consumer({"bootstrap.servers": address, "group.id": "none", "log_level": 0})

    def _admin(self, address):
        """One client for all calls: it must outlive what it was asked."""
        if address not in self.admins:
            self.admins[address] = AdminClient({"bootstrap.servers": address, "log_level": 0})
        return self.admins[address]

    def offset_for(self, address, topic, at):
        consumer = self._consumer(address)
        found = consumer.offsets_for_times([TopicPartition(topic, 0, at)], 10)[0]
        consumer.close()
        if found.error:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else None

    def ends(self, address, topic):
        consumer = self._consumer(address)
        found = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
        consumer.close()
        return found

    def create(self, address, topic, partitions, configs):
        return _outcome(self._admin(address).create_topics([NewTopic(topic, partitions, config=configs)]))

    def delete(self, address, topic):
        return _outcome(self._admin(address).delete_topics([topic]))

    def describe(self, address, topic):
        found = self._admin(address).list_topics(timeout=10).topics.get(topic)
        return len(found.partitions) if found else None

    def configs(self, address, topic):
        (future,) = self._admin(address).describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        try:
            return {key: entry.value for key, entry in future.result(30).items()}
        except KafkaException:
            return None

    def grow(self, address, topic, partitions):
        return _outcome(self._admin(address).create_partitions([NewPartitions(topic, partitions)]))

    def cluster(self, address):
        found = self._admin(address).describe_cluster().result(30)
        return [f"{node.host}:{node.port}" for node in found.nodes], found.controller, found.cluster_id

    def delete_records(self, address, topic, offset):
        return _outcome(self._admin(address).delete_records([TopicPartition(topic, 0, offset)]))


driver = Driver(f"confluent-kafka {confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})")
install(driver, Adapter())


@driver.check("group")
def group(bench):
    topic = bench.topic("group")
    bench.write(topic, batches.batch(numbered(10)))
    for kind in (
        {"partition.assignment.strategy": "range"}, {"partition.assignment.strategy": "cooperative-sticky"},
        {"group.protocol": "consumer"}, {"group.instance.id": "fixed"},
    ):
        settings = {
            "bootstrap.servers": bench.address, "group.id": bench.name("group"), "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "log_level": 0,
        } | kind
        # A consumer reads and commits half of it; the next one of the group goes on there.
        for half in (numbered(10)[:5], numbered(10)[5:]):
            consumer = Consumer(settings)
            consumer.subscribe([topic])
            found = []
            ends = time.monotonic() + 30
            while len(found) < len(half) and time.monotonic() < ends:
                said = consumer.poll(1)
                if said is not None:
                    expect(f"{kind}: the record", said.error() or said.value(), half[len(found)])
                    found.append(said)
            expect(f"{kind}: records", len(found), len(half))
            consumer.commit(found[-1], asynchronous=False)
            consumer.close()


if __name__ == "__main__":
    driver.main()
