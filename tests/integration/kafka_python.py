#!/usr/bin/env python3
"""kafka-python against a server: produces with every codec, reads by assignment, asks for times; prints what it saw as JSON.

Usage: kafka_python.py ADDRESS write|read TOPIC. `write` sends records with every codec, `read` reads what somebody else wrote.
"""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
RECORDS = 50


def write(address, topic):
    offsets = []
    for number, codec in enumerate(CODECS):
        producer = KafkaProducer(bootstrap_servers=address, compression_type=codec, enable_idempotence=number % 2 == 0, linger_ms=20)
        sent = [
            producer.send(topic, key=b"key-%d" % index, value=b"%s-%d" % (str(codec).encode(), index),
                          headers=[("trace", b"1"), ("trace", b"2")], timestamp_ms=1_700_000_000_000 + RECORDS * number + index, partition=0)
            for index in range(RECORDS)
        ]
        producer.flush(20)
        offsets += [future.get(20).offset for future in sent]
        producer.close()
    return {"offsets": offsets}


def read(address, topic):
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, consumer_timeout_ms=10_000)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    end = consumer.end_offsets([place])[place]
    records = []
    for record in consumer if end else ():
        headers = [[name, value.decode()] for name, value in record.headers]
        key = record.key and record.key.decode()
        records.append([record.offset, record.timestamp, key, record.value.decode(), headers])
        if record.offset + 1 >= end:
            break
    times = {}
    for index in (0, len(records) // 2, len(records) - 1):
        found = consumer.offsets_for_times({place: records[index][1]})[place]
        times[index] = [found.offset, found.timestamp]
    after = consumer.offsets_for_times({place: 1 << 50})[place]
    consumer.close()
    return {"records": records, "times": times, "after": after}


def main():
    address, what, topic = sys.argv[1:]
    print(json.dumps({"write": write, "read": read}[what](address, topic)))


main()
