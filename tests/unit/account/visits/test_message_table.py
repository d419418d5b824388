"""What messages consist of is listed: each class that a field of a listed class names, and what answers return."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from inspect import isfunction
from typing import Any, TypeVar, get_args, get_type_hints

from armillary.account.visits.elsewhere.message_table import CLASSES
from armillary.errors import Failure, Kind
from armillary.model.sendable import sent_fields

KNOWN: frozenset[Any] = frozenset((Kind, Failure))  # to the codec itself
ANSWERS = ("answer", "run")  # methods of questions and visits whose answers are sent


def class_at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def named(kind: Any) -> Iterator[Any]:
    """The classes of this project in a type."""
    for each in get_args(kind):
        yield from named(each)
    if isinstance(kind, TypeVar):
        yield from named(kind.__bound__)
    if isinstance(kind, type) and kind.__module__.startswith(("armillary.", __name__)) and is_message(kind):
        yield kind


def is_message(kind: type[Any]) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields") or issubclass(kind, Enum)


def unlisted(kind: Any, listed: frozenset[Any]) -> list[str]:
    found: list[tuple[str, Any]] = []
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        hints: Mapping[str, Any] = get_type_hints(kind)
        names = [each.name for each in sent_fields(kind)] if is_dataclass(kind) else list(hints)
        found += [(name, each) for name in names for each in named(hints[name])]
        for name in ANSWERS:
            method = getattr(kind, name, None)
            hint = get_type_hints(method).get("return") if isfunction(method) else None
            found += [(f"{name}()", each) for each in named(hint)]
    return [f"{kind.__name__}.{name}: {each.__name__}" for name, each in found if each not in listed | KNOWN]


def test_all_classes_that_messages_consist_of_are_listed() -> None:
    listed = frozenset(class_at(place) for place in CLASSES.values())
    assert sorted(found for each in listed for found in unlisted(each, listed)) == []


@dataclass
class Inner:
    number: int


@dataclass
class Outer:
    several: list[tuple[Inner, int]] | None

    async def answer(self) -> dict[int, Inner]:
        return {}


def test_a_class_that_is_not_listed_is_noticed() -> None:
    assert unlisted(Outer, frozenset()) == ["Outer.several: Inner", "Outer.answer(): Inner"]
    assert unlisted(Outer, frozenset((Inner,))) == []
