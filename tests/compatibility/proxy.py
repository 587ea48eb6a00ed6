"""A proxy that understands frames: it cuts connections at chosen moments, loses answers and makes answers late.

Clients find the server's own address in Metadata and would leave the proxy, so the ports of brokers are replaced in what comes back
(Metadata, DescribeCluster and FindCoordinator; one node, an address of loopback).
"""

import queue
import random
import socket
import struct
import threading
import time

import wire


def _patch(api, version, body, port):
    """Replaces the brokers' ports in an answer's body (after the correlation id)."""
    at = 0
    flexible = (api == wire.METADATA and version >= 9) or api == wire.DESCRIBE_CLUSTER or (api == wire.FIND_COORDINATOR and version >= 3)

    def length(kind):
        nonlocal at
        if not flexible:
            (value,) = struct.unpack_from(kind, body, at)
            at += struct.calcsize(kind)
            return value
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - 1

    def skip_string():
        nonlocal at
        size = length(">h")
        at += max(size, 0)

    def coordinator():
        nonlocal at
        at += 4
        skip_string()
        struct.pack_into(">i", body, at, port)
        at += 4

    if flexible:
        at += 1
    if api == wire.FIND_COORDINATOR:
        at += 4 if version >= 1 else 0
        if version < 4:
            at += 2
            if version >= 1:
                skip_string()
            coordinator()
            return
        for _ in range(length(">i")):
            skip_string()
            coordinator()
            at += 2
            skip_string()
            at += 1
        return
    if api == wire.METADATA:
        at += 4 if version >= 3 else 0
    else:
        at += 6
        skip_string()
        at += 1 if version >= 1 else 0
        skip_string()
        at += 4
    for _ in range(length(">i")):
        at += 4
        skip_string()
        struct.pack_into(">i", body, at, port)
        at += 4
        if api != wire.METADATA or version >= 1:
            skip_string()
        if api == wire.DESCRIBE_CLUSTER and version >= 2:
            at += 1
        if flexible:
            at += 1


class Proxy:
    """Between clients and one server."""

    def __init__(self, target, late=0.0):
        self.target = wire.split(target)
        # Seconds by which answers to Produce are late, so that several are open.
        self.late = late
        # Answers to these requests are lost, one of so many, and their connection with them.
        self.loses, self.one_of, self.lost = (), 10, 0
        self.random = random.Random(1)
        self.lock = threading.Lock()
        self.pairs = set()
        # Produce requests without an answer yet.
        self.open = 0
        self.down_until = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()
        self.cut()

    def cut(self, down=0.0):
        """Closes every connection now; answers under way are lost. New connections are refused for `down` seconds."""
        with self.lock:
            self.down_until = time.monotonic() + down
            pairs, self.pairs, self.open = self.pairs, set(), 0
        for pair in pairs:
            pair.end()
        return len(pairs)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if time.monotonic() < self.down_until:
                client.close()
                continue
            try:
                server = socket.create_connection(self.target, 5)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            pair = _Pair(self, client, server)
            with self.lock:
                self.pairs.add(pair)
            pair.start()


class _Pair:
    """One client's connection and the server's."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.asked = {}
        # Answers on their way to the client, with the time they are due.
        self.answers = queue.SimpleQueue()
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self):
        threading.Thread(target=self._pump, args=(self.client, self._up), daemon=True).start()
        threading.Thread(target=self._pump, args=(self.server, self._down), daemon=True).start()
        threading.Thread(target=self._deliver, daemon=True).start()

    def end(self):
        for side in (self.client, self.server):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            side.close()

    def _pump(self, source, forward):
        try:
            reader = source.makefile("rb", buffering=1 << 16)
            while True:
                head = reader.read(4)
                if len(head) < 4:
                    break
                (length,) = struct.unpack(">i", head)
                frame = bytearray(reader.read(length))
                if len(frame) < length:
                    break
                forward(head, frame)
        except (OSError, ValueError):
            pass
        with self.proxy.lock:
            if self in self.proxy.pairs:
                self.proxy.pairs.discard(self)
                self.proxy.open -= sum(api == wire.PRODUCE for api, _ in self.asked.values())
        self.answers.put(None)
        self.end()

    def _up(self, head, frame):
        api, version, correlation = struct.unpack_from(">hhi", frame)
        with self.proxy.lock:
            self.asked[correlation] = (api, version)
        self.server.sendall(head + frame)
        if api == wire.PRODUCE:
            with self.proxy.lock:
                if self in self.proxy.pairs:
                    self.proxy.open += 1

    def _down(self, head, frame):
        (correlation,) = struct.unpack_from(">i", frame)
        api, version = self.asked[correlation]
        if api in self.proxy.loses and self.proxy.random.randrange(self.proxy.one_of) == 0:
            self.proxy.lost += 1
            self.end()
            return
        if api in (wire.METADATA, wire.DESCRIBE_CLUSTER, wire.FIND_COORDINATOR):
            body = frame[4:]
            _patch(api, version, body, self.proxy.port)
            frame[4:] = body
        late = self.proxy.late if api == wire.PRODUCE else 0.0
        self.answers.put((time.monotonic() + late, correlation, api, head + frame))

    def _deliver(self):
        while (answer := self.answers.get()) is not None:
            due, correlation, api, data = answer
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self.client.sendall(data)
            except OSError:
                return
            with self.proxy.lock:
                del self.asked[correlation]
                if api == wire.PRODUCE and self in self.proxy.pairs:
                    self.proxy.open -= 1
