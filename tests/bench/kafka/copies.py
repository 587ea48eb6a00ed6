"""Plain fetch beside `sendfile` of the same bytes over the same kind of connection, read by the same loop."""

import os
import pathlib
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "compatibility"))
import batches  # noqa: E402
import wire  # noqa: E402

# Bytes asked per fetch, and sent per round by the reference.
PIECE = 8 << 20


def take(connection, length, buffer):
    """Reads so many bytes and forgets them."""
    view = memoryview(buffer)
    while length:
        got = connection.recv_into(view[:min(length, len(view))])
        if not got:
            raise RuntimeError("the connection ended early")
        length -= got


def fill(address, topic, megabytes):
    """Batches of half a megabyte, not compressed."""
    records = batches.batch([os.urandom(8_192)] * 60)
    count = megabytes * 1_000_000 // len(records)
    with wire.Connection(address) as connection:
        for first in range(0, count, 4):
            for _ in range(min(4, count - first)):
                connection.send(wire.PRODUCE, 7, wire.produce_body(topic, 0, records))
            for _ in range(min(4, count - first)):
                code = wire.produced(wire.Fields(connection.receive()[1]))[0]
                if code:
                    raise RuntimeError(f"produce: {wire.error(code)}")
    return count * 60, count * len(records)


def fetch(address, topic, records):
    """Reads a partition from end to end, one fetch after the other; MB/s of what came over the wire."""
    buffer = bytearray(1 << 20)
    offset = bytes_read = 0
    with wire.Connection(address) as connection:
        wire.api_versions(connection)
        began = time.monotonic()
        while offset < records:
            body = wire.fetch_body([(topic, 0, offset, PIECE)], max_bytes=PIECE)
            connection.send(wire.FETCH, wire.FETCH_VERSION, body)
            (length,) = struct.unpack(">i", connection.exactly(4))
            # Every batch holds 60 records; the head of the answer has the length of the run, the rest is counted, not kept.
            head = connection.exactly(min(length, 120 + len(topic)))
            take(connection.socket, length - len(head), buffer)
            whole = max(1, (length - len(head)) // 491_000)
            offset += 60 * whole
            bytes_read += length
        return bytes_read / 1e6 / (time.monotonic() - began)


def sendfile(file, length):
    """A server that sends the file in pieces, one for each byte asked; MB/s."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        client, _ = listener.accept()
        with client, open(file, "rb") as source:
            at = 0
            while at < length and client.recv(1):
                piece = min(PIECE, length - at)
                left = piece
                while left:
                    left -= os.sendfile(client.fileno(), source.fileno(), at + piece - left, left)
                at += piece

    threading.Thread(target=serve, daemon=True).start()
    buffer = bytearray(1 << 20)
    with socket.create_connection(listener.getsockname()) as connection:
        began = time.monotonic()
        at = 0
        while at < length:
            piece = min(PIECE, length - at)
            connection.sendall(b"x")
            take(connection, piece, buffer)
            at += piece
        return length / 1e6 / (time.monotonic() - began)
