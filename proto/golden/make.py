#!/usr/bin/env python3
"""Makes the golden files of format version 1 from the tables in the sources' headers, with nothing of the code they test.

    python3 proto/golden/make.py [--check]

Version 1 is frozen: `--check` compares and writes nothing. A new version gets a folder of its own, and v1 stays.
"""

import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 4096
SALT = 0x0123456789ABCDEF
CELL, INCARNATION, DISK, TOPIC = (bytes([n]) * 16 for n in (1, 2, 3, 4))
SUBSCRIPTION, BOOT = bytes([5]) * 16, bytes([6]) * 16
TIME = 1_700_000_000_000


def table(polynomial):
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        rows.append(byte)
    return rows


def crc(rows, bits, data):
    value = (1 << bits) - 1
    for byte in data:
        value = value >> 8 ^ rows[(value ^ byte) & 255]
    return value ^ (1 << bits) - 1


CRC32C, CRC64 = table(0x82F63B78), table(0x9A6C9329AC4BC9B5)


def crc32c(data):
    return crc(CRC32C, 32, data)


def le(pattern, *values):
    return struct.pack("<" + pattern, *values)


def sealed(data):
    return data + le("I", crc32c(data))


def block(data):
    return data + bytes(-len(data) % BLOCK)


assert crc32c(b"123456789") == 0xE3069283
assert crc(CRC64, 64, b"123456789") == 0xAE8B14860A799888

# Entries (proto/src/entry).


def envelope(kind, batches):
    out = le("BBHqqI", 1, kind, 0, TIME, TIME + 5, len(batches))
    for summary in batches:
        out += le("IIIqhhiqHHqq", *summary)
    return sealed(out)


# Length, span, count, producer id, epoch, attributes, base sequence, max timestamp, hashes, expires at, base timestamp.
BATCHES = [
    (70, 3, 2, 4711, 3, 4, 12, TIME + 5, 100, 60_000, TIME + 9, TIME - 5),
    (0xFFFFFFFF, 1, 1, -1, -1, 0, -1, -1, 0, 65_535, 0, -1),
]


def entry(class_, ledger, number, first, span, count, before, envelope_, body):
    payload = envelope_ + body
    digest = (before[1] + crc(CRC64, 64, le("Q", number) + payload)) % (1 << 64)
    totals = (before[0] + len(payload), digest)
    out = le("BBHQQQIIQQQIII", 1, class_, 0, ledger, number, first, span, count, 0, *totals,
             len(envelope_), len(payload), crc32c(payload))
    return sealed(out) + payload, totals


# Protobuf (proto/protobuf/metadata.proto).


def varint(value):
    value %= 1 << 64
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(*fields):
    """Fields as (number, value), in order; zero and empty values are left out unless they are given as a list of one."""
    out = b""
    for number, value in fields:
        for one in value if isinstance(value, list) else [value] if value else []:
            if isinstance(one, str):
                one = one.encode()
            if isinstance(one, bytes):
                out += varint(number << 3 | 2) + varint(len(one)) + one
            else:
                out += varint(number << 3) + varint(one)
    return out


def member(name, incarnation):
    return message((1, name), (2, incarnation))


