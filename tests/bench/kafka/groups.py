#!/usr/bin/env python3
"""A consumer group of a hundred members on two hundred partitions, as one more comes and one goes: Hulse beside Apache Kafka.

    tests/bench/kafka/run groups [--members N] [--partitions N] [--rounds N] [--hulse-only]

Members are bare sockets that speak the cooperative protocol (heartbeats each 0.3 s), so that the server is what is measured. Each of them
reads its partitions all the while. Printed are medians of the rounds, which are interleaved:
    rebalance    from the request of the member that comes, or goes, until everybody was told of what it has and nothing is left over
    pause        the longest time that a partition that stayed where it was was not read meanwhile
Goal (serving.md A24): a rebalance within 2 s, and partitions that stay are read on.
"""

import argparse
import pathlib
import shutil
import statistics
import struct
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "compatibility"))
import batches  # noqa: E402
import wire  # noqa: E402
from checks import numbered  # noqa: E402
from node import Node  # noqa: E402

GROUP, TOPIC = "crowd", "crowd"
HEARTBEAT = 0.3
# Between two reads of a member.
READ_EVERY = 0.2
REBALANCING = 27
# The coordinator is not there yet.
LOADING = (14, 15, 16)
LEAVE_GROUP = 13


def named(partitions):
    """Partitions of the topic, as subscriptions and assignments have them."""
    return wire.array([wire.string(TOPIC) + wire.array([struct.pack(">i", at) for at in sorted(partitions)])] if partitions else [])


def subscription(owned):
    return struct.pack(">h", 1) + wire.array([wire.string(TOPIC)]) + wire.blob(None) + named(owned)


def partitions_of(data):
    """Of an assignment, or what a subscription says is owned."""
    if not data:
        return set()
    fields = wire.Fields(data)
    fields.take("h")
    return {at for _, all_of_it in fields.array(lambda f: (f.string(), f.array(lambda g: g.take("i")))) for at in all_of_it}


def owned_in(data):
    fields = wire.Fields(data)
    fields.take("h"), fields.array(wire.Fields.string), fields.blob()
    return {at for _, all_of_it in fields.array(lambda f: (f.string(), f.array(lambda g: g.take("i")))) for at in all_of_it}


def assigned(members, partitions):
    """Even, and a partition stays where it is; what another still has is given in the next round."""
    claims, holders = {}, {}
    for member, data in members:
        claims[member] = {at for at in owned_in(data) if holders.setdefault(at, member) == member}
    share, more = divmod(partitions, len(members))
    # Who has most gets the larger shares.
    order = sorted(claims, key=lambda member: -len(claims[member]))
    target = {member: set(sorted(claims[member])[:share + (place < more)]) for place, member in enumerate(order)}
    free = sorted(set(range(partitions)) - set().union(*target.values()))
    for place, member in enumerate(order):
        lacks = share + (place < more) - len(target[member])
        taken = [free.pop() for _ in range(lacks)]
        target[member] |= {at for at in taken if holders.get(at, member) == member}
    return target


class Member:
    """One member: a thread that talks to the coordinator, and one that reads."""

    def __init__(self, address, partitions):
        self.address, self.partitions = address, partitions
        self.talk, self.data = wire.Connection(address, 60), wire.Connection(address, 60)
        self.id, self.generation, self.owned = "", -1, set()
        # (moment, generation, what it was given)
        self.told = None
        self.reads = {}
        self.over = threading.Event()
        self.failure = None
        for work in (self.coordinate, self.read):
            threading.Thread(target=self.guarded, args=(work,), daemon=True).start()

    def guarded(self, work):
        try:
            work()
        except Exception as failure:  # Told by the bench; a member that left may end in any way.
            if not self.over.is_set():
                self.failure = failure

    def coordinate(self):
        again = True
        while not self.over.is_set():
            if again:
                again = self.join()
                continue
            if self.over.wait(HEARTBEAT):
                return
            body = wire.string(GROUP) + struct.pack(">i", self.generation) + wire.string(self.id) + wire.string(None)
            code = self.talk.ask(wire.HEARTBEAT, 3, body).take("ih")[1]
            if code not in (0, REBALANCING):
                raise ValueError(f"heartbeat: {wire.error(code)}")
            again = code == REBALANCING

    def join(self):
        """One generation; true where it gave something up, and joins again."""
        protocol = wire.string("cooperative-sticky") + wire.blob(subscription(self.owned))
        body = wire.string(GROUP) + struct.pack(">ii", 30_000, 60_000) + wire.string(self.id) + wire.string(None)
        fields = self.talk.ask(wire.JOIN_GROUP, 5, body + wire.string("consumer") + wire.array([protocol]))
        code, self.generation = fields.take("ihi")[1:]
        fields.string()
        leader, self.id = fields.string(), fields.string()
        if code == 79 or code in LOADING:
            time.sleep(0.1 if code in LOADING else 0)
            return True
        if code:
            raise ValueError(f"join: {wire.error(code)}")
        members = fields.array(lambda f: (f.string(), f.string(), f.blob()))
        given = []
        if leader == self.id:
            target = assigned([(member, data) for member, _, data in members], self.partitions)
            given = [wire.string(member) + wire.blob(struct.pack(">h", 1) + named(all_of_it) + wire.blob(None)) for member, all_of_it in target.items()]
        body = wire.string(GROUP) + struct.pack(">i", self.generation) + wire.string(self.id) + wire.string(None)
        fields = self.talk.ask(wire.SYNC_GROUP, 3, body + wire.array(given))
        code = fields.take("ih")[1]
        if code == REBALANCING:
            return True
        if code:
            raise ValueError(f"sync: {wire.error(code)}")
        got = partitions_of(fields.blob())
        gave_up = not self.owned <= got
        self.owned = got
        self.told = (time.monotonic(), self.generation, got)
        return gave_up

    def read(self):
        """The first records of what it has, again and again."""
        while not self.over.wait(READ_EVERY):
            wanted = [(TOPIC, at, 0, 2_000) for at in sorted(self.owned)]
            if not wanted:
                continue
            for _, at, code, _, _, records in wire.fetch(self.data, wanted, max_wait_ms=100):
                if code == 0 and records:
                    self.reads.setdefault(at, []).append(time.monotonic())

    def leave(self):
        self.over.set()
        body = wire.string(GROUP) + wire.string(self.id)
        with wire.Connection(self.address) as connection:
            connection.ask(LEAVE_GROUP, 1, body)


