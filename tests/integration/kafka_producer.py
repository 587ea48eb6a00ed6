#!/usr/bin/env python3
"""An idempotent producer that lives as long as its standard input: for each line, a number, it sends so many records, numbers padded to
eight digits from 0 on, and prints their offsets as JSON.

Usage: kafka_producer.py ADDRESS kafka-python|confluent-kafka TOPIC
"""

import json
import sys

SECONDS = 60


def kafka_python(address, topic):
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=True, linger_ms=0)

    def send(values):
        sent = [producer.send(topic, value=value, partition=0) for value in values]
        return [future.get(SECONDS).offset for future in sent]

    return send


def confluent_kafka(address, topic):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})

    def send(values):
        outcomes = []
        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=lambda said, message: outcomes.append(said.str() if said else message.offset()))
        producer.flush(SECONDS)
        return outcomes

    return send


def main():
    address, client, topic = sys.argv[1:]
    send = {"kafka-python": kafka_python, "confluent-kafka": confluent_kafka}[client](address, topic)
    number = 0
    for line in sys.stdin:
        count = int(line)
        values = [b"%08d" % value for value in range(number, number + count)]
        number += count
        print(json.dumps(send(values)), flush=True)


main()