def metadata():
    first = message((2, [member("bookie-1", INCARNATION), member("bookie-2", DISK), member("bookie-3", CELL)]))
    second = message((1, 40), (2, [member("bookie-1", INCARNATION), member("bookie-4", TOPIC), member("bookie-3", CELL)]))
    ledger = message(
        (1, 1), (2, 1), (3, TOPIC), (4, 7), (5, 3), (6, 3), (7, 3), (8, 2), (9, 3), (10, 5), (11, [first, second]),
        (12, 1000), (13, BOOT), (14, SUBSCRIPTION), (15, message((1, 55), (2, 60), (3, 58), (4, 70_000), (5, 1 << 63))),
        (16, [message((1, 10), (2, 20), (3, ["bookie-2", "bookie-3"]))]), (17, message((1, 1), (2, 54), (3, TIME + 1))),
        (18, TIME))
    attempt = [message((1, bytes([number]) * 16), (2, "main"), (3, f"hulse/object-{number}")) for number in (7, 8, 9)]
    settled = message((1, TIME), (2, [message((1, 4711), (2, 1003), (3, 1010))]), (3, 77))
    segment_ = message((1, attempt[2]), (2, 90_000), (3, "etag"), (4, 10), (5, 80_000), (6, 500), (7, 0xFEED))
    tier = message((1, settled), (2, attempt[1]), (3, [attempt[0]]), (4, segment_), (5, 1), (6, BOOT))
    link = message((1, 11), (2, 1000), (3, 3))
    gap = message((1, 12), (2, 1100), (3, 4), (4, 1060))
    state_link = message((1, 13), (3, 4))
    subscribed = [
        message((1, TOPIC), (2, 3), (3, 1)), message((1, CELL), (2, 1), (4, 1), (7, 1)),
        message((1, DISK), (2, 2), (5, [0])), message((1, INCARNATION), (2, 2), (6, TIME)),
    ]
    return {
        "cell": message((1, CELL), (2, 3), (3, 3), (4, 2), (5, 16), (6, 32), (7, 1), (8, TIME)),
        "bookie": message((1, INCARNATION), (2, DISK), (3, 1), (4, 17), (5, 9), (6, "zone-a")),
        "node": message((1, BOOT), (2, "http://10.0.0.1:7171"), (3, 17), (4, TIME), (5, "readonly")),
        "ledger": ledger,
        "ledger_tiered": ledger + message((21, tier)),
        "ledger_version_2": message((1, 2)) + ledger[2:],
        "topic": message((1, TOPIC), (2, 12), (3, 1), (4, TIME), (5, 1), (6, [86_400_000]), (7, [-1])),
        "topic_with_quota": message((1, TOPIC), (2, 1), (3, 2), (4, TIME), (8, [1 << 30]), (9, [-1]), (10, 2)),
        "partition": message((1, 3), (2, "broker-1"), (3, BOOT)),
        "chain": message((1, [link, gap]), (2, 1005)),
        "chain_of_state": message((1, [state_link])),
        "broker": message((1, 4)),
        "subscription": message((1, SUBSCRIPTION), (2, 1), (3, 1), (4, 1), (5, TIME), (6, subscribed)),
        "counter": message((1, 4711)),
    }


# The state of a partition (serving/broker/src/state).


def meta_record(kind, number, rest):
    return le("BB", 1, kind) + TOPIC + le("IIQ", 7, 3, number) + rest


def short(text):
    return le("H", len(text)) + text.encode()


def ranges(*pairs):
    return le("I", len(pairs)) + b"".join(le("QQ", *pair) for pair in pairs)


def state():
    made = b"\0" + SUBSCRIPTION + le("BQq", 1, 100, TIME) + short("orders")
    acked = b"\1" + SUBSCRIPTION + le("qQ", TIME + 1, 110) + ranges((112, 113), (120, 130))
    moved = b"\2" + SUBSCRIPTION + le("qQIB", TIME + 2, 105, 4, 1)
    removed = b"\3" + SUBSCRIPTION
    hold = b"\4" + SUBSCRIPTION + b"\0"
    evicted = b"\5" + SUBSCRIPTION + le("Q", 77)
    mark = lambda first, end, *rest: le("QQHBBQq", first, end, *rest)
    marks = le("I", 3) + mark(112, 113, 1, 3, 0, 0, 0) + mark(120, 130, 5, 1, 2, 3, TIME) + mark(140, 141, 0, 2, 1, 0, 0)
    marked = b"\6" + SUBSCRIPTION + marks + b"\7" + SUBSCRIPTION + le("Q", 4)
    fresh = SUBSCRIPTION + le("BQIqq", 1, 100, 0, TIME, 0) + short("orders") + ranges()
    window = le("iiQq", 12, 13, 1000, TIME) + le("iiQq", 14, 14, 1002, TIME + 1)
    log = le("QqqI", 1003, TIME + 1, TIME + 5, 1) + le("qhqB", 4711, 3, TIME + 1, 2) + window
    cursor = SUBSCRIPTION + le("BQIqq", 1, 110, 4, TIME, TIME + 1) + short("orders") + ranges((112, 113), (120, 130))
    snapshot = log + le("I", 1) + cursor
    chunk = lambda index, part: meta_record(1, 9, le("QII", 1003, index, 2) + part)
    return {
        "state_delta": meta_record(0, 10, made + acked + moved + removed + hold),
        "state_delta_evicted": meta_record(0, 11, made + evicted),
        "state_cursors_evicted": le("I", 1) + cursor + le("I", 1) + SUBSCRIPTION + le("Q", 77),
        "state_delta_marks": meta_record(0, 12, made + marked),
        "state_cursors_marks": le("I", 1) + fresh + le("I", 0) + le("I", 1) + SUBSCRIPTION + le("Q", 4) + marks,
        "state_chunk_0": chunk(0, snapshot[:40]),
        "state_chunk_1": chunk(1, snapshot[40:]),
    }


