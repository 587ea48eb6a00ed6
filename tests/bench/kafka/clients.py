"""The client programs of the benchmark, each a process whose processor time is taken from the kernel; and the servers' own figures."""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "compatibility"))
import wire  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
# A client that takes longer than this is given up.
PATIENCE = 400


def cpu_seconds(pid):
    """Processor time of a process, all its threads, by user and kernel."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid):
    """Resident memory now and at its highest, MB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return tuple(int(re.search(rf"{name}:\s+(\d+)", status)[1]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM"))


def run(command):
    """(output, processor seconds of it) of a program that must end well."""
    process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = []
    readers = [threading.Thread(target=lambda pipe=pipe: said.append((pipe, pipe.read()))) for pipe in (process.stdout, process.stderr)]
    for reader in readers:
        reader.start()
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    timer.cancel()
    for reader in readers:
        reader.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    words = dict(said)
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))[:200]} ended with {process.returncode}: {words[process.stderr][-500:]}")
    return words[process.stdout], usage.ru_utime + usage.ru_stime


class Clients:
    """How to start them."""

    def __init__(self, jars, build):
        self.jars, self.build = pathlib.Path(jars), pathlib.Path(build)
        self.load = self.build / "load"
        self.java = ["java", "-Xmx512m", "-cp", f"{self.build}:{self.jars}/*"]

    def compile(self):
        """Builds our two small programs."""
        self.build.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", self.load, HERE / "load.c", "-lrdkafka", "-lpthread"], check=True)
        subprocess.run(["javac", "-cp", f"{self.jars}/*", "-d", self.build, HERE / "AssignConsumer.java"], check=True)

    # Both producers are idempotent, acks=all, and collect for 5 ms or 128 KiB.
    def produce(self, client, address, topic, partitions, size, records):
        """As fast as it goes: MB/s and the client's processor seconds."""
        if client == "librdkafka":
            out, cpu = run([self.load, "produce", address, topic, partitions, size, records, "enable.idempotence=true", "linger.ms=5", "batch.size=131072"])
            return json.loads(out)["mb_per_s"], cpu
        out, cpu = run([
            *self.java, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", address, "--topic", topic, "--num-records", records,
            "--record-size", size, "--throughput", -1, "--command-property", "acks=all", "enable.idempotence=true", "linger.ms=5", "batch.size=131072",
        ])
        last = [line for line in out.splitlines() if "99th" in line][-1]
        rate = float(re.search(r"([\d.]+) records/sec", last)[1])
        return rate * size / 1e6, cpu

    def consume(self, client, address, topic, partitions, size, records):
        """The simple consumer, or the Java one that assigns."""
        words = [address, topic, partitions, size, records]
        out, cpu = run([self.load, "consume", *words] if client == "librdkafka" else [*self.java, "AssignConsumer", *words])
        return json.loads(out)["mb_per_s"], cpu

    def rate(self, address, topic, partitions, size, records, rate):
        """Latencies at a fixed rate, ms, of acks and of arrivals; librdkafka sends at once and waits for nothing."""
        out, _ = run([self.load, "rate", address, topic, partitions, size, records, rate, "enable.idempotence=true", "linger.ms=0"])
        return json.loads(out)


def create(address, topic, partitions):
    """Makes a topic and waits until each partition answers."""
    with wire.Connection(address) as connection:
        code = wire.create_topic(connection, topic, partitions)
        if code:
            raise RuntimeError(f"the topic cannot be created: {wire.error(code)}")
        until = time.monotonic() + 30
        while any(wire.list_offset(connection, topic, -1, partition)[0] for partition in range(partitions)):
            if time.monotonic() > until:
                raise RuntimeError("the topic has no leader after 30 s")
            time.sleep(0.05)


def delete(address, topic):
    with wire.Connection(address) as connection:
        wire.delete_topic(connection, topic)
