#!/usr/bin/env python3
"""A consumer of kafka-python that follows partition 0 of a topic, and prints offset and value of each record, until its standard input ends.

Usage: kafka_consumer.py ADDRESS TOPIC
"""

import select
import sys

from kafka import KafkaConsumer, TopicPartition


def main():
    address, topic = sys.argv[1:]
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None, auto_offset_reset="earliest", metadata_max_age_ms=500)
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                print(record.offset, record.value.decode(), flush=True)
    consumer.close()


main()
