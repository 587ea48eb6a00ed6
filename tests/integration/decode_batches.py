"""Decodes a file of record batches, one after the other, with kafka-python and prints what it found as JSON."""

import json
import sys

from kafka.record.memory_records import MemoryRecords


def main():
    with open(sys.argv[1], "rb") as file:
        records = MemoryRecords(file.read())
    found = {"records": 0, "null_keys": 0, "value_bytes": 0, "distance": 0}
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            sys.exit(f"batch at offset {batch.base_offset} has a wrong checksum")
        for record in batch:
            found["records"] += 1
            found["null_keys"] += record.key is None
            found["value_bytes"] += len(record.value)
            found["distance"] += json.loads(record.value)["distance"] or 0
    print(json.dumps(found))


main()
