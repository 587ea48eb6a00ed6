"""Checks in which something breaks under a producer: connections, the server, the topic, the server's memory of it (OR-03, LD-06, LD-07)."""

import time

import wire
from checks import NotRun, Row, expect, holds, in_order, numbered
from proxy import Proxy


def _stored(outcomes):
    wrong = [outcome for outcome in outcomes if not isinstance(outcome, int)]
    holds(f"{len(wrong)} of {len(outcomes)} not stored: {wrong[:1]}", not wrong)


def _values(bench, topic, partition=0):
    return [row.value for row in bench.read(topic, partition)]


def install_cuts(driver, adapter):
    """Adds the checks."""
    @driver.check("order-cuts", seconds=180)
    def order_cuts(bench):
        wanted = 20 if bench.long else 5
        topic = bench.topic("cuts")
        proxy = Proxy(bench.address)
        values, outcomes, cuts = [], [], 0
        try:
            producer = adapter.producer(proxy.address, idempotent=True, linger_ms=0, batch_bytes=500)
            # A piece misses its cut where the machine is too busy to have so many requests open.
            while cuts < wanted and len(values) < 600 * wanted:
                piece = numbered(200, len(values), size=100)
                values += piece
                cut, proxy.late = False, 0.1
                for value in piece:
                    producer.send(topic, Row(value), 0)
                    # librdkafka sends at once what comes to an empty queue; once something waits there, it sends only as answers come.
                    time.sleep(0.001)
                    if not cut and proxy.open >= adapter.in_flight:
                        cut, proxy.late = bool(proxy.cut()), 0.0
                proxy.late = 0.0
                outcomes += producer.flush()
                cuts += cut
            producer.close()
        finally:
            proxy.close()
        _stored(outcomes)
        in_order(_values(bench, topic), values)
        holds(f"only {cuts} cuts with {adapter.in_flight} requests open", cuts >= wanted)
        return f"{len(values)} records, {cuts} cuts with {adapter.in_flight} requests open"

    @driver.check("recreate", seconds=120)
    def recreate(bench):
        topic = bench.topic("recreate")
        producer = adapter.producer(bench.address, idempotent=True, linger_ms=0, patience=10)
        for value in numbered(20):
            producer.send(topic, Row(value), 0)
        _stored(producer.flush())
        with bench.connect() as connection:
            expect("delete", wire.delete_topic(connection, topic), 0)
            until = time.monotonic() + 20
            while (code := wire.create_topic(connection, topic)) != 0:
                holds(f"created again: {wire.error(code)}", time.monotonic() < until)
                time.sleep(0.1)
        bench.wait_for(topic, 1)
        began, errors, kept = time.monotonic(), [], []
        for value in numbered(2_000, 100):
            producer.send(topic, Row(value), 0)
            said = producer.flush()[0]
            if isinstance(said, int):
                kept.append(value)
            elif said not in errors:
                errors.append(said)
            if len(kept) == 20:
                break
            holds(f"no record is stored after 60 s: {errors}", kept or time.monotonic() - began < 60)
        producer.close()
        found = _values(bench, topic)
        in_order([value for value in found if value in set(kept)], kept)
        holds("a record of the first topic is in the second", not set(found) & set(numbered(20)))
        return f"errors on the way: {', '.join(errors) or 'none'}"

    @driver.check("retry-window", seconds=600, long=True)
    def retry_window(bench):
        if not bench.can_kill:
            raise NotRun("needs --node FOLDER or --kill COMMAND, to kill the server and start it again")
        count, partitions = 200_000, 6
        topic = bench.topic("window", partitions)
        proxy = Proxy(bench.address, late=0.02)
        values = numbered(count, size=100)
        producer = adapter.producer(proxy.address, idempotent=True, linger_ms=0, patience=300, batch_bytes=4_000)
        kills = cuts = 0
        began = time.monotonic()
        try:
            for number, value in enumerate(values):
                producer.send(topic, Row(value), number % partitions)
                if number % 1_000 == 0:
                    time.sleep(max(0.0, began + number / 3_000 - time.monotonic()))
                if number % 30_000 == 15_000 and kills < 6:
                    bench.kill()
                    kills += 1
                if number > 70_000 * (cuts + 1) and cuts < 2 and proxy.open >= adapter.in_flight:
                    cuts += bool(proxy.cut(down=3))
            outcomes = producer.flush()
            producer.close()
        finally:
            proxy.close()
        _stored(outcomes)
        for partition in range(partitions):
            in_order(_values(bench, topic, partition), values[partition::partitions])
        return f"{count} records, {kills} kills, {cuts} cuts with {adapter.in_flight} requests open"

    @driver.check("idle-producer", seconds=400)
    def idle(bench):
        pause = 1.5 * bench.expiry()
        topic = bench.topic("idle")
        producer = adapter.producer(bench.address, idempotent=True, linger_ms=0)
        words = ""
        for group in range(3):
            if group:
                time.sleep(pause)
            if group == 2 and bench.can_kill:
                bench.kill()
                words = ", a restart in between"
            for value in numbered(10, 10 * group):
                producer.send(topic, Row(value), 0)
            _stored(producer.flush())
        producer.close()
        in_order(_values(bench, topic), numbered(30))
        return f"silent for {pause:.0f} s twice{words}"
