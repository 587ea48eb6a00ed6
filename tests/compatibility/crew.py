"""Members of consumer groups as processes, and the judge of what they say.

Members speak the lines of members/member.py. Each is a process of its own, but for Java's, of which many share one (java/Members.java).
Moments are the machine's passing time, the same in all of them, so that what two members had can be laid side by side.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import threading
import time

import batches
import wire
from checks import Refused, holds, numbered, short

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = ("confluent", "kafka-python", "aiokafka")


class Member:
    """What one member said."""

    def __init__(self, name):
        self.name = name
        self.has = set()
        # [(moment, what it has from then on)]
        self.changes = []
        # [(moment, rows, committed: None, True or an error)]
        self.reads = []
        # Generations that gave it partitions, or none.
        self.gets = 0
        self.errors = []
        self.left = False
        # When it was gone: left, killed, or ended by itself.
        self.ended = None
        self.lock = threading.Lock()

    def hear(self, line):
        with self.lock:
            if "has" in line:
                self.has = set(line["has"])
                self.changes.append((line["at"], self.has))
                self.gets += line.get("gets", False)
            elif "read" in line:
                self.reads.append([line["at"], line["read"], None])
            elif "committed" in line:
                self.reads[-1][2] = line["committed"]
            elif "error" in line:
                self.errors.append(line["error"])
            elif "left" in line:
                self.left = True
                self.end(line["at"])

    def end(self, at):
        """It has nothing any more."""
        if self.ended is None:
            self.ended, self.has = at, set()
            self.changes.append((at, set()))

    def reads_after(self, moment):
        with self.lock:
            return any(at > moment for at, _, _ in self.reads[-3:])


class Process(Member):
    """A member with a process of its own."""

    def __init__(self, name, client, settings):
        super().__init__(name)
        if client == "kafkajs":
            command = ["node", HERE / "members" / "member.js", json.dumps(settings)]
        elif client == "franz-go":
            command = [os.environ["COMPATIBILITY_GO"], json.dumps(settings)]
        else:
            command = [sys.executable, HERE / "members" / "member.py", client, json.dumps(settings)]
        environment = dict(os.environ, NODE_PATH=os.environ.get("COMPATIBILITY_NODE", ""))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for text in self.process.stdout:
            self.hear(json.loads(text))
        self.process.wait()
        with self.lock:
            self.end(time.monotonic())

    def leave(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()
        wait_for(f"the end of {self.name}", lambda: self.ended is not None, 10)


class JavaHost:
    """A JVM with members."""

    def __init__(self):
        classes, jars = os.environ["COMPATIBILITY_CLASSES"], os.environ["COMPATIBILITY_JARS"]
        command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{jars}/*", "Members"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.members = {}
        self.lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for text in self.process.stdout:
            line = json.loads(text)
            self.members[line["member"]].hear(line)
        self.process.wait()
        for member in self.members.values():
            member.end(time.monotonic())

    def start(self, name, settings):
        member = JavaMember(name, self)
        self.members[name] = member
        self.tell(do="start", member=name, settings=settings)
        return member

    def tell(self, **line):
        with self.lock:
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def kill(self):
        """All its members at once."""
        self.process.kill()
        self.process.wait()


class JavaMember(Member):
    def __init__(self, name, host):
        super().__init__(name)
        self.host = host

    def leave(self):
        if self.host.process.poll() is None:
            self.host.tell(do="leave", member=self.name)

    def kill(self):
        self.host.kill()
        wait_for(f"the end of {self.name}", lambda: self.ended is not None, 10)


def wait_for(what, done, seconds):
    """How long it took."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise Refused(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - began


