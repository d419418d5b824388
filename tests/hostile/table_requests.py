"""Hostile requests to the Table door: filters as long as an address may be, over many and large entities."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

TEXT_CHARACTERS = 30_000  # a property holds 64 KB


class Filter(NamedTuple):
    name: str
    text: str
    select: str = ""


def entities(count: int) -> list[dict[str, Any]]:
    small = [{"PartitionKey": "p", "RowKey": f"r{n:05}", "n": n, "s": f"text {n}"} for n in range(count)]
    large: list[dict[str, Any]] = [
        {"PartitionKey": "p", "RowKey": f"large{n}"} | {f"s{place}": "é" * TEXT_CHARACTERS for place in range(10)}
        for n in range(max(1, count // 200))
    ]
    wide: dict[str, Any] = {"PartitionKey": "p", "RowKey": "wide"} | {f"p{n}": n for n in range(240)}
    return [*small, *large, wide]


def _joined(word: str, part: str, length: int) -> str:
    """As many comparisons as go into a text."""
    parts: list[str] = []
    size = 0
    while size < length:
        parts.append(part.format(n=len(parts)))
        size += len(parts[-1]) + len(word) + 2
    return f" {word} ".join(parts)


def named(length: int) -> list[Filter]:
    return [
        Filter("a long or", _joined("or", "n eq -{n}", length)),
        Filter("a long or of texts", _joined("or", "s eq 'x{n}'", length)),
        Filter("a long or of other properties", _joined("or", "q{n} eq 1", length)),
        Filter("a long and", _joined("and", "n ge -{n}", length)),
        Filter("a long or of keys", _joined("or", "(PartitionKey eq 'p' and RowKey eq 'x{n}')", length)),
        Filter("a long or of ranges", _joined("or", "(n gt {n} and n lt {n})", length)),
        Filter("not in not", "not (" * 60 + "n eq 1" + ")" * 60),
        Filter("brackets", "(" * 100 + "n eq 1" + ")" * 100),
        Filter("high characters in order", f"s0 lt '{chr(0x1F600) * (length // 16)}'"),
        Filter("a long literal", f"s eq '{'x' * length}'"),
        Filter("dates", _joined("or", "Timestamp lt datetime'2000-01-01T00:00:{n:02}Z'", min(length, 3_000))),
        Filter("binaries", f"s eq X'{'ab' * (length // 2)}'"),
        Filter("everything", "n ge 0 or n lt 0 or RowKey ge ''"),
        Filter("everything of some properties", "", ",".join(f"p{n}" for n in range(200))),
        Filter("nothing of large entities", "s0 eq 'x' or s1 eq 'x' or s2 eq 'x'"),
    ]


def generated(seed: int, count: int, length: int) -> Iterator[Filter]:
    dice = random.Random(seed)
    for number in range(count):
        parts: list[str] = []
        size = 0
        while size < length:
            name = dice.choice(["n", "s", "s0", "q1", "PartitionKey", "RowKey", f"p{dice.randrange(300)}"])
            literal = dice.choice([str(dice.randrange(-9, 9)), f"'{'x' * dice.randrange(50)}'", "true", "1.5", "5L"])
            part = f"{name} {dice.choice(['eq', 'ne', 'lt', 'le', 'gt', 'ge'])} {literal}"
            parts.append(f"not ({part})" if dice.random() < 0.2 else part)
            size += len(part) + 5
        text = parts[0]
        for part in parts[1:]:
            text += f" {dice.choice(['and', 'or', 'or'])} {part}"
        yield Filter(f"generated {seed}/{number}", text)
