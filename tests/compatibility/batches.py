"""Kafka's record batch, version 2, written and read without a library."""

import gzip
import struct

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME = 0x08


def _table():
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


_CRC = _table()


def crc32c(data):
    """CRC32C (Castagnoli). A megabyte takes a good part of a second: keep batches small where it does not matter."""
    value, table = 0xFFFFFFFF, _CRC
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def varint(number):
    """A signed number, zigzag."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number & ~0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(data):
    return varint(-1) if data is None else varint(len(data)) + data


def record(value, key=None, headers=(), delta=0, time_delta=0):
    """One record of a batch."""
    body = b"\0" + varint(time_delta) + varint(delta) + _sized(key) + _sized(value) + varint(len(headers))
    body += b"".join(_sized(name) + _sized(content) for name, content in headers)
    return varint(len(body)) + body


def compress(codec, data):
    """What the standard library can, and ZSTD as stored blocks, which is as good a frame as any."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.compress(data)
    if codec == ZSTD:
        return zstd_frame([(data[at:at + 131_072], 1) for at in range(0, len(data), 131_072)])
    raise ValueError(f"codec {codec} needs a library")


def zstd_frame(blocks):
    """A zstd frame of (bytes, repeat) blocks: raw ones, or a single byte repeated up to 131,072 times."""
    out = bytearray(b"\x28\xb5\x2f\xfd\x00\x38")
    for number, (data, repeat) in enumerate(blocks):
        last = number + 1 == len(blocks)
        kind, size = (1, repeat) if repeat > 1 else (0, len(data))
        out += struct.pack("<I", last | kind << 1 | size << 3)[:3] + data
    return bytes(out)


def sealed(records, count, codec=NONE, base_time=0, max_time=0, producer=-1, epoch=-1, sequence=-1, attributes=0, magic=2, base_offset=0):
    """A batch around bytes that are (compressed) records already."""
    after = struct.pack(">hiqqqhii", attributes | codec, count - 1, base_time, max_time, producer, epoch, sequence, count) + records
    head = struct.pack(">ib", -1, magic) + struct.pack(">I", crc32c(after))
    return struct.pack(">qi", base_offset, len(head) + len(after)) + head + after


def batch(values, times=None, codec=NONE, keys=None, headers=None, **header):
    """A batch of values; all times 1 where none are given."""
    times = times or [1] * len(values)
    rows = [
        record(value, keys[at] if keys else None, headers[at] if headers else (), at, times[at] - times[0])
        for at, value in enumerate(values)
    ]
    return sealed(compress(codec, b"".join(rows)), len(values), codec, times[0], max(times), **header)


class _Varints:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        shift = value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)

    def sized(self):
        length = self.number()
        if length < 0:
            return None
        self.at += length
        return bytes(self.data[self.at - length:self.at])


def headers_of(data):
    """[(base offset, last offset, count, attributes, whole batch)] of a fetched run; a partial batch at the end is left out."""
    found, at = [], 0
    while at + 12 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        whole = data[at:at + 12 + length]
        if len(whole) < 12 + length:
            break
        attributes, last = struct.unpack_from(">hi", whole, 21)
        found.append((base, base + last, struct.unpack_from(">i", whole, 57)[0], attributes, whole))
        at += 12 + length
    return found


def records_of(data):
    """[(offset, time, key, value, headers)] of a fetched run of batches that are not compressed; checks each CRC."""
    rows = []
    for base, _, count, attributes, whole in headers_of(data):
        if struct.unpack_from(">I", whole, 17)[0] != crc32c(whole[21:]):
            raise ValueError(f"the batch at {base} has a wrong CRC")
        if attributes & 7:
            raise ValueError(f"the batch at {base} is compressed")
        first_time, last_time = struct.unpack_from(">qq", whole, 27)
        body = _Varints(whole[61:])
        for _ in range(count):
            body.number()
            body.at += 1
            time_delta, delta = body.number(), body.number()
            key, value = body.sized(), body.sized()
            headers = [(body.sized(), body.sized()) for _ in range(body.number())]
            time = last_time if attributes & LOG_APPEND_TIME else first_time + time_delta
            rows.append((base + delta, time, key, value, headers))
    return rows