class Crew:
    """The members of one group that reads one topic, and what has to hold of them together."""

    def __init__(self, bench, topic, partitions, group, **settings):
        self.address, self.topic, self.partitions, self.group = bench.address, topic, partitions, group
        self.settings = settings
        self.members = []
        self.count = 0

    def start(self, client, host=None, **settings):
        """One more member; of Java in this host."""
        self.count += 1
        name = f"{self.group}-{client}-{self.count}"
        asked = {"address": self.address, "group": self.group, "topic": self.topic, **self.settings, **settings}
        member = host.start(name, asked) if host else Process(name, client, asked)
        self.members.append(member)
        return member

    def living(self):
        return [member for member in self.members if member.ended is None]

    def is_shared(self, even=True, members=None):
        """Every partition is had by one member that lives, no member has two more than another, and all have been told of what they have."""
        if not all(member.changes for member in members or self.living()):
            return False
        has = [set(member.has) for member in members or self.living()]
        everything = sorted(partition for each in has for partition in each)
        sizes = [len(each) for each in has]
        return everything == list(range(self.partitions)) and (not even or max(sizes) - min(sizes) <= 1)

    def shared(self, seconds, even=True):
        """Waits until it is so; how long it took."""
        try:
            return wait_for("shared", lambda: self.is_shared(even), seconds)
        except Refused:
            told = {member.name.rsplit("-", 2)[-1]: sorted(member.has) for member in self.living()}
            errors = [error for member in self.members for error in member.errors]
            raise Refused(f"partitions are not shared after {seconds} s: {told}, errors {errors}") from None

    def all_read_after(self, moment, seconds):
        """Every member that has partitions reads on."""
        wait_for("members read on", lambda: all(member.reads_after(moment) for member in self.living() if member.has), seconds)

    def end(self):
        """Everybody leaves, in order where it can."""
        for member in self.living():
            member.leave()
        until = time.monotonic() + 20
        while self.living() and time.monotonic() < until:
            time.sleep(0.05)
        for member in self.living():
            member.kill()

    # ---- the judge

    def rows(self):
        """[(moment, member, partition, offset, value, committed)] by moment."""
        found = []
        for member in self.members:
            with member.lock:
                found += [(at, member.name, *row, committed) for at, rows, committed in member.reads for row in rows]
        return sorted(found)

    def missing(self, sent):
        """What was sent, as {(partition, offset): value}, and came to nobody."""
        came = {(partition, offset): value for _, _, partition, offset, value, _ in self.rows()}
        for place, value in came.items():
            if place in sent and sent[place] != value:
                raise Refused(f"partition {place[0]} offset {place[1]}: {short(value)} instead of {short(sent[place])}")
        return [place for place in sent if place not in came]

    def judge(self, sent, fenced=False):
        """Nothing is lost, nothing comes again that was committed, no partition was had by two members at once, order is kept.

        With `fenced` members that do not know that they are out: they may read what others have committed since, and have a partition
        beside others. How many records came twice.
        """
        missing = self.missing(sent)
        holds(f"{len(missing)} of {len(sent)} records came to nobody, first {missing[:1]}", not missing)
        if not fenced:
            self.holders_are_apart()
        for member in self.members:
            in_order(member)
        seen, repeats = {}, 0
        for _, name, partition, offset, _, committed in self.rows():
            former = seen.get((partition, offset))
            if former:
                repeats += 1
                words = f"partition {partition} offset {offset} was committed by {former[0]} and came to {name} again"
                holds(words, former[1] is not True or fenced)
            seen[(partition, offset)] = (name, committed)
        return repeats

    def holders_are_apart(self):
        spans = {}
        for member in self.members:
            for begin, end, partition in spans_of(member):
                spans.setdefault(partition, []).append((begin, end, member.name))
        for partition, all_of_it in spans.items():
            all_of_it.sort()
            for (_, end, one), (begin, _, other) in zip(all_of_it, all_of_it[1:]):
                holds(f"partition {partition} was had by {one} and {other} for {end - begin:.3f} s", end <= begin or one == other)


def spans_of(member):
    """[(from, until, partition)] in which it had something."""
    open_since, spans = {}, []
    with member.lock:
        changes = list(member.changes)
    for at, has in changes:
        for partition in has - set(open_since):
            open_since[partition] = at
        for partition in set(open_since) - has:
            spans.append((open_since.pop(partition), at, partition))
    now = time.monotonic()
    return spans + [(since, now, partition) for partition, since in open_since.items()]


def in_order(member):
    """Offsets of a partition rise as long as the member has it."""
    with member.lock:
        steps = [(at, None, has) for at, has in member.changes] + [(at, rows, None) for at, rows, _ in member.reads]
    last = {}
    for _, rows, has in sorted(steps, key=lambda step: step[0]):
        if has is not None:
            last = {partition: offset for partition, offset in last.items() if partition in has}
        for partition, offset, _ in rows or ():
            holds(f"{member.name}: partition {partition} offset {offset} after {last.get(partition)}", offset > last.get(partition, -1))
            last[partition] = offset


class Feeder:
    """Writes numbered records to all partitions of a topic until it is told to stop."""

    def __init__(self, bench, topic, partitions, per_second=60):
        self.bench, self.topic, self.partitions = bench, topic, partitions
        self.pause = partitions / per_second
        self.sent = {}
        self.stopped = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        number, ends = 0, dict.fromkeys(range(self.partitions), 0)
        connection = None
        while not self.stopped.wait(self.pause):
            for partition in range(self.partitions):
                value = numbered(1, number)[0]
                while not self.stopped.is_set():
                    try:
                        connection = connection or self.bench.connect(timeout=5)
                        code, offset, _, _ = wire.produce(connection, self.topic, batches.batch([value]), partition)
                        if code == 0:
                            # What was sent before and of which nothing was heard may be stored, too.
                            self.sent[(partition, offset)] = value.decode()
                            ends[partition], number = offset + 1, number + 1
                            break
                    except (OSError, wire.Closed, ValueError):
                        connection = None
                    time.sleep(0.1)

    def stop(self):
        """What is stored, as {(partition, offset): value}."""
        self.stopped.set()
        self.thread.join(30)
        return dict(self.sent)


OFFSET_FETCH, LIST_GROUPS = 9, 16


def committed(connection, group, topic, partitions):
    """{partition: offset}, as the coordinator tells anybody; OffsetFetch v3."""
    wanted = [wire.string(topic) + wire.array([struct.pack(">i", partition) for partition in partitions])]
    fields = connection.ask(OFFSET_FETCH, 3, wire.string(group) + wire.array(wanted))
    fields.take("i")

    def row(f):
        partition, offset = f.take("iq")
        f.string(), f.take("h")
        return partition, offset

    topics = fields.array(lambda f: (f.string(), dict(f.array(row))))
    return topics[0][1] if topics else {}


def groups(connection):
    """Names of the groups; ListGroups v0."""
    fields = connection.ask(LIST_GROUPS, 0, b"")
    fields.take("h")
    return {name for name, _ in fields.array(lambda f: (f.string(), f.string()))}
