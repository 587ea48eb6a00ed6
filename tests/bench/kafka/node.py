#!/usr/bin/env python3
"""Starts and stops one node of Apache Kafka (KRaft, broker and controller in one process) from jars that Maven brought.

    apache.py start --jars DIR --data DIR [--port N] [--set KEY=VALUE]...    prints its pid when it answers
    apache.py stop --data DIR

The node is as its own start script would run it: G1, a fixed heap of 1 GiB, server mode, the script's pause goal. Its log goes to
DATA/node.log. `--set` adds lines to server.properties, such as log.flush.interval.messages=1.
"""

import argparse
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import uuid

# What Kafka's start scripts pass for a server.
JVM = [
    "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
]
# A start takes some seconds on a busy machine.
PATIENCE = 60.0


def classpath(jars):
    """The jars of the folder; Java expands the star itself, without a shell."""
    return str(pathlib.Path(jars).resolve() / "*")


def java(jars, main, *arguments, jvm=()):
    """The command line of a Java program in these jars."""
    return ["java", *jvm, "-cp", classpath(jars), main, *map(str, arguments)]


def logging(data):
    """Warnings go to standard error: log4j's own default would say nothing but errors, and the script's would write many files."""
    file = data / "log4j2.properties"
    file.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.e.ref=E\nappender.e.type=Console\nappender.e.name=E\n"
        "appender.e.target=SYSTEM_ERR\nappender.e.layout.type=PatternLayout\nappender.e.layout.pattern=[%d] %p %m (%c)%n%throwable\n"
    )
    return f"-Dlog4j2.configurationFile={file}"


def properties(data, port, settings):
    """A node that is its own quorum; replication of everything internal is one, as there is one node."""
    lines = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data / "logs",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        **settings,
    }
    file = data / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return file


def start(jars, data, port, settings=None, wait=True):
    """Formats an empty folder, starts the node and returns its process; with `wait` once the port answers."""
    data = pathlib.Path(data).resolve()
    data.mkdir(parents=True, exist_ok=True)
    file = properties(data, port, settings or {})
    log4j = logging(data)
    if not (data / "logs" / "meta.properties").exists():
        cluster = uuid.uuid4().hex[:22]
        format_log = subprocess.run(
            java(jars, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", file, jvm=[log4j]),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if format_log.returncode:
            sys.exit(f"the folder could not be formatted:\n{format_log.stdout}")
    with open(data / "node.log", "ab") as log:
        process = subprocess.Popen(
            java(jars, "kafka.Kafka", file, jvm=[*JVM, log4j]), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (data / "pid").write_text(str(process.pid))
    if wait:
        until = time.monotonic() + PATIENCE
        while True:
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"Apache Kafka does not start; see {data / 'node.log'}")
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
    return process


def stop(data):
    """Ends the node of this folder and waits until it is gone."""
    file = pathlib.Path(data) / "pid"
    pid = int(file.read_text())
    try:
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            time.sleep(0.1)
    except (ProcessLookupError, FileNotFoundError):
        pass
    file.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["start", "stop"])
    parser.add_argument("--jars", help="folder with the jars")
    parser.add_argument("--data", required=True, help="folder of the node")
    parser.add_argument("--port", type=int, default=17700, help="for clients; the next one is the controller's")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of server.properties")
    arguments = parser.parse_args()
    if arguments.what == "stop":
        stop(arguments.data)
    else:
        settings = dict(line.split("=", 1) for line in arguments.set)
        print(start(arguments.jars, arguments.data, arguments.port, settings).pid)


if __name__ == "__main__":
    main()
