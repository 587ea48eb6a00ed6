#!/usr/bin/env python3
"""Hulse's own wire, by a client that is generated from its protos: produce, read, subscribe, shared work, and what is refused.

Needs --grpc ADDRESS, and grpcio with its tools (requirements.txt).
"""

from checks import Driver, NotRun, expect, holds
from grpc_client import Client, Consume, Fault, Produce, consume, subscriptions

driver = Driver("Python, generated from the protos")

EXCLUSIVE = subscriptions.SUBSCRIPTION_TYPE_EXCLUSIVE
QUEUE = subscriptions.SUBSCRIPTION_TYPE_QUEUE
KEYED = subscriptions.SUBSCRIPTION_TYPE_KEYED


def begin(bench, stem, rows=()):
    """A client, and a partition with these records, one batch."""
    if not bench.options.grpc:
        raise NotRun("needs --grpc ADDRESS")
    client = Client(bench.options.grpc)
    topic = bench.name(stem)
    client.create_topic(topic)
    partition = client.partition(topic)
    if rows:
        session = Produce(client, partition)
        session.send(session.batch(rows))
        session.end()
    return client, topic, partition


def values(count, key=None):
    return [(key, b"%d" % number, []) for number in range(count)]


def refused(reason, fate, call):
    """The call is refused with this reason, and this is said of what became of it."""
    try:
        found = call()
    except Fault as fault:
        expect("reason", fault.reason, reason)
        expect("fate", fault.fate, fate)
        holds("a refusal has no words", fault.message)
        return fault
    raise AssertionError(f"{found} instead of {reason}")


@driver.check("grpc-produce-read")
def produce_read(bench):
    """What is acknowledged is read: keys, values, headers, absent ones, times."""
    client, _, partition = begin(bench, "read")
    session = Produce(client, partition)
    rows = [(b"k", b"v", [(b"a", b"1"), (b"a", b"2"), (b"none", None)]), (b"", b"", []), (None, b"x" * 100_000, []), (b"gone", None, [])]
    expect("base offset", session.send(session.batch(rows)).base_offset, 0)
    expect("base offset", session.send(session.batch(values(3))).base_offset, 4)
    found = client.read(partition)
    expect("offsets", [row[0] for row in found], list(range(7)))
    expect("times", {row[1] for row in found}, {1_700_000_000_000})
    expect("records", [(key, value, [tuple(header) for header in headers]) for _, _, key, value, headers in found][:4], rows)
    expect("from the middle", [row[3] for row in client.read(partition, 5) if row[0] >= 5], [b"1", b"2"])
    offsets = client.offsets(partition)
    expect("log start and high watermark", (offsets.log_start, offsets.high_watermark), (0, 7))
    session.end()


@driver.check("grpc-idempotence")
def idempotence(bench):
    """A batch that is sent again is told as a duplicate, at its first place; a gap of sequences is refused."""
    client, _, partition = begin(bench, "again")
    producer = client.new_producer()
    session = Produce(client, partition, producer)
    batch = session.batch(values(2))
    first, again = session.send(batch), session.send(batch)
    expect("the first one", (first.base_offset, first.duplicate), (0, False))
    expect("again", (again.base_offset, again.duplicate), (0, True))
    refused("OUT_OF_ORDER_SEQUENCE", "NOT_APPLIED", lambda: session.send(session.batch(values(1), sequence=9)))
    refused("NACKED_BEFORE", "NOT_APPLIED", lambda: session.send(session.batch(values(1), sequence=2)))
    session.resume()
    expect("after Resume", session.send(session.batch(values(1), sequence=2)).base_offset, 2)
    session.end()
    resumed = Produce(client, partition, producer)
    expect("what is known", (resumed.opened.last_epoch, resumed.opened.last_sequence), (producer[1], 2))
    expect("records", len(client.read(partition)), 3)
    resumed.end()


