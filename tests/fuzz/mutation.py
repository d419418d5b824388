"""Bad input from a seed: JSON values that programs stumble over, documents with one thing wrong, and bytes with a few.

What is done with them is left to `targets.py` (requests) and to the tests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import orjson

from armillary.limits import BODY_BYTES_MAX

LONG = "x" * 3000
# As JSON texts: some of them are none.
NASTY_TEXTS: Sequence[bytes] = (
    *(b"null", b"true", b"false", b"0", b"-0", b"-1", b"1.5", b"1e308", b"1e400", b"-1e400", b"1e-400", b"NaN"),
    *(b"9007199254740993", b"9223372036854775807", b"-9223372036854775809", b"18446744073709551616", b"1" * 400),
    *(b'""', b'" "', b'"\\u0000"', b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\ud83d\\ude00"', b'"\xff"', b'"\xc0\x80"'),
    *(b'"/"', b'"//"', b'"/a/b/[]/c"', b'"[\\"a\\"]"', b'"*"', b'"id"', b'"_etag"', b'"__proto__"', b'"\\n"', b'"a/b"'),
    *(b"[]", b"{}", b"[[]]", b"[{}]", b"[null]", b'{"":1}', b'{"a":1,"a":2}', b'{"_rid":1,"_ts":"x"}', b'{"id":null}'),
    *(b"[" * 200 + b"]" * 200, b'{"a":' * 130 + b"1" + b"}" * 130, b"[" * 100_000, b'"' + b"y" * 3000 + b'"'),
    *(b"", b"nul", b"{", b"[1,]", b"{'a':1}", b'{"a"}', b"\xef\xbb\xbf{}", b"1 2", b"// x", b"Infinity", b"\x00"),
)
NASTY_VALUES: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 7, 1.5, -0.0, 1e308, 5e-324, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 10**15),
    *(
        "",
        " ",
        "a",
        "id",
        "x ",
        "\x00",
        "\x7f",
        "é",
        "\U0001f600",
        "\u2028",
        "*",
        "/",
        "//",
        "/*",
        "/?",
        "/a/[]/?",
        LONG,
    ),
    *('/"a', '/"a"b', "/a/", "a/b", "a\\b", "a?b", "a#b", "\t", "\r\n", "[]", "{}", "null", "-1", "1e5", "AAAA", "="),
    *([], {}, [[]], [{}], [None], ["/a"], {"": ""}, {"a": {"b": []}}, [1, "a", None, {}], {"path": "/a"}, [[["/x"]]]),
)
PIECES: Sequence[bytes] = (
    *(
        b"\x00",
        b"\xff",
        b"%",
        b"%00",
        b"%2F",
        b"%",
        b"/",
        b"//",
        b"?",
        b"#",
        b"..",
        b"\\",
        b'"',
        b"'",
        b" ",
        b"+",
        b"=",
    ),
    *(
        b"null",
        b"-1",
        b"9" * 25,
        b"1e999",
        b"{}",
        b"[]",
        b"[[",
        b'{"a":',
        b",",
        b":",
        b"true",
        b"\xc3\xa9",
        b"\xf0\x9f",
    ),
    *(b"dbs", b"colls", b"docs", b"a" * 300, b"%ff", b"%C3%A9", b"%u0041", b"\x80", b"\t", b";", b"&", b"*", b"~"),
)


def nasty_value(dice: random.Random) -> Any:
    return dice.choice(NASTY_VALUES)


def mutated_bytes(dice: random.Random, text: bytes) -> bytes:
    """A few places changed: bytes flipped, cut out, doubled, or replaced by something that means something."""
    wire = bytearray(text)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
        at = dice.randrange(len(wire) + 1)
        match dice.randrange(6):
            case 0 if wire:
                wire[at % len(wire)] = dice.randrange(256)
            case 1:
                del wire[at : at + dice.randrange(1, 12)]
            case 2:
                wire[at:at] = wire[dice.randrange(len(wire) + 1) :][: dice.randrange(40)]
            case 3:
                wire[at:at] = dice.choice(PIECES)
            case 4:
                wire[at : at + dice.randrange(6)] = dice.choice(PIECES)
            case _:
                wire[at:] = b"" if dice.random() < 0.2 else wire[at:]
    return bytes(wire)


def mutated_value(dice: random.Random, value: Any) -> Any:
    """The same with one thing wrong somewhere inside."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        name = dice.choice(list(value))
        match dice.randrange(8):
            case 0:
                return {each: inner for each, inner in value.items() if each != name}
            case 1:
                return {**value, dice.choice(("", "x", "_self", "id", name.upper(), LONG)): nasty_value(dice)}
            case 2:
                return {(name.swapcase() if each == name else each): inner for each, inner in value.items()}
            case _:
                return {**value, name: mutated_value(dice, value[name])}
    if isinstance(value, list) and value and dice.random() < 0.85:
        at = dice.randrange(len(value))
        match dice.randrange(6):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case 2 if len(value) < 100:
                return value * 40
            case _:
                return [*value[:at], mutated_value(dice, value[at]), *value[at + 1 :]]
    if isinstance(value, int) and not isinstance(value, bool) and dice.random() < 0.5:
        changed = value + dice.choice((-1, 1, 0.5, 2**40, -(2**40)))
        return changed if -(2**63) <= changed < 2**64 else float(changed)
    if isinstance(value, str) and dice.random() < 0.5:
        at = dice.randrange(len(value) + 1)
        return value[:at] + str(dice.choice(("", "/", '"', "\x00", "é", "*", "?", "[]", LONG))) + value[at:]
    return nasty_value(dice)


def mutated_json(dice: random.Random, value: Any) -> bytes:
    """A JSON text made from a valid document: changed as a value, as text, or replaced altogether."""
    chance = dice.random()
    if chance < 0.03:
        return dice.choice(NASTY_TEXTS)
    for _ in range(dice.choice((0, 1, 1, 1, 2, 4))):
        value = mutated_value(dice, value)
    text = orjson.dumps(value)[:BODY_BYTES_MAX]  # the network lets no more through
    if chance < 0.08:  # a nasty text where a value was
        name = dice.choice((b"null", b"true", b"1", b'"a"', b'"/a"', b"{}", b"[]"))
        return text.replace(name, dice.choice(NASTY_TEXTS), 1)
    return mutated_bytes(dice, text) if chance < 0.25 else text
