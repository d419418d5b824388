"""Messages between processes: values arrive exactly as they were sent, versions understand each other as far as they
can, and no bytes raise anything but a Failure."""

from __future__ import annotations

import datetime
import math
import random
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Literal, NamedTuple

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from support.limits import WithLimits
from support.portions import Amount

from armillary.errors import Failure, Kind, Reason
from armillary.model.key_values import Key
from armillary.model.messages.codec import Codec
from armillary.model.sendable import LOCAL, OPTIONAL, Sendable, sent_fields
from armillary.model.values import UNDEFINED

HERE = __name__


class Colour(Enum):
    RED = auto()
    BLUE = auto()


class Pair(NamedTuple):
    first: int
    second: str | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    number: float = 0.0


@dataclass(slots=True)
class Note(Sendable):
    text: str
    data: bytes = b""
    count: int = 3
    is_on: bool = False
    pairs: Sequence[Pair] = ()
    by_name: Mapping[str, Fixed] | None = None
    key: Key | None = None
    value: Any = None
    colour: Colour = Colour.RED
    places: list[int] = field(default_factory=list)
    choice: Literal["a", "b"] = "a"
    exact: tuple[int, str] = (1, "x")
    made: object = field(default=None, compare=False, metadata=LOCAL)


class Refused(Exception):
    SENT: ClassVar = {"index": int, "failure": Failure}

    def __init__(self, index: int, failure: Failure) -> None:
        super().__init__(str(failure))
        self.index, self.failure = index, failure


NAMES = {
    "colour": f"{HERE}:Colour",
    "pair": f"{HERE}:Pair",
    "fixed": f"{HERE}:Fixed",
    "note": f"{HERE}:Note",
    "refused": f"{HERE}:Refused",
    "failure": "armillary.errors:Failure",
    "kind": "armillary.errors:Kind",
    "reason": "armillary.errors:Reason",
}
CODEC = Codec(NAMES)


def same(first: Any, second: Any) -> bool:
    """Equality that tells apart what == does not."""
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return struct.pack(">d", first) == struct.pack(">d", second)
    if isinstance(first, Binary):
        return bytes(first) == bytes(second) and first.subtype == second.subtype
    if isinstance(first, Failure):
        names = ("kind", "message", "args", "retry_after_ms", "charge_ru", "details", "is_metered")
        return all(same(getattr(first, name), getattr(second, name)) for name in names)
    if is_dataclass(first):
        return all(same(getattr(first, each.name), getattr(second, each.name)) for each in sent_fields(first))
    if isinstance(first, dict):
        return list(first) == list(second) and all(
            same(*each) for each in zip(first.items(), second.items(), strict=True)
        )
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(same(*each) for each in zip(first, second, strict=True))
    return bool(first == second)


def sent(value: Any) -> Any:
    return CODEC.decode(CODEC.encode(value))