@driver.check("grpc-subscribe")
def subscribe(bench):
    """An EXCLUSIVE consumer gets what is not acked, in order, and no second one is let in beside it."""
    client, _, partition = begin(bench, "alone", values(10))
    name = bench.name("s")
    first = Consume(client, partition, name, EXCLUSIVE, "one")
    refused("CONSUMER_EXISTS", "NOT_APPLIED", lambda: Consume(client, partition, name, EXCLUSIVE, "two"))
    first.nothing(0.3)
    first.grant(100)
    rows, epoch = first.delivery()
    expect("records", [(offset, value) for offset, _, value, _ in rows], [(at, b"%d" % at) for at in range(10)])
    expect("acks", first.say([0, 1, 5], epoch), ["OK", "OK", "OK"])
    expect("beyond the end", first.say([20], epoch), ["INVALID"])
    first.detach()
    second = Consume(client, partition, name, EXCLUSIVE, "two")
    expect("base", second.attached.base, 2)
    expect("acked above it", [(one.first, one.end) for one in second.attached.acked], [(5, 6)])
    second.grant(100)
    rows, epoch = second.delivery()
    expect("the rest", [row[0] for row in rows], [2, 3, 4, 6, 7, 8, 9])
    expect("all below", second.say([9], epoch, consume.ACK_KIND_CUMULATIVE), ["OK"])
    second.detach()


@driver.check("grpc-queue")
def shared_work(bench):
    """Each record is acked by itself; one that is returned comes again and says the how manieth time; credit is kept to."""
    client, _, partition = begin(bench, "jobs")
    session = Produce(client, partition)
    for number in range(6):
        session.send(session.batch([(None, b"%d" % number, [])]))
    session.end()
    name = bench.name("s")
    one = Consume(client, partition, name, QUEUE, "one")
    one.grant(4)
    rows = [row for _ in range(4) for row in one.delivery()[0]]
    expect("first deliveries", [(row[0], row[3]) for row in rows], [(0, 1), (1, 1), (2, 1), (3, 1)])
    one.nothing(0.3)
    expect("acks", one.say([0, 2], 0), ["OK", "OK"])
    expect("acked before", one.say([0], 0), ["OK"])
    expect("nobody's yet", one.say([5], 0), ["NOT_OWNED"])
    expect("beyond the end", one.say([99], 0), ["INVALID"])
    expect("a return that failed", one.say([1], 0, consume.ACK_KIND_RETURN, failed=True), ["OK"])
    one.grant(1)
    rows, _ = one.delivery()
    expect("it comes again", [(row[0], row[2], row[3]) for row in rows], [(1, b"1", 2)])
    two = Consume(client, partition, name, QUEUE, "two")
    two.grant(2)
    rows = [row for _ in range(2) for row in two.delivery()[0]]
    expect("what is left is the other's", [row[0] for row in rows], [4, 5])
    expect("not its own", two.say([3], 0), ["NOT_OWNED"])
    expect("a return that was not tried", one.say([3], 0, consume.ACK_KIND_RETURN), ["OK"])
    two.grant(1)
    rows, _ = two.delivery()
    expect("it comes at the other one", [row[0] for row in rows], [3])
    expect("acks", two.say([3, 4, 5], 0), ["OK"] * 3)
    # What it has is the other's at once when it goes.
    one.detach()
    two.grant(1)
    expect("what was left", [row[0] for row in two.delivery()[0]], [1])
    expect("ack", two.say([1], 0), ["OK"])
    two.detach()
    described = client.call(client.subscriptions.Describe, subscriptions.DescribeSubscriptionRequest(subscription=name))
    expect("backlog", [cursor.backlog_records for cursor in described.cursors], [0])