def shared(members, partitions, since, seconds=60):
    """Until everything is had once, in one generation that began after `since`; the moment."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        failures = [member.failure for member in members if member.failure]
        if failures:
            raise failures[0]
        told = [member.told for member in members]
        if all(told) and min(at for at, _, _ in told) > since and len({generation for _, generation, _ in told}) == 1:
            has = [at for _, _, all_of_it in told for at in all_of_it]
            if sorted(has) == list(range(partitions)):
                return max(at for at, _, _ in told)
        time.sleep(0.01)
    raise TimeoutError(f"not shared after {seconds} s: {sorted(len(member.owned) for member in members)}")


def pause(members, before, since, until):
    """The longest time between two reads of a partition that stayed."""
    longest = 0.0
    for member, had in zip(members, before):
        for at in had & member.owned:
            moments = [moment for moment in member.reads.get(at, []) if since - 1 <= moment <= until + 1]
            gaps = [late - early for early, late in zip(moments, moments[1:])]
            longest = max([longest, *gaps])
    return longest


def round_of(server, address, count, partitions, found):
    members = []
    for _ in range(count - 1):
        members.append(Member(address, partitions))
        time.sleep(0.01)
    shared(members, partitions, 0.0)
    time.sleep(1.5)
    try:
        for what in ("one more comes", "one goes"):
            stay = members if what == "one more comes" else members[1:]
            before = [set(member.owned) for member in stay]
            began = time.monotonic()
            if what == "one more comes":
                members.append(Member(address, partitions))
            else:
                members.pop(0).leave()
            ended = shared(members, partitions, began)
            time.sleep(1.2)
            found.setdefault((what, "rebalance"), {}).setdefault(server, []).append(ended - began)
            found.setdefault((what, "pause"), {}).setdefault(server, []).append(pause(stay, before, began, ended))
    finally:
        for member in members:
            member.leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jars")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=17760, help="the first of six")
    parser.add_argument("--hulse-only", action="store_true")
    arguments = parser.parse_args()
    servers = {"hulse": arguments.binary} | ({} if arguments.hulse_only else {"apache": arguments.jars})
    found = {}
    for number in range(arguments.rounds):
        for server, program in servers.items():
            folder = arguments.folder / f"groups-{server}"
            shutil.rmtree(folder, ignore_errors=True)
            node = Node(server, folder, arguments.port + 3 * (server == "apache"), program)
            try:
                with wire.Connection(node.address) as connection:
                    while connection.ask(wire.FIND_COORDINATOR, 0, wire.string(GROUP)).take("h"):
                        time.sleep(0.1)
                    code = wire.create_topic(connection, TOPIC, arguments.partitions)
                    if code:
                        raise ValueError(wire.error(code))
                    for at in range(arguments.partitions):
                        while wire.produce(connection, TOPIC, batches.batch(numbered(10)), at)[0]:
                            time.sleep(0.1)
                round_of(server, node.address, arguments.members, arguments.partitions, found)
            finally:
                node.stop()
                shutil.rmtree(folder, ignore_errors=True)
    print(f"{arguments.members} members, {arguments.partitions} partitions, medians of {arguments.rounds} rounds, s")
    print(f"{'':40} {'Kafka':>8} {'Hulse':>8} {'Hulse/Kafka':>12}  goal")
    for (what, figure), values in found.items():
        kafka, hulse = (statistics.median(values[name]) if name in values else None for name in ("apache", "hulse"))
        ratio = f"{hulse / kafka:12.3f}" if kafka else f"{'':12}"
        goal = "at most 2" if figure == "rebalance" else f"at most 2, reads are {READ_EVERY} s apart"
        print(f"{what + ': ' + figure:40} {f'{kafka:8.3f}' if kafka else '':>8} {hulse:8.3f} {ratio}  {goal}")


if __name__ == "__main__":
    main()
