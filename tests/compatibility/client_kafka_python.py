#!/usr/bin/env python3
"""kafka-python: the checks of common.py."""

import time

import kafka
import kafka.errors
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

import batches
from checks import Driver, Refused, Row, expect, holds, numbered
from common import install


class ProducerAdapter:
    def __init__(self, address, idempotent=False, codec="none", acks="all", linger_ms=5, size=4 << 20, patience=60, batch_bytes=16_384):
        self.futures = []
        self.producer = KafkaProducer(
            bootstrap_servers=address, enable_idempotence=idempotent, compression_type=None if codec == "none" else codec, acks=acks,
            linger_ms=linger_ms, max_request_size=size, delivery_timeout_ms=patience * 1000, request_timeout_ms=min(30, patience) * 1000 - 1000,
            batch_size=batch_bytes, reconnect_backoff_max_ms=500,
        )

    def send(self, topic, row, partition):
        future = self.producer.send(topic, row.value, row.key, row.headers, partition, row.time)
        self.futures.append(future)

    def flush(self):
        self.producer.flush()
        found, self.futures = self.futures, []
        return [type(future.exception).__name__ if future.exception else future.value.offset for future in found]

    def close(self):
        self.producer.close(5)


class ConsumerAdapter:
    def __init__(self, address, topic, starts, partition_bytes=None, total_bytes=None, min_bytes=None, wait_ms=None):
        settings = {"max_partition_fetch_bytes": partition_bytes, "fetch_max_bytes": total_bytes, "fetch_min_bytes": min_bytes, "fetch_max_wait_ms": wait_ms}
        self.consumer = KafkaConsumer(
            bootstrap_servers=address, group_id=None, enable_auto_commit=False, check_crcs=True,
            **{key: value for key, value in settings.items() if value})
        self.topic, self.rows = topic, []
        self.consumer.assign([TopicPartition(topic, partition) for partition in starts])
        for partition, start in starts.items():
            place = TopicPartition(topic, partition)
            if start == "earliest":
                self.consumer.seek_to_beginning(place)
            elif start == "latest":
                self.consumer.seek_to_end(place)
            else:
                self.consumer.seek(place, start)

    def take(self, seconds):
        if not self.rows:
            for records in self.consumer.poll(timeout_ms=int(seconds * 1000)).values():
                self.rows += records
        if not self.rows:
            return None
        found = self.rows.pop(0)
        return found.partition, Row(found.value, found.key, found.headers, found.timestamp, found.offset)

    def position(self, partition):
        return self.consumer.position(TopicPartition(self.topic, partition))

    def ended(self, partition):
        place = TopicPartition(self.topic, partition)
        return self.consumer.position(place) == self.consumer.end_offsets([place])[place]

    def close(self):
        self.consumer.close()


class Adapter:
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    own_times = True
    # A producer of it takes no null header.
    null_headers = False
    too_large = "MessageSizeTooLarge"
    # Of one partition it sends the next batch when the last was answered, whatever the setting says.
    in_flight = 1
    producer = ProducerAdapter
    consumer = ConsumerAdapter

    def _consumer(self, address, ask):
        consumer = KafkaConsumer(bootstrap_servers=address, group_id=None)
        try:
            return ask(consumer)
        finally:
            consumer.close()

    def _admin(self, address, ask):
        """What the call gives, or the name of its error."""
        admin = KafkaAdminClient(bootstrap_servers=address)
        try:
            return ask(admin)
        except kafka.errors.KafkaError as said:
            return type(said).__name__
        finally:
            admin.close()

    def offset_for(self, address, topic, at):
        place = TopicPartition(topic, 0)
        found = self._consumer(address, lambda consumer: consumer.offsets_for_times({place: at}))[place]
        return found.offset if found else None

    def ends(self, address, topic):
        place = TopicPartition(topic, 0)
        return self._consumer(address, lambda consumer: (consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]))

    def create(self, address, topic, partitions, configs):
        said = self._admin(address, lambda admin: admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)]))
        return said if isinstance(said, str) else None

    def delete(self, address, topic):
        said = self._admin(address, lambda admin: admin.delete_topics([topic]))
        return said if isinstance(said, str) else None

    def describe(self, address, topic):
        found = self._admin(address, lambda admin: admin.describe_topics([topic]))
        if isinstance(found, str) or found[0]["error_code"]:
            return None
        return len(found[0]["partitions"])

    def configs(self, address, topic):
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._admin(address, lambda admin: admin.describe_configs([resource], config_filter="all"))
        # It leaves out the error of an unknown topic and gives no settings.
        if isinstance(found, str) or not found["topic"][topic]:
            return None
        return {key: entry["value"] for key, entry in found["topic"][topic].items()}

    def grow(self, address, topic, partitions):
        said = self._admin(address, lambda admin: admin.create_partitions({topic: NewPartitions(partitions)}))
        return said if isinstance(said, str) else None

    def cluster(self, address):
        found = self._admin(address, lambda admin: admin.describe_cluster())
        return [f"{node['host']}:{node['port']}" for node in found["brokers"]], found["controller_id"], found["cluster_id"]

    def delete_records(self, address, topic, offset):
        said = self._admin(address, lambda admin: admin.delete_records({TopicPartition(topic, 0): offset}))
        return said if isinstance(said, str) else None


driver = Driver(f"kafka-python {kafka.__version__}")
install(driver, Adapter())


@driver.check("group")
def group(bench):
    topic = bench.topic("group")
    bench.write(topic, batches.batch(numbered(10)))
    # A consumer reads and commits half of it; the next one of the group goes on there.
    name = bench.name("group")
    for half in (numbered(10)[:5], numbered(10)[5:]):
        consumer = KafkaConsumer(
            topic, bootstrap_servers=bench.address, group_id=name, enable_auto_commit=False, auto_offset_reset="earliest", max_poll_records=5,
        )
        found, ends = [], time.monotonic() + 30
        while len(found) < len(half) and time.monotonic() < ends:
            found += [row.value for rows in consumer.poll(timeout_ms=1000).values() for row in rows]
        expect("the records", found, half)
        consumer.commit()
        consumer.close()
    # Who assigns partitions may have a group all the same.
    consumer = KafkaConsumer(bootstrap_servers=bench.address, group_id=bench.name("group"), enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        expect("the record", [row.value for row in next(iter(consumer.poll(timeout_ms=10_000).values()))], numbered(10))
    finally:
        consumer.close()


if __name__ == "__main__":
    driver.main()
