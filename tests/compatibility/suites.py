#!/usr/bin/env python3
"""Tests that others wrote for their clients, pointed at this server (serving.md D4): librdkafka's own of consumer groups, by the classic protocol
and by KIP-848, and kafka-python's integration tests. Only with --long.

COMPATIBILITY_SUITES names the folder in which `run` has built them: `librdkafka/tests/test-runner` and `kafka-python/test`. The server has four
partitions for a topic that is made by its first use, as the suites expect.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from checks import Driver, Elsewhere, Refused, holds, say

SUITES = pathlib.Path(os.environ["COMPATIBILITY_SUITES"])
RUNNER = SUITES / "librdkafka" / "tests"
PYTHON = SUITES / "kafka-python"

# Tests of librdkafka in which groups are: number, name.
GROUPS = {
    "0014": "reconsume_191", "0018": "cgrp_term", "0019": "list_groups", "0022": "consume_batch", "0026": "consume_pause",
    "0029": "assign_offset", "0030": "offset_commit", "0033": "regex_subscribe", "0045": "subscribe_update",
    "0050": "subscribe_adds", "0051": "assign_adds", "0056": "balanced_group_mt", "0069": "consumer_add_parts",
    "0083": "cb_event", "0084": "destroy_flags", "0089": "max_poll_interval", "0091": "max_poll_interval_timeout", "0093": "holb_consumer",
    "0099": "commit_metadata", "0102": "static_group_rebalance", "0112": "assign_unknown_part",
    "0113": "cooperative_rebalance", "0116": "kafkaconsumer_close", "0118": "commit_rebalance", "0120": "asymmetric_subscription",
    "0122": "buffer_cleaning_after_rebalance", "0130": "store_offsets", "0132": "strategy_ordering", "0140": "commit_metadata_assign",
}
# Tests of groups that are left out, and why.
LEFT_OUT = {
    "0049_consume_conn_close": "librdkafka's runner leaves it out where sockets are not replaced by its own",
    "0137_barrier_batch_consume": "asks for transactions, which are not served yet",
    "0061_consumer_lag": "asks for transactions, which are not served yet",
    "0107_topic_recreate": "librdkafka's runner leaves it out by itself",
    "0106_cgrp_sess_timeout": "a mock broker of its own: no server is asked",
    "0117_mock_errors": "a mock broker of its own: no server is asked",
    "0139_offset_validation_mock": "a mock broker of its own: no server is asked",
    "0147_consumer_group_consumer_mock": "a mock broker of its own: no server is asked",
    "0148_offset_fetch_commit_error_mock": "a mock broker of its own: no server is asked",
    "0098_consumer_txn, 0103_transactions": "transactions are not served yet",
    "0119_consumer_auth": "needs rules of who may do what, which are not there yet",
    "0081_admin": "asks for rules (ACLs), elections of leaders and settings of brokers beside groups; groups are in group-offsets",
}
# Tests of kafka-python that are left out, and why.
LEFT_OUT_PYTHON = {
    "sasl, ssl": "start a broker of their own",
    "acls": "rules of who may do what are not there yet",
    "transactional": "transactions are not served yet",
    "elect_leaders, log_dirs, reassignments, quorum": "operations of Apache Kafka's own storage",
    "list_config_resources": "API 74 is not served",
}
KEPT_PYTHON = "not sasl and not ssl and not acls and not transactional and not elect_leaders and not log_dirs and not reassignments " \
    "and not quorum and not list_config_resources"
# Of KIP-848's group a member that is killed or stands still is out after the server's session, 45 s.
PATIENCE = 420
# Tests at a time.
AT_ONCE = 3

driver = Driver("suites of others")


def librdkafka_version():
    text = (SUITES / "librdkafka" / "src" / "rdkafka.h").read_text()
    number = int(re.search(r"#define RD_KAFKA_VERSION 0x([0-9a-f]+)", text)[1], 16)
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}"


def librdkafka(bench, number, protocol):
    """Outcome and words of one of its tests."""
    with tempfile.TemporaryDirectory() as folder:
        conf = pathlib.Path(folder) / "test.conf"
        conf.write_text(f"bootstrap.servers={bench.address}\n")
        environment = os.environ | {
            "LD_LIBRARY_PATH": f"{RUNNER.parent / 'src'}:{RUNNER.parent / 'src-cpp'}", "RDKAFKA_TEST_CONF": str(conf), "TESTS": number,
            "TEST_KAFKA_VERSION": "4.0.0",
        }
        if protocol == "consumer":
            environment["TEST_CONSUMER_GROUP_PROTOCOL"] = "consumer"
        try:
            done = subprocess.run(
                [RUNNER / "test-runner", "-p1", "-E", "-L"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "failed", f"no end after {PATIENCE} s"
    out = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode(errors="replace"))
    if done.returncode == 0:
        return "passed", ""
    why = re.search(r"### Test .* failed at (\S+?):\d+:(\w+)\(\).*\n(.*)", out)
    return "failed", f"{why[1]} {why[2]}: {why[3]}" if why else out[-200:]


@driver.check("librdkafka", seconds=6_000, long=True)
def librdkafka_tests(bench):
    """Prints a line for each test and protocol."""
    client = f"librdkafka's tests {librdkafka_version()}"

    def one(work):
        (number, name), protocol = work
        began = time.monotonic()
        outcome, words = librdkafka(bench, number, protocol)
        say(client, f"{number}_{name}, {protocol}", outcome, words, time.monotonic() - began)
        return outcome

    # Most of each is waiting.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(one, [(each, protocol) for each in GROUPS.items() for protocol in ("classic", "consumer")]))
    for name, reason in LEFT_OUT.items():
        say(client, name, "left out", reason, 0.0)
    holds("see the lines above", "failed" not in outcomes)
    raise Elsewhere


@driver.check("kafka-python", seconds=1_500, long=True)
def kafka_python_tests(bench):
    """Prints a line for each test."""
    environment = os.environ | {"KAFKA_URI": f"kafka://{bench.address}", "KAFKA_VERSION": "4.0.0"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-W", "ignore", "--tb=line", "--timeout=90", "--timeout-method=signal",
         "test/integration", "-k", KEPT_PYTHON],
        cwd=PYTHON, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1_400)
    rows = re.findall(r"^test/integration/(\w+)\.py::(\S+) (PASSED|FAILED|ERROR|SKIPPED(?: \(.*?\))?)", done.stdout, re.MULTILINE)
    holds(f"pytest ended with {done.returncode}: {done.stdout[-300:]}", rows)
    client, outcomes = "kafka-python's tests", []
    for _, name, said in rows:
        outcome = {"PASSED": "passed", "SKIPPED": "left out"}.get(said.split()[0], "failed")
        outcomes.append(outcome)
        say(client, name, outcome, said.partition("(")[2].rstrip(")") if outcome == "left out" else "", 0.0)
    for name, reason in LEFT_OUT_PYTHON.items():
        say(client, name, "left out", reason, 0.0)
    if "failed" in outcomes:
        raise Refused("see the lines above")
    raise Elsewhere


if __name__ == "__main__":
    driver.main()
