#!/usr/bin/env python3
"""Makes the table client x check of the drivers' lines, which it reads from standard input.

    table.py TITLE >table.md
"""

import sys

from checks import EXPLAINED

MARKS = {"passed": "✓", "failed": "**✗**", "not run": "○"}


def main():
    lines = [[part.strip() for part in line.split(" | ", 3)] for line in sys.stdin if line.count(" | ") >= 3]
    clients = list(dict.fromkeys(client for client, *_ in lines))
    checks = list(dict.fromkeys(check for _, check, *_ in lines))
    found = {(client, check): (outcome, words) for client, check, outcome, words in lines}
    rows = [[check] + [MARKS.get(found.get((client, check), ("",))[0], "") for client in clients] for check in checks]
    # A check that one client has alone does not widen the table.
    alone = [client for client in clients if all(sum((other, check) in found for other in clients) == 1
                                                 for check in checks if (client, check) in found)]
    shared = [client for client in clients if client not in alone]
    print(f"# Kafka's clients against this server\n\n{sys.argv[1]}\n")
    print("✓ passed, **✗** failed, ○ not run, empty: this client cannot do it or is not asked. Made by `tests/compatibility/run`.\n")
    print("| check | " + " | ".join(shared) + " |\n|---|" + "---|" * len(shared))
    for check, *marks in rows:
        cells = [mark for client, mark in zip(clients, marks) if client in shared]
        if any(cells):
            print(f"| {check} | " + " | ".join(cells) + " |")
    for client in alone:
        print(f"\n| {client} | |\n|---|---|")
        for check, *marks in rows:
            if (client, check) in found:
                print(f"| {check} | {marks[clients.index(client)]} |")
    counts = {outcome: sum(row[2] == outcome for row in lines) for outcome in MARKS}
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} not run.\n")
    for outcome in ("failed", "not run"):
        for client, check, said, words in lines:
            if said == outcome:
                print(f"- {client}, {check}: {outcome}: {words}")
    print("\n## What a check shows\n")
    for name, words in EXPLAINED.items():
        print(f"- **{name}**: {words}")


if __name__ == "__main__":
    main()
