"""What clients and Kafka's tools can do about groups beside being in them: list, describe, set offsets back, delete (check group-offsets).

Each adapter has list() -> names, describe(group) -> (state, members), offsets(group, topic) -> {partition: offset}, set(group, topic, offsets)
and delete(group) -> None or the name of the error.
"""

import json
import os
import pathlib
import re
import subprocess

import batches
from checks import Refused, expect, holds, numbered
from crew import Crew, wait_for

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 20


def java_version():
    """Of the jars."""
    names = os.listdir(os.environ["COMPATIBILITY_JARS"])
    return next(name for name in names if re.fullmatch(r"kafka-clients-\d.*", name)).removeprefix("kafka-clients-").removesuffix(".jar")


class Confluent:
    def __init__(self, address):
        from confluent_kafka.admin import AdminClient
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def list(self):
        return {group.group_id for group in self.admin.list_consumer_groups().result(20).valid}

    def describe(self, group):
        found = self.admin.describe_consumer_groups([group])[group].result(20)
        return found.state.name.capitalize(), len(found.members)

    def offsets(self, group, topic):
        from confluent_kafka import ConsumerGroupTopicPartitions
        found = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
        return {place.partition: place.offset for place in found.topic_partitions if place.topic == topic}

    def set(self, group, topic, offsets):
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        found = self.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result(20)
        wrong = [place.error for place in found.topic_partitions if place.error]
        holds(f"offsets are not set: {wrong}", not wrong)

    def delete(self, group):
        from confluent_kafka import KafkaException
        try:
            self.admin.delete_consumer_groups([group])[group].result(20)
        except KafkaException as failure:
            return failure.args[0].name()

    def close(self):
        pass


class KafkaPython:
    def __init__(self, address):
        from kafka import KafkaAdminClient
        self.admin = KafkaAdminClient(bootstrap_servers=address)

    def list(self):
        return {group["group_id"] for group in self.admin.list_groups()}

    def describe(self, group):
        found = self.admin.describe_groups([group])[group]
        state = found["group_state"]
        return getattr(state, "value", state), len(found["members"])

    def offsets(self, group, topic):
        found = self.admin.list_group_offsets({group: None})[group]
        return {place.partition: told.offset for place, told in found.items() if place.topic == topic}

    def set(self, group, topic, offsets):
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata
        places = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        wrong = [said.__name__ for said in self.admin.alter_group_offsets(group, places).values() if said.errno]
        holds(f"offsets are not set: {wrong}", not wrong)

    def delete(self, group):
        found = self.admin.delete_groups([group])
        said = found[group] if isinstance(found, dict) else found[0][1]
        said = said if isinstance(said, str) else getattr(said, "__name__", type(said).__name__)
        return None if said in ("NoError", "OK") else said

    def close(self):
        self.admin.close()


class Kafkajs:
    def __init__(self, address):
        self.address = address

    def ask(self, **line):
        done = subprocess.run(
            ["node", HERE / "members" / "admin.js", json.dumps({"address": self.address, **line})], capture_output=True, text=True, timeout=40,
            env=os.environ | {"NODE_PATH": os.environ["COMPATIBILITY_NODE"]})
        if done.returncode:
            raise Refused(f"{line['do']}: {done.stderr.strip()[:200]}")
        return json.loads(done.stdout)

    def list(self):
        return set(self.ask(do="list"))

    def describe(self, group):
        found = self.ask(do="describe", group=group)
        return found["state"], found["members"]

    def offsets(self, group, topic):
        # It tells -1 where nothing is committed.
        return {partition: offset for partition, offset in self.ask(do="offsets", group=group, topic=topic) if offset >= 0}

    def set(self, group, topic, offsets):
        self.ask(do="set", group=group, topic=topic, offsets=list(offsets.items()))

    def delete(self, group):
        try:
            self.ask(do="delete", group=group)
        except Refused as failure:
            return str(failure)

    def close(self):
        pass