@driver.check("grpc-dead-letter")
def dead_letter(bench):
    """A record that failed too often is copied to the topic of dead letters, with where it comes from."""
    client, topic, partition = begin(bench, "jobs", values(2))
    graves = bench.name("graves")
    sharing = subscriptions.SharingPolicies(attempts_max=2, dead_letters=subscriptions.DEAD_LETTERS_TOPIC, dead_letter_topic=graves)
    policies = subscriptions.SubscriptionPolicies(sharing=sharing)
    one = Consume(client, partition, bench.name("s"), QUEUE, "one", policies=policies)
    one.grant(10)
    rows, _ = one.delivery()
    expect("both", [(row[0], row[3]) for row in rows], [(0, 1), (1, 1)])
    expect("acked", one.say([1], 0), ["OK"])
    expect("failed", one.say([0], 0, consume.ACK_KIND_RETURN, failed=True), ["OK"])
    rows, _ = one.delivery()
    expect("again", [(row[0], row[3]) for row in rows], [(0, 2)])
    expect("failed", one.say([0], 0, consume.ACK_KIND_RETURN, failed=True), ["OK"])
    rows = []
    for _ in range(100):
        one.nothing(0.1)
        try:
            rows = client.read(client.partition(graves))
        except Fault as fault:
            expect("no letter yet", fault.reason, "TOPIC_NOT_FOUND")
        if rows:
            break
    expect("the letter", [row[3] for row in rows], [b"0"])
    headers = dict(rows[0][4])
    expect("where from", (headers[b"hulse.dead-letter.source"].decode().split("/")[2], headers[b"hulse.dead-letter.offset"]), (topic, b"0"))
    one.detach()


@driver.check("grpc-keyed")
def keyed(bench):
    """Records of a key are at one consumer."""
    client, _, partition = begin(bench, "keyed")
    name = bench.name("s")
    both = [Consume(client, partition, name, KEYED, who) for who in ("a", "b")]
    session = Produce(client, partition)
    for number in range(64):
        session.send(session.batch([(b"key %d" % (number % 16), b"%d" % number, [])]))
    session.end()
    for consumer in both:
        consumer.grant(1_000)
    keys = [{}, {}]
    for place, consumer in enumerate(both):
        try:
            while True:
                for offset, key, _, _ in consumer.delivery(patience=1)[0]:
                    keys[place].setdefault(key, []).append(offset)
        except Exception as over:
            expect("the end of what comes", type(over).__name__, "Empty")
    expect("keys at both", set(keys[0]) & set(keys[1]), set())
    expect("records", sum(len(all_) for half in keys for all_ in half.values()), 64)
    holds("one consumer has all keys", keys[0] and keys[1])
    holds("a key is out of order", all(all_ == sorted(all_) for half in keys for all_ in half.values()))
    for consumer in both:
        consumer.detach()


@driver.check("grpc-errors")
def errors(bench):
    """Refusals have a reason, a fate and words, as a status, in an answer and on a stream."""
    client, topic, partition = begin(bench, "errors", values(3))
    exists = refused("TOPIC_EXISTS", "NOT_APPLIED", lambda: client.create_topic(topic))
    expect("code", exists.details["code"], "ALREADY_EXISTS")
    refused("INVALID_NAME", "NOT_APPLIED", lambda: client.create_topic("no name!"))
    refused("TOPIC_NOT_FOUND", "NOT_APPLIED", lambda: client.partition(bench.name("missing")))
    outside = refused("OFFSET_OUT_OF_RANGE", "NOT_APPLIED", lambda: client.read(partition, 99))
    expect("code", outside.details["code"], "OUT_OF_RANGE")
    session = Produce(client, partition)
    batch = bytearray(session.batch(values(1)))
    batch[-1] ^= 1
    refused("BATCH_CORRUPT", "NOT_APPLIED", lambda: session.send(bytes(batch)))
    session.resume()
    expect("it goes on", session.send(session.batch(values(1))).base_offset, 3)
    session.end()
    name = bench.name("s")
    Consume(client, partition, name, QUEUE, "one").detach()
    refused("SUBSCRIPTION_EXISTS", "NOT_APPLIED", lambda: Consume(client, partition, name, EXCLUSIVE, "two"))


driver.main()
