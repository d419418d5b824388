"""Checks of decoded values against the annotations of the fields that they are for: bytes of another version, or
damaged ones, must not bring a text to where a number is expected. A check is an expression of Python, which is compiled
into the decoder of its class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from armillary.errors import Failure

_LISTS = {list: "list", set: "set", frozenset: "frozenset", Sequence: "(list, tuple)"}


class TypeChecks:
    """`names`: what the expressions name; classes are added to it."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._count = 0

    def check(self, kind: Any, value: str) -> str:
        """The expression that is true of values of a type. "": there is nothing to check. `value`: the expression of
        the value, a name. Raises TypeError for what cannot be sent."""
        origin, parts = get_origin(kind), get_args(kind)
        if kind is Any:
            return ""
        if kind is NoneType or kind is None:
            return f"{value} is None"
        if isinstance(kind, TypeVar):
            return self.check(kind.__bound__, value) if kind.__bound__ is not None else ""
        if origin in (Union, UnionType):
            checks = [self.check(each, value) for each in sorted(parts, key=lambda each: each is not NoneType)]
            return f"({' or '.join(checks)})" if all(checks) else ""
        if origin is Literal:
            return f"{value} in {self._named(parts)}"
        if origin is tuple and (len(parts) != 2 or parts[1] is not Ellipsis):
            return self._fixed_tuple(parts, value)
        if origin is tuple or origin in _LISTS:
            inner = self._inner()
            of_each = self.check(parts[0], inner)
            check = f"isinstance({value}, {_LISTS.get(origin, 'tuple')})"
            return f"({check} and all([{of_each} for {inner} in {value}]))" if of_each else check
        if origin in (dict, Mapping):
            return self._mapping(parts, value)
        if kind is float:
            return f"isinstance({value}, (float, int))"
        if kind is int:
            return f"isinstance({value}, int)"
        return self._of_class(origin or kind, value)

    def _of_class(self, kind: Any, value: str) -> str:
        if kind in (str, bytes, bool, dict, list, tuple):
            return f"isinstance({value}, {kind.__name__})"
        if not isinstance(kind, type):
            raise TypeError(f"{kind} cannot be sent")
        is_message = is_dataclass(kind) or hasattr(kind, "_fields") or issubclass(kind, (Enum, Failure))
        if not is_message and kind.__module__.split(".")[0] not in ("bson", "armillary"):
            if getattr(kind, "_is_protocol", False):
                return ""
            raise TypeError(f"{kind} cannot be sent")
        if getattr(kind, "_is_protocol", False):
            return ""
        return f"isinstance({value}, {self._named(kind)})"

    def _mapping(self, parts: tuple[Any, ...], value: str) -> str:
        key, inner = self._inner(), self._inner()
        checks = [each for each in (self.check(parts[0], key), self.check(parts[1], inner)) if each]
        check = f"isinstance({value}, dict)"
        if checks:
            check = f"({check} and all([{' and '.join(checks)} for {key}, {inner} in {value}.items()]))"
        return check

    def _fixed_tuple(self, parts: tuple[Any, ...], value: str) -> str:
        inner = [self._inner() for _ in parts]
        checks = [each for each in map(self.check, parts, inner) if each]
        check = f"isinstance({value}, tuple) and len({value}) == {len(parts)}"
        if checks:
            check += f" and all([{' and '.join(checks)} for {', '.join([*inner, ''])} in [{value}]])"
        return f"({check})"

    def _inner(self) -> str:
        self._count += 1
        return f"inner_{self._count}"

    def _named(self, thing: Any) -> str:
        self._count += 1
        name = f"known_{self._count}"
        self._names[name] = thing
        return name
