#!/usr/bin/env python3
"""An idempotent producer of librdkafka that goes on for a while, whatever happens to its brokers, and then tells what became of each
record as one line of JSON: `places` (partition, offset, number), `failed` (number, why), `fatal` (why).

Usage: kafka_idempotent.py ADDRESSES TOPIC PARTITIONS SECONDS
"""

import json
import sys
import time

from confluent_kafka import Producer

BURST = 20
PAUSE_S = 0.01
ANSWERED_WITHIN_S = 120


def main():
    addresses, topic, partitions, seconds = sys.argv[1:]
    places, failed, fatal = [], [], []

    def heard(error):
        if error.fatal():
            fatal.append(error.str())

    producer = Producer(
        {
            "bootstrap.servers": addresses,
            "enable.idempotence": True,
            "acks": "all",
            "max.in.flight.requests.per.connection": 5,
            "linger.ms": 0,
            "message.timeout.ms": ANSWERED_WITHIN_S * 1000,
            "error_cb": heard,
            "log_level": 0,
        }
    )

    def told(number):
        def tell(error, message):
            if error:
                failed.append([number, error.str()])
            else:
                places.append([message.partition(), message.offset(), number])

        return tell

    number, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for _ in range(BURST):
            value = b"0 %d " % number
            producer.produce(topic, value.ljust(100, b"."), partition=number % int(partitions), on_delivery=told(number))
            number += 1
        producer.poll(PAUSE_S)
    left = producer.flush(ANSWERED_WITHIN_S)
    print(json.dumps({"sent": number, "left": left, "places": places, "failed": failed, "fatal": fatal}))


main()