# The bookie's log (bookie/node/src/log/format).


def file_header(kind, number, length, replaces=(), salt=SALT):
    out = b"HULSELOG" + le("IQI", 1, 0, kind) + CELL + INCARNATION + DISK
    out += le("QQqQQ", number, salt, TIME, length, len(replaces)) + b"".join(le("Q", n) for n in replaces)
    return sealed(out.ljust(BLOCK - 4, b"\0"))


def frame(kind, content, origin=0, confirmed=0, token=0, flags=0):
    head = le("IBBBBQQ", len(content), kind, flags, 1, origin, confirmed, token)
    covered = head if kind == 1 else head + content
    return head + le("I", crc32c(covered)) + content


def record(kind, *numbers, token=0, flags=0):
    return frame(kind, b"".join(le("Q", n) for n in numbers), token=token, flags=flags)


def group(sequence, offset, records, synced=(4, 8192), salt=SALT):
    body = b"".join(records)
    magic = struct.unpack("<Q", b"HULSEGRP")[0] ^ salt
    head = le("QQQIIQQQI", magic, sequence, offset, len(body), len(records), *synced, 0, crc32c(body))
    return block(sealed(head) + body)


FENCE, LIMBO, LIMBO_CLEAR, TOMBSTONE, DEAD_BELOW, SEAL, DAMAGE, ROW, REMOVED, SNAPSHOT_END = range(2, 12)
RECORDS = [
    record(FENCE, 9, token=3), record(LIMBO, 9, 2, 4), record(LIMBO_CLEAR, 9, 5), record(TOMBSTONE, 9), record(DEAD_BELOW, 10),
    record(SEAL, 6, 1 << 20), record(DAMAGE, 6, 4096, (1 << 64) - 1), record(REMOVED, 2, 5), record(ROW, 9, 1, 44, 2),
    record(ROW, 11, 2, 0, 0, 0, 0, 7), record(SNAPSHOT_END, 2),
]
# For people alone: a reader that does not know them skips them.
DAMAGED_ENTRIES, DAMAGE_COVERED = 12, 13
NOTES = [record(DAMAGED_ENTRIES, 9, 7, 9, 4, flags=1), record(DAMAGE_COVERED, 6, 4096, (1 << 64) - 1, flags=1)]


def entries():
    """Ledger 9 has two entries, the second by a recovery; ledger 12 has its eighth, a copy."""
    out, totals = [], (0, 0)
    for ledger, number, origin, confirmed, token, class_, batches, body in [
        (9, 0, 0, 0, 0, 0, BATCHES, b"first"), (9, 1, 1, 1, 7, 1, BATCHES[1:], b"second"), (12, 7, 2, 7, 0, 2, [], b"copied"),
    ]:
        if ledger == 12:
            totals = (1000, 0xFEED)
        offsets = (0, 0, 0) if class_ == 2 else (50 + 3 * number, 3, 2)
        content, totals = entry(class_, ledger, number, *offsets, totals, envelope(class_, batches), body)
        out.append((ledger, number, frame(1, content, origin, confirmed, token)))
    return out


