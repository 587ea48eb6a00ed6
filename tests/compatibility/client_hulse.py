#!/usr/bin/env python3
"""What Hulse's own client and kcat hand each other through one topic: keys, values, headers, times, and where a time is found.

Needs --hulse BINARY and --grpc ADDRESS.
"""

import json
import subprocess

from checks import Driver, NotRun, expect, holds

driver = Driver("hulse with kcat")


def run(command, feed=b""):
    done = subprocess.run([*map(str, command)], input=feed, capture_output=True, timeout=30)
    holds(f"{command[1]} ended with {done.returncode}: {done.stderr.decode()[-200:]}", done.returncode == 0)
    return done.stdout


def hulse(bench, *arguments, feed=b""):
    if not (bench.options.hulse and bench.options.grpc):
        raise NotRun("needs --hulse BINARY and --grpc ADDRESS")
    return run([bench.options.hulse, *arguments, "--server", bench.options.grpc, "--quiet"], feed)


def kcat(bench, *arguments, feed=b""):
    return run(["kcat", "-b", bench.address, *arguments], feed)


def by_hulse(bench, topic, *arguments):
    """[(offset, time, key, value, headers)] as `hulse consume` prints them."""
    out = hulse(bench, "consume", topic, "-o", "start", "-e", "--output", "json", *arguments)
    rows = [json.loads(line) for line in out.splitlines()]
    return [(row["offset"], row["timestamp"], row["key"], row["value"], [(h["name"], h["value"]) for h in row["headers"]]) for row in rows]


def by_kcat(bench, topic, start="beginning"):
    """The same as kcat prints them."""
    out = kcat(bench, "-C", "-q", "-e", "-J", "-t", topic, "-p", "0", "-o", start)
    found = []
    for row in map(json.loads, out.splitlines()):
        flat = row.get("headers", [])
        found.append((row["offset"], row["ts"], row["key"], row["payload"], list(zip(flat[::2], flat[1::2]))))
    return found


def same(bench, topic, count):
    """Both clients print the same; those records."""
    one, other = by_hulse(bench, topic), by_kcat(bench, topic)
    expect("records", len(one), count)
    for number, (left, right) in enumerate(zip(one, other)):
        expect(f"record {number} as hulse prints it, beside kcat's", left, right)
    return one


@driver.check("kcat-to-hulse-none", "kcat-to-hulse-gzip", "kcat-to-hulse-snappy", "kcat-to-hulse-lz4", "kcat-to-hulse-zstd")
def kcat_to_hulse(bench, name):
    topic = bench.topic("to-hulse")
    codec = name.rsplit("-", 1)[1]
    headers = ["-H", "a=1", "-H", "b=", "-H", "a=2", "-H", "null", "-H", "a=1"]
    kcat(bench, "-P", "-t", topic, "-p", "0", "-z", codec, "-K", ":", *headers, feed=b"k1:v1\n:v2\nk3:\n" + b"k:" + b"v" * 1000 + b"\n")
    kcat(bench, "-P", "-t", topic, "-p", "0", "-z", codec, feed=b"no key\n")
    kcat(bench, "-P", "-t", topic, "-p", "0", "-z", codec, "-K", ":", "-Z", feed=b"gone:\n")
    rows = same(bench, topic, 6)
    expect("keys", [row[2] for row in rows], ["k1", "", "k3", "k", None, "gone"])
    expect("values", [row[3] for row in rows], ["v1", "v2", "", "v" * 1000, "no key", None])
    expect("headers", rows[0][4], [("a", "1"), ("b", ""), ("a", "2"), ("null", None), ("a", "1")])


@driver.check("hulse-to-kcat-none", "hulse-to-kcat-lz4", "hulse-to-kcat-zstd")
def hulse_to_kcat(bench, name):
    topic = bench.topic("to-kcat")
    codec = name.rsplit("-", 1)[1]
    feed = b"k1 1700000000123 v1 a=1,b=,a=2,a=1\n" + b"k2 1700000000001 " + b"v" * 1000 + b" a=x\n"
    hulse(bench, "produce", topic, "-f", "%k %T %v %h\\n", "--compression", codec, feed=feed)
    hulse(bench, "produce", topic, "-f", "%k{json} %v{json}\\n", "--compression", codec, feed=b'null "no key"\n"gone" null\n"" ""\n')
    rows = same(bench, topic, 5)
    expect("keys", [row[2] for row in rows], ["k1", "k2", None, "gone", ""])
    expect("values", [row[3] for row in rows], ["v1", "v" * 1000, "no key", None, ""])
    expect("times", [row[1] for row in rows[:2]], [1_700_000_000_123, 1_700_000_000_001])
    expect("headers", rows[0][4], [("a", "1"), ("b", ""), ("a", "2"), ("a", "1")])


@driver.check("time-found")
def lookup(bench):
    """Both find the same record for a time inside a batch."""
    topic = bench.topic("lookup")
    feed = b"".join(b"%d %d\n" % (1_700_000_000_000 + step * 1_000, step) for step in range(20))
    hulse(bench, "produce", topic, "-f", "%T %v\\n", "--compression", "zstd", feed=feed)
    at = 1_700_000_000_000 + 7_500
    out = hulse(bench, "consume", topic, "-o", f"@{at}", "-e", "--output", "json")
    expect("the first record of hulse", json.loads(out.splitlines()[0])["offset"], 8)
    expect("the first record of kcat", by_kcat(bench, topic, f"s@{at}")[0][0], 8)


driver.main()
