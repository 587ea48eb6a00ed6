#!/usr/bin/env python3
"""Starts, kills and stops one node: Apache Kafka (KRaft, broker and controller in one process) or Hulse, with its Kafka listener.

    node.py start apache --jars DIR    --data DIR [--port N] [--set KEY=VALUE]...    prints its pid when it answers
    node.py start hulse  --binary FILE --data DIR [--port N] [--set KEY=VALUE]...
    node.py kill --data DIR      SIGKILL, then started again as it was
    node.py stop --data DIR

Apache Kafka is run as its own start script would: G1, a fixed heap of 1 GiB, server mode, the script's pause goal; `--set` adds lines to
server.properties. Hulse gets its defaults; `--set bookie.sync=off` sets a key of hulse.toml. Clients find either at 127.0.0.1:PORT; the next
port is Kafka's controller or Hulse's gRPC, the one after that Hulse's HTTP. What the node says goes to DATA/node.log.
"""

import argparse
import json
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


def java(jars, main, *arguments, jvm=()):
    """The command line of a Java program in these jars; Java expands the star itself."""
    return ["java", *jvm, "-cp", f"{pathlib.Path(jars).resolve()}/*", main, *map(str, arguments)]


def apache_command(data, port, jars, settings):
    """A node that is its own quorum; replication of everything internal is one, as there is one node. An empty folder is formatted."""
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
    log4j = data / "log4j2.properties"
    log4j.write_text(
        "rootLogger.level=warn\nrootLogger.appenderRef.e.ref=E\nappender.e.type=Console\nappender.e.name=E\n"
        "appender.e.target=SYSTEM_ERR\nappender.e.layout.type=PatternLayout\nappender.e.layout.pattern=[%d] %p %m (%c)%n%throwable\n"
    )
    jvm = [f"-Dlog4j2.configurationFile={log4j}"]
    if not (data / "logs" / "meta.properties").exists():
        done = subprocess.run(
            java(jars, "kafka.tools.StorageTool", "format", "-t", uuid.uuid4().hex[:22], "-c", file, jvm=jvm),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(f"the folder could not be formatted:\n{done.stdout}")
    return java(jars, "kafka.Kafka", file, jvm=[*JVM, *jvm])


def hulse_command(data, port, binary):
    """The released program with its defaults."""
    return [
        str(binary), "standalone", "--data", str(data / "hulse"), "--kafka", f"127.0.0.1:{port}", "--grpc", f"127.0.0.1:{port + 1}",
        "--http", f"127.0.0.1:{port + 2}",
    ]


# ApiVersions v0, correlation id 1, no client id.
HELLO = bytes.fromhex("0000000a" "0012" "0000" "00000001" "ffff")


def answers(port):
    """True when a server of Kafka's wire speaks at this port."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(HELLO)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


class Node:
    """A running node. `started` is the moment of its exec, by the monotonic clock."""

    def __init__(self, what, data, port, program, settings=None, wait=True):
        self.what, self.port, self.program, self.settings = what, port, str(program), settings or {}
        self.data = pathlib.Path(data).resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        self.address = f"127.0.0.1:{port}"
        self.begin(wait)

    def begin(self, wait=True):
        """Starts it; with `wait` returns once the port answers."""
        environment = dict(os.environ)
        if self.what == "apache":
            command = apache_command(self.data, self.port, self.program, self.settings)
        else:
            command = hulse_command(self.data, self.port, self.program)
            # As tests/run has it: how full this machine's disk is does not decide.
            environment.setdefault("HULSE_BOOKIE__DISK_RESERVE", "1MiB")
            for key, value in self.settings.items():
                environment["HULSE_" + key.upper().replace(".", "__")] = str(value)
        with open(self.data / "node.log", "ab") as log:
            self.started = time.monotonic()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment, cwd=self.data)
        self.pid = self.process.pid
        kept = {"what": self.what, "port": self.port, "program": self.program, "settings": self.settings, "pid": self.pid}
        (self.data / "node.json").write_text(json.dumps(kept))
        if wait:
            self.wait()

    def wait(self):
        """Until the port answers."""
        until = time.monotonic() + PATIENCE
        while True:
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the node does not start; see {self.data / 'node.log'}")
            if answers(self.port):
                return
            time.sleep(0.02)

    def stop(self):
        """Ends it in order; waits."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def gone(pid):
    """True when the last thread of a process has ended: sockets are closed then, not when the first is a zombie."""
    folder = pathlib.Path(f"/proc/{pid}")
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX" and len(list((folder / "task").iterdir())) == 1


def end(data, number):
    """Sends the node of this folder a signal and waits until it is gone; what was kept of it."""
    kept = json.loads((data / "node.json").read_text())
    try:
        os.kill(kept["pid"], number)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not gone(kept["pid"]):
            time.sleep(0.02)
    except (ProcessLookupError, FileNotFoundError):
        pass
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["start", "kill", "stop"])
    parser.add_argument("what", nargs="?", choices=["apache", "hulse"])
    parser.add_argument("--jars", help="folder with Kafka's jars")
    parser.add_argument("--binary", help="the hulse program")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="folder of the node")
    parser.add_argument("--port", type=int, default=17700, help="for Kafka's clients")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the node")
    arguments = parser.parse_args()
    if arguments.action == "stop":
        end(arguments.data, signal.SIGTERM)
        return
    if arguments.action == "kill":
        kept = end(arguments.data, signal.SIGKILL)
        print(Node(kept["what"], arguments.data, kept["port"], kept["program"], kept["settings"]).pid)
        return
    settings = dict(line.split("=", 1) for line in arguments.set)
    program = arguments.jars if arguments.what == "apache" else arguments.binary
    print(Node(arguments.what, arguments.data, arguments.port, program, settings).pid)


if __name__ == "__main__":
    main()