def footer(header, end, sequences, snapshot_end, placed, damage, states, salt=SALT, at=None):
    """`placed`: (ledger, entry, frame, offset in the file), ordered. It stands behind the body, or `at`."""
    at = end if at is None else at
    slots = b"".join(le("III", offset, len(data), 0)[:8] + data[28 + 72:28 + 76] + data[28 + 68:28 + 72]
                     for _, _, data, offset in placed)
    pages = sealed(slots.ljust(BLOCK - 16, b"\0") + le("QI", salt, 0)) if placed else b""
    ledgers, runs = [], []
    for ledger in sorted({row[0] for row in placed}):
        own = [row for row in placed if row[0] == ledger]
        normal = [row for row in own if row[2][7] == 0]
        confirmed = max([struct.unpack_from("<Q", row[2], 8)[0] for row in normal], default=0)
        size = sum(len(row[2]) for row in own)
        begun = [row for row in own if not any(other[1] + 1 == row[1] for other in own)]
        ledgers.append(le("QQQIIII", ledger, size, confirmed, len(own), len(begun), bool(normal), 0))
        for row in begun:
            count = 0
            while any(other[1] == row[1] + count for other in own):
                count += 1
            runs.append(le("QI", row[1], count))
    state_bytes = b"".join(states)
    out = header + le("QQQQQQIIIIII", *sequences, end, snapshot_end, len(placed), sum(len(row[2]) for row in placed), len(placed),
                      len(ledgers), len(runs), len(damage), len(state_bytes), len(states))
    out += b"".join(ledgers) + b"".join(runs) + b"".join(le("QQ", *pair) for pair in damage) + state_bytes
    trailer = sealed(b"HULSEFTR" + le("IIQQQI", 1, len(pages) // BLOCK, struct.unpack_from("<Q", header, 72)[0], at, len(out),
                                      crc32c(out)) + bytes(16))
    return pages + out + bytes(-(len(out) + 64) % BLOCK) + trailer


def text(name, *fields):
    body = f"# Hulse bookie {name}. Not to be edited.\nformat_version = 1\n" + "".join(f"{key} = {value}\n" for key, value in fields)
    return (body + f"crc32c = {crc32c(body.encode()):08x}\n").encode()


def uuid(data):
    digits = data.hex()
    return "-".join(digits[a:b] for a, b in [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)])


def identity(sync):
    return text("identity", ("cell", uuid(CELL)), ("name", "bookie-1"), ("incarnation", uuid(INCARNATION)), ("disk", uuid(DISK)),
                ("sync", sync), ("registered", "true"))


def boot(clean):
    return text("boot", ("counter", 17), ("kernel", "0f1e2d3c"), ("clean", clean))


def placed(found, offset):
    at, out = offset + 64, []
    for ledger, number, data in found:
        out.append((ledger, number, data, at))
        at += len(data)
    return out


def bookie():
    stored = entries()
    log_header = file_header(1, 5, 1 << 28)
    return {
        "file_header_log": log_header,
        "file_header_compacted": file_header(2, 7, 1 << 28, (2, 3, 5)),
        "group_of_records": group(41, 12_288, RECORDS),
        "group_of_notes": group(43, 20_480, NOTES),
        "group_of_entries": group(40, 8192, [row[2] for row in stored]),
        "group_mark": group(42, 16_384, []),
        "footer": footer(log_header, 20_480, (40, 43), 8192, placed(stored, 8192), [(4096, 8192)],
                         [RECORDS[0], RECORDS[3], RECORDS[7]], at=0),
        "identity": identity("interval:250"),
        "boot": boot("true"),
    }


def disk():
    """A whole disk: file 0 was compacted into file 2; file 1 is sealed and begins with a snapshot of the state; file 3 is open."""
    stored = entries()
    copied, kept = stored[:2], stored[2:]
    out = {"identity": identity("always"), "boot": boot("true")}
    # File 1, salt 21: snapshot, an entry, fence and tombstone.
    size = 1 << 20
    rows = [record(ROW, 9, 1, 1), record(ROW, 10, 2), record(SNAPSHOT_END, 2)]
    states = [record(FENCE, 13, token=6), record(TOMBSTONE, 14)]
    header = file_header(1, 1, size, salt=21)
    groups = [group(4, 4096, rows, (1, 4096), 21), group(5, 8192, [row[2] for row in kept] + states, (1, 8192), 21)]
    tail = footer(header, 12_288, (4, 6), 8192, placed(kept, 8192), [], states, 21)
    out["00000000000000000001.log"] = header + b"".join(groups) + tail
    # File 2, salt 22: what lived in file 0.
    header = file_header(2, 2, size, (0,), salt=22)
    seal = [record(SEAL, 0, 8192)]
    groups = [group(0, 4096, [row[2] for row in copied], (0, 0), 22), group(1, 8192, seal, (0, 0), 22)]
    out["00000000000000000002.cmp"] = header + b"".join(groups) + footer(header, 12_288, (0, 2), 0, placed(copied, 4096), [], seal, 22)
    # File 3, salt 23: the seal of file 1, the removal of file 0, the state again, a third entry of ledger 9; a mark.
    third, _ = entry(0, 9, 2, 56, 1, 1, (struct.unpack_from("<Q", copied[1][2], 28 + 44)[0],
                                         struct.unpack_from("<Q", copied[1][2], 28 + 52)[0]), envelope(0, BATCHES[1:]), b"third")
    rows = [record(SEAL, 1, 12_288), record(ROW, 9, 1, 1), record(ROW, 10, 2), record(ROW, 12, 0), record(ROW, 13, 0, 0, 6),
            record(ROW, 14, 2), record(SNAPSHOT_END, 5)]
    groups = [group(6, 4096, rows, (1, 12_288), 23), group(7, 8192, [record(REMOVED, 0, 1)], (3, 8192), 23),
              group(8, 12_288, [frame(1, third, 0, 2, 0)], (3, 12_288), 23), group(9, 16_384, [], (3, 16_384), 23)]
    out["00000000000000000003.log"] = file_header(1, 3, size, salt=23) + b"".join(groups)
    return out


