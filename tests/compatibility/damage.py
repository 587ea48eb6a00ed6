"""The check of a partition in which storage has lost a record for ever: what a client hears, and that it does not wait for ever."""

import json
import pathlib
import subprocess
import sys
import time

import batches
import wire
from checks import NODE, NotRun, expect, holds, numbered

MARKER = b"-- this record is lost in storage --"
LOST = 10


def damaged(bench):
    """A topic of 21 records in batches that are durable one by one; the second has one record, and cannot be read any more."""
    if not bench.options.node:
        raise NotRun("needs --node FOLDER, to damage what the server has stored and start it again")
    folder = pathlib.Path(bench.options.node) / "hulse" / "bookie"
    if not folder.exists():
        raise NotRun("knows only what this server stores where")
    topic = bench.topic("damaged")
    lost = MARKER + bench.run.encode() + topic.encode()
    for values in (numbered(LOST), [lost], numbered(10, LOST + 1)):
        bench.write(topic, batches.batch(values))
    # In good order, so that a start has nothing of it to read again, and finds all of it closed.
    kept = json.loads((pathlib.Path(bench.options.node) / "node.json").read_text())
    node("stop", "--data", bench.options.node)
    flipped = sum(flip(file, lost) for file in folder.glob("*.log"))
    settings = [word for key, value in kept["settings"].items() for word in ("--set", f"{key}={value}")]
    node("start", kept["what"], "--binary", kept["program"], "--data", bench.options.node, "--port", kept["port"], *settings)
    holds("the record is in no log file", flipped)
    # It may not open: a start reads again what no snapshot of its state has. What is certain is read all the same.
    until = time.monotonic() + 30
    while fetched(bench, topic, 0) != "NONE":
        holds("the first record cannot be read after 30 s", time.monotonic() < until)
        time.sleep(0.2)
    return topic


def node(*words):
    subprocess.run([sys.executable, NODE, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def flip(file, marker):
    """Changes a byte of each place where it stands; how many there were."""
    with open(file, "r+b") as log:
        content, at, found = log.read(), 0, 0
        while (at := content.find(marker, at)) >= 0:
            log.seek(at + 3)
            log.write(bytes([content[at + 3] ^ 0x55]))
            at, found = at + 1, found + 1
    return found


def fetched(bench, topic, offset):
    """What a fetch without the client is answered there."""
    with bench.connect() as connection:
        return wire.error(wire.fetch(connection, [(topic, 0, offset, 1 << 20)], max_wait_ms=50)[0][2])


def told_raw(bench, topic):
    """Fetch and ListOffsets around the lost record, without the client."""
    for offset, code in ((0, "NONE"), (LOST - 1, "NONE"), (LOST, "CORRUPT_MESSAGE"), (LOST + 1, "NONE"), (2 * LOST, "NONE")):
        expect(f"fetch at {offset}", fetched(bench, topic, offset), code)
    with bench.connect() as connection:
        code, _, found = wire.list_offset(connection, topic, -2)
        expect("the earliest place", (wire.error(code), found), ("NONE", 0))


def install_damage(driver, adapter):
    """Adds the check."""
    @driver.check("damaged", seconds=150)
    def hears_of_damage(bench):
        topic = damaged(bench)
        told_raw(bench, topic)
        consumer = adapter.consumer(bench.address, topic, {0: "earliest"})
        rows, words, began = [], None, time.monotonic()
        try:
            while words is None and time.monotonic() - began < 60:
                try:
                    taken = consumer.take(0.5)
                except Exception as heard:  # Whatever the library makes of it.
                    words = f"{type(heard).__name__}: {heard}"
                else:
                    rows += [taken[1]] if taken else []
        finally:
            consumer.close()
        holds(f"{len(rows)} records, and not a word for 60 s", words)
        took = time.monotonic() - began
        expect("records below", [row.value for row in rows], numbered(LOST))
        # Who knows what is lost reads on behind it.
        consumer = adapter.consumer(bench.address, topic, {0: LOST + 1})
        try:
            expect("records above", [row.value for row in _drain(consumer, 10)], numbered(10, LOST + 1))
        finally:
            consumer.close()
        return f"told after {took:.1f} s: {words[:120]}"


def _drain(consumer, count):
    rows, until = [], time.monotonic() + 30
    while len(rows) < count and time.monotonic() < until:
        taken = consumer.take(0.5)
        rows += [taken[1]] if taken else []
    return rows