VALUES: list[Any] = [
    *(None, True, False, 0, 1, 127, 128, 255, -1, -128, 2**31, -(2**63), 2**64, -(10**400), 10**400),
    *(0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324, 1.7976931348623157e308),
    *("", "a", "ä" * 300, "\0", "\ud800 alone", "😀", "x" * 70_000, b"", b"\0\xff" * 40_000),
    *(
        (),
        [],
        {},
        set(),
        frozenset(),
        (1, [2, (3,)]),
        {1: 2, "1": 3, None: (), (1, 2): []},
        {1, "a"},
        frozenset({b"x"}),
    ),
    *(UNDEFINED, Key(), Key(("a", 1, 1.0, True, None, UNDEFINED, -0.0)), Key((1,)), (1,)),
    *(Int64(5), Int64(-(2**63)), ObjectId(), Timestamp(2**32 - 1, 7), MinKey(), MaxKey(), Decimal128("1E-6176")),
    *(Binary(b"abc", 128), Binary(bytes(16), 4), Regex("^a", "ix"), Code("f()", {"a": Int64(1)}), Code("g()")),
    *(DatetimeMS(-(2**63)), DatetimeMS(2**63 - 1), DBRef("c", 1), DBRef("c", ObjectId(), "db", more=[1])),
    datetime.datetime(1, 1, 1),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))),
    *(Colour.BLUE, Kind.THROTTLED, Reason.WRITE_CONFLICT, Pair(1), Pair(2, "x"), Fixed("f"), Fixed("f", -0.0)),
    Note("t"),
    Note("t", b"x", 4, True, [Pair(1)], {"a": Fixed("b")}, Key(("k",)), {"deep": [1, (2,)]}, Colour.BLUE, [1]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_values_arrive_as_they_were(value: Any) -> None:
    assert same(sent(value), value)
    assert same(sent([value, {"a": (value,)}]), [value, {"a": (value,)}])


def test_what_is_not_a_number_arrives() -> None:
    assert math.isnan(sent(math.nan))


def test_failures_arrive_with_all_they_carry() -> None:
    failure = Failure(
        Kind.CONFLICT, "there is one", retry_after_ms=7, charge_ru=1.25, details={"reason": Reason.WRITE_CONFLICT}
    )
    failure.is_metered = True
    arrived = sent(failure)
    assert same(arrived, failure)
    refused = sent(Refused(3, failure))
    assert (refused.index, type(refused), str(refused)) == (3, Refused, "there is one")
    assert same(refused.failure, failure)

    class Special(Failure):
        pass

    assert same(sent(Special(Kind.INTERNAL, "so")), Failure(Kind.INTERNAL, "so"))


def test_local_fields_do_not_travel() -> None:
    arrived = sent(Note("t", made=object()))
    assert arrived == Note("t")
    assert arrived.made is None


def test_what_has_no_name_cannot_be_sent() -> None:
    for value in (object(), VirtualError(), [lambda: None], type, 1j):
        with pytest.raises(TypeError, match="cannot be sent"):
            CODEC.encode(value)


class VirtualError(Exception):
    pass


# Versions.


def with_names(**names: str) -> Codec:
    return Codec({**NAMES, **names})


@dataclass(slots=True)
class Newer(Sendable):
    text: str
    more: int = 0
    hint: str = field(default="", metadata={OPTIONAL: True})


@dataclass(slots=True)
class Older(Sendable):
    text: str
    gone: str = "default"


NEWER = with_names(versioned=f"{HERE}:Newer")
OLDER = with_names(versioned=f"{HERE}:Older")


def test_a_field_that_is_unknown_is_refused_unless_it_may_be_left_out() -> None:
    assert OLDER.decode(NEWER.encode(Newer("a"))) == Older("a")
    assert OLDER.decode(NEWER.encode(Newer("a", hint="x"))) == Older("a")
    with pytest.raises(Failure, match="'versioned' has a field 'more', which is unknown"):
        OLDER.decode(NEWER.encode(Newer("a", 1)))


def test_a_field_that_is_missing_has_its_default() -> None:
    assert NEWER.decode(OLDER.encode(Older("a"))) == Newer("a")
    encoded = CODEC.encode(Note("text"))
    with pytest.raises(Failure, match="'note' has no field 'text'"):
        CODEC.decode(encoded.replace(b"note\0text", b"note\0data").replace(b"\0data\0text", b"\0data"))


def test_values_have_the_types_of_their_fields() -> None:
    wrong: list[dict[str, Any]] = [
        {"text": 1},
        {"text": "t", "data": "text"},
        {"text": "t", "count": "1"},
        {"text": "t", "is_on": None},
        {"text": "t", "pairs": {1: 2}},
        {"text": "t", "pairs": [(1, 2)]},
        {"text": "t", "by_name": {"a": Pair(1)}},
        {"text": "t", "by_name": {1: Fixed("a")}},
        {"text": "t", "key": ("k",)},
        {"text": "t", "colour": Kind.CONFLICT},
        {"text": "t", "places": [1, None]},
        {"text": "t", "choice": "c"},
        {"text": "t", "exact": (1, 2)},
        {"text": "t", "exact": (1, "x", 2)},
    ]
    for given in wrong:
        with pytest.raises(Failure, match="has a wrong type"):
            sent(Note(**given))
    with pytest.raises(Failure, match="has a wrong type"):
        sent(Pair("1"))  # type: ignore[arg-type]


# Limits, and bytes that are no message.


def test_limits(with_limits: WithLimits) -> None:
    deep: Any = None
    for _ in range(250):
        deep = [deep]
    assert sent(deep) == deep
    with pytest.raises(Failure, match="nested too deeply"):
        sent([deep])
    for _ in range(2_000):
        deep = [deep]
    with pytest.raises(Failure, match="nested too deeply"):
        CODEC.encode(deep)
    with_limits(MESSAGE_BYTES_MAX=100, MESSAGE_VALUES_MAX=10)
    assert sent(b"x" * 97) == b"x" * 97
    with pytest.raises(Failure, match="101 bytes") as refusal:
        CODEC.encode(b"x" * 98)
    assert refusal.value.kind is Kind.TOO_LARGE
    assert sent([1] * 10) == [1] * 10
    encoded = CODEC.encode([1] * 11)
    with pytest.raises(Failure, match="too long"):
        CODEC.decode(encoded)
    with pytest.raises(Failure, match="too large"):
        CODEC.decode(b"x" * 101)


def test_bytes_that_are_no_message_are_refused() -> None:
    good = CODEC.encode(Note("t"))
    bad = [
        b"",
        b"\x01",
        b"\x02" + good[1:],
        good + b"x",
        good[:-1],
        b"\x01\x00",
        b"\x01\x40",
        b"\x01\x0a\xff\xff\xff\xff\xff",
    ]
    bad.append(b"\x01\x20\x04note")
    bad.append(b"\x01\x20\x07builtin")
    bad.append(b"\x01\x21\x0bcolour\0NONE")
    bad.append(b"\x01\x21\x09note\0text")
    bad.append(b"\x01\x20\x06colour")
    for each in bad:
        with pytest.raises(Failure, match="cannot be read") as refusal:
            CODEC.decode(each)
        assert refusal.value.kind is Kind.INTERNAL


def random_value(dice: random.Random, depth: int = 0) -> Any:
    if depth > 3 or dice.random() < 0.5:
        value = dice.choice(VALUES)
        return value if not isinstance(value, str | bytes) or len(value) < 1_000 else dice.choice((1, "x", None))
    size = dice.randrange(5)
    match dice.randrange(6):
        case 0:
            return [random_value(dice, depth + 1) for _ in range(size)]
        case 1:
            return tuple([random_value(dice, depth + 1) for _ in range(size)])
        case 2:
            return {str(dice.random()): random_value(dice, depth + 1) for _ in range(size)}
        case 3:
            return Note(str(size), dice.randbytes(size), dice.randrange(-500, 500), value=random_value(dice, depth + 1))
        case 4:
            return Failure(Kind.NOT_FOUND, "x", charge_ru=dice.random(), details={"a": random_value(dice, depth + 1)})
        case _:
            return dice.randrange(-(2**70), 2**70)


def test_random_values_arrive(seed: int, amount: Amount) -> None:
    dice = random.Random(seed)
    for _ in range(amount(10_000)):
        value = random_value(dice)
        assert same(sent(value), value)


def test_damaged_messages_are_refused_or_read(seed: int, amount: Amount) -> None:
    """Nothing else is raised, and what is read can be sent."""
    dice = random.Random(seed)
    read = 0
    count = amount(100_000)
    for _ in range(count):
        message = bytearray(CODEC.encode(random_value(dice)))
        for _ in range(dice.choice((1, 1, 2, 5))):
            place = dice.randrange(len(message))
            match dice.randrange(4):
                case 0:
                    message[place] = dice.randrange(256)
                case 1:
                    del message[place : place + dice.randrange(1, 9)]
                case 2:
                    message[place:place] = dice.randbytes(dice.randrange(1, 9))
                case _:
                    other = CODEC.encode(random_value(dice))
                    message[place:place] = other[1 : dice.randrange(1, len(other) + 1)]
            if not message:
                break
        with suppress(Failure):
            CODEC.encode(CODEC.decode(bytes(message)))
            read += 1
    assert 0 < read < count