class Tools:
    """Kafka's own tools, all in one JVM."""

    def __init__(self, address):
        self.address = address
        classes, jars = os.environ["COMPATIBILITY_CLASSES"], os.environ["COMPATIBILITY_JARS"]
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{jars}/*", "Toolbox"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def run(self, tool, *words, check=True):
        """What it printed."""
        line = [tool, *map(str, words), "--bootstrap-server", self.address]
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        out = "".join(line + "\n" for line in said["out"].splitlines() if not line.startswith("SLF4J"))
        holds(f"{tool} ended with {said['code']}: {out[-300:]}", said["code"] == 0 or not check)
        return out

    def groups(self, *words, **how):
        return self.run("consumer.group.ConsumerGroupCommand", *words, **how)

    def list(self):
        return set(self.groups("--list").split())

    def describe(self, group):
        row = self.groups("--describe", "--group", group, "--state").strip().splitlines()[-1].split()
        return row[-2], int(row[-1])

    def offsets(self, group, topic):
        rows = [line.split() for line in self.groups("--describe", "--group", group).splitlines()]
        return {int(row[2]): int(row[3]) for row in rows if row[:2] == [group, topic] and row[3].isdigit()}

    def set(self, group, topic, offsets):
        for partition, offset in offsets.items():
            self.groups("--reset-offsets", "--group", group, "--topic", f"{topic}:{partition}", "--to-offset", offset, "--execute")

    def delete(self, group):
        said = self.groups("--delete", "--group", group, check=False)
        return None if "was successful" in said or "successfully deleted" in said else said

    def consume(self, group, topic, count, *words):
        """Values that the console consumer prints as a member of the group."""
        out = self.run("consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", count,
                       "--timeout-ms", 20_000, *words)
        return sorted(line for line in out.splitlines() if line.isdigit())

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)


def filled(bench):
    """A topic of two partitions with numbered records."""
    topic = bench.topic("offsets", 2)
    for partition in range(2):
        bench.write(topic, batches.batch(numbered(COUNT, COUNT * partition)), partition)
    return topic


def by_library(bench, client, admin):
    """Check group-offsets by a library's own members and calls."""
    topic = filled(bench)
    group = bench.name("offsets")
    crew = Crew(bench, topic, 2, group)
    try:
        member = crew.start(client)
        wait_for("all records", lambda: len(crew.rows()) == 2 * COUNT and member.reads[-1][2], 40)
        holds(f"{group} is not listed", group in admin.list())
        expect("described", admin.describe(group), ("Stable", 1))
        said = admin.delete(group)
        holds(f"a group with a member is deleted: {said}", said)
        member.leave()
        wait_for("the member leaves", lambda: member.ended is not None, 20)
        expect("offsets", admin.offsets(group, topic), {0: COUNT, 1: COUNT})
        admin.set(group, topic, {0: 5})
        expect("offsets that were set", admin.offsets(group, topic), {0: 5, 1: COUNT})
        again = crew.start(client)
        wait_for("records again", lambda: sum(len(rows) for _, rows, _ in again.reads) >= COUNT - 5 and again.reads[-1][2], 40)
        found = sorted(row[:2] for _, rows, _ in again.reads for row in rows)
        expect("read again", found, [[0, offset] for offset in range(5, COUNT)])
    finally:
        crew.end()
    gone(admin, group, topic)
    return None


def gone(admin, group, topic):
    expect("delete", admin.delete(group), None)
    holds(f"{group} is listed after it was deleted", group not in admin.list())
    # Who cannot ask for a group that is not there has nothing of it.
    try:
        expect("offsets of a deleted group", admin.offsets(group, topic), {})
    except Refused as refused:
        holds(str(refused), "not exist" in str(refused) or "not found" in str(refused))


def by_tools(bench, tools):
    """The same by console consumer, consumer-perf-test and kafka-consumer-groups."""
    topic = filled(bench)
    group = bench.name("tools")
    everything = [value.decode() for value in numbered(2 * COUNT)]
    for protocol in ("classic", "consumer"):
        settings = ["--command-property", f"group.protocol={protocol}"]
        expect(f"read by {protocol}", tools.consume(f"{group}-{protocol}", topic, 2 * COUNT, *settings), everything)
    group += "-classic"
    holds(f"{group} is not listed", group in tools.list())
    expect("described", tools.describe(group), ("Empty", 0))
    expect("offsets", tools.offsets(group, topic), {0: COUNT, 1: COUNT})
    tools.set(group, topic, {0: 5})
    expect("offsets that were set", tools.offsets(group, topic), {0: 5, 1: COUNT})
    expect("read again", tools.consume(group, topic, COUNT - 5), everything[5:COUNT])
    tools.groups("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
    expect("offsets at the earliest", tools.offsets(group, topic), {0: 0, 1: 0})
    perf = tools.run("ConsumerPerformance", "--topic", topic, "--group", group, "--num-records", 2 * COUNT, "--timeout", 20_000)
    read = re.findall(r", (\d+), [\d.]+, \d+, \d+", perf)
    holds(f"consumer-perf-test read {read}: {perf[-300:]}", str(2 * COUNT) in read)
    gone(tools, group, topic)
    return None
