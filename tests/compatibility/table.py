#!/usr/bin/env python3
"""Makes the table client x check of the drivers' lines, which it reads from standard input.

    table.py TITLE KNOWN TABLE <lines

KNOWN lists the checks that are known to fail, with the cause. Prints what counts, `N passed, N failed, N known to fail, N not run`, and ends with
1 if a check failed that is not known, or a known one passed; with 3 if something was not run.
"""

import sys

from checks import EXPLAINED

MARKS = {"passed": "✓", "failed": "**✗**", "known": "✗", "not run": "○", "left out": "–"}


def causes(file):
    """[(check, client's beginning, cause)]"""
    with open(file) as lines:
        return [tuple(line.strip().split(" | ", 2)) for line in lines if " | " in line and not line.startswith("#")]


def judged(lines, known):
    """The lines with `known` for failures that are, and `failed` for known failures that passed."""
    found = []
    for client, check, outcome, words in lines:
        cause = next((cause for name, beginning, cause in known if name == check and client.startswith(beginning)), None)
        if cause and outcome == "failed":
            outcome, words = "known", f"{cause} ({words})"
        elif cause and outcome == "passed":
            outcome, words = "failed", "it passes now: take it out of known.txt"
        found.append((client, check, outcome, words))
    return found


def main():
    title, known, table = sys.argv[1:]
    lines = [[part.strip() for part in line.split(" | ", 3)] for line in sys.stdin if line.count(" | ") >= 3]
    lines = judged(lines, causes(known))
    with open(table, "w") as out:
        write(title, lines, lambda *words: print(*words, file=out))
    counts = {outcome: sum(row[2] == outcome for row in lines) for outcome in MARKS}
    for client, check, outcome, words in lines:
        if outcome == "failed":
            print(f"failed: {client} | {check} | {words}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['known']} known to fail, {counts['not run']} not run; table: {table}")
    sys.exit(1 if counts["failed"] else 3 if counts["not run"] else 0)


def write(title, lines, print):
    """The table in Markdown."""
    clients = list(dict.fromkeys(client for client, *_ in lines))
    checks = list(dict.fromkeys(check for _, check, *_ in lines))
    found = {(client, check): (outcome, words) for client, check, outcome, words in lines}
    rows = [[check] + [MARKS.get(found.get((client, check), ("",))[0], "") for client in clients] for check in checks]
    # A check that one client has alone does not widen the table.
    alone = [client for client in clients if all(sum((other, check) in found for other in clients) == 1
                                                 for check in checks if (client, check) in found)]
    shared = [client for client in clients if client not in alone]
    print(f"# Kafka's clients against this server\n\n{title}\n")
    print("✓ passed, **✗** failed, ✗ fails for a known cause, ○ not run, – left out for a reason that is below, empty: this client cannot do it or is not asked. Made by `tests/compatibility/run`.\n")
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
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['known']} known to fail, {counts['not run']} not run.\n")
    for outcome, word in (("failed", "failed"), ("known", "fails"), ("not run", "not run"), ("left out", "left out")):
        for client, check, said, words in lines:
            if said == outcome:
                print(f"- {client}, {check}: {word}: {words}")
    print("\n## What a check shows\n")
    for name, words in EXPLAINED.items():
        print(f"- **{name}**: {words}")


if __name__ == "__main__":
    main()