# A segment (bookie/tier/src/format): each entry in a block of its own, ledgers 9 and 11 of partition 7.


def segment(uuid_=bytes([8]) * 16):
    out, rows = b"", []
    for ledger, base, aborted, contents in [
        (9, 50, [(50, 54, 4711)], [(0, 3, 2, BATCHES, b"the bytes of two batches"), (1, 1, 1, BATCHES[1:], b"a marker")]),
        (11, 54, [], [(0, 2, 2, BATCHES[:1], b"one more")]),
    ]:
        first_byte, blocks, totals, offset, records = len(out), b"", (0, 0), base, 0
        for number, (class_, span, count, batches, body) in enumerate(contents):
            data, totals = entry(class_, ledger, number, offset, span, count, totals, envelope(class_, batches), body)
            block_ = sealed(b"HBLK" + le("B3xQQQIII", 1, ledger, number, offset, 1, len(data), crc32c(data))) + data
            times = min(row[11] for row in batches), max(row[7] for row in batches), TIME + 5
            blocks += le("QQQIIqqq", number, offset, len(out), len(block_), crc32c(data), *times)
            out += block_
            offset, records = offset + span, records + count
        index = b"HIDX" + le("B3xQ", 1, ledger) + TOPIC + le("IIII", 7, len(contents), len(aborted), 0)
        index += le("QQQQQQ", base, len(contents), offset - base, records, *totals) + blocks
        index = sealed(index + b"".join(le("QQq", *row) for row in aborted))
        rows.append(le("QQQIIQ", ledger, first_byte, len(out), len(index), crc32c(index[:-4]), len(contents)))
        out += index
    directory = sealed(b"HDIR" + le("B3xII", 1, len(rows), 0) + b"".join(rows))
    size = len(out) + len(directory) + 56
    trailer = le("QII", len(out), len(directory), crc32c(directory[:-4])) + uuid_ + le("QB3x", size, 1)
    return out + directory + sealed(trailer) + b"HULSESEG"


def row(version, lease, value):
    return le("QQ", version, lease) + value


def files():
    values = metadata()
    data = entry(0, 9, 0, 50, 3, 2, (0, 0), envelope(0, BATCHES), b"the bytes of two batches")[0]
    control = entry(1, 9, 1, 53, 1, 1, (0, 0), envelope(1, BATCHES[1:]), b"a marker")[0]
    body = meta_record(0, 10, b"")
    meta = entry(2, 10, 7, 0, 0, 0, (1000, 0xFEED), envelope(2, []), body)[0]
    folders = {
        "proto/golden/v1": values | {"entry_data": data, "entry_control": control, "entry_meta": meta},
        "bookie/node/golden/v1": bookie(),
        "bookie/node/golden/v1/disk": disk(),
        "bookie/metadata/golden/v1": {"row": row(71, 0, values["topic"]), "row_leased": row(72, 9, values["node"])},
        "bookie/tier/golden/v1": {"segment": segment()},
        "serving/broker/golden/v1": state(),
    }
    return {ROOT / folder / name: data for folder, all_ in folders.items() for name, data in all_.items()}


def main():
    differing = 0
    for path, data in files().items():
        if "--check" in sys.argv:
            if not path.exists() or path.read_bytes() != data:
                print(f"{path.relative_to(ROOT)} differs")
                differing += 1
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    sys.exit(1 if differing else 0)


main()
