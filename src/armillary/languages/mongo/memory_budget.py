"""The memory limit of aggregation stages: sorts, groups and growing arrays are counted against it. Stages do not spill
to disk, so larger ones are refused. Sizes are estimates, accurate to a factor of two.
"""

from __future__ import annotations

from typing import Any, Final

from armillary import limits
from armillary.languages.mongo.errors import refusal
from armillary.model.bson.bson_values import Document, encode
from armillary.work import made, portions, release, spend

EXCEEDED, TOO_LARGE = 292, 10334
_PLACE_BYTES: Final = 64  # of a slot in a list or a dictionary
LIST_BYTES, DOCUMENT_BYTES, MEMBER_BYTES = 56, 160, 24  # of Python's objects
_WORTH_MEASURING_BYTES: Final = 64 * limits.KB
_SIZED: Final = frozenset([dict, list, str])


class Budget:
    """The memory of one stage in one run."""

    __slots__ = ("_left_bytes", "_stage")

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._left_bytes = limits.MONGO_STAGE_BYTES_MAX

    def take(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise refusal(
                EXCEEDED,
                f"Exceeded memory limit for {self._stage}: it holds more than {limits.MONGO_STAGE_BYTES_MAX} bytes, "
                "and there is no external sort. Filter or project before it.",
            )

    def take_value(self, value: Any) -> None:
        self.take(value_bytes(value))

    def take_document(self, document: Document) -> None:
        self.take(len(encode(document)) + _PLACE_BYTES)


def check_growth(value: Any) -> Any:
    """The value, refused if it is much larger than a document may be. Parts of it may be the same object many times, so
    that it takes little memory until it is encoded.
    """
    left_bytes = limits.MONGO_VALUE_BYTES_MAX
    pending = [value]
    while pending:
        holder = pending.pop()
        _texts, characters = _look_into(holder, pending)
        left_bytes -= _PLACE_BYTES + 16 * len(holder) + characters
        if left_bytes < 0:
            raise refusal(TOO_LARGE, f"An expression makes a value of more than {limits.MONGO_VALUE_BYTES_MAX} bytes")
    return value


def settle(before_bytes: int, value: Any) -> None:
    """Counts only this value of the memory used since `work.made` returned `before_bytes`."""
    kind = type(value)
    if kind is str:
        release(before_bytes + LIST_BYTES + len(value))
    elif kind is not list and kind is not dict and not isinstance(value, bytes):
        release(before_bytes)
    elif made() - before_bytes > _WORTH_MEASURING_BYTES:
        release(min(made(), before_bytes + _measured(value)))


def _measured(value: Any) -> int:
    """The approximate memory of a value; objects that it holds several times are counted each time."""
    size_bytes = 0
    pending = [value]
    while pending:
        holder = pending.pop()
        if type(holder) is dict:
            size_bytes += DOCUMENT_BYTES + MEMBER_BYTES * len(holder)
        else:
            size_bytes += LIST_BYTES + 8 * len(holder)
        texts, characters = _look_into(holder, pending)
        size_bytes += LIST_BYTES * texts + characters
        if size_bytes > limits.WORK_BYTES_MAX:
            break
    return size_bytes


def _look_into(holder: Document | list[Any], pending: list[Any]) -> tuple[int, int]:
    """Adds the documents and arrays in a document or an array to `pending`. Returns how many texts there are, and how
    many characters they have."""
    spend(2)
    texts = characters = 0
    for portion in portions(list(holder.values()) if isinstance(holder, dict) else holder, 1):
        if _SIZED.isdisjoint(map(type, portion)):
            continue  # most arrays are of numbers
        for each in portion:
            kind = type(each)
            if kind is dict or kind is list:
                pending.append(each)
            elif kind is str:
                texts += 1
                characters += len(each)
    return texts, characters


def value_bytes(value: Any) -> int:
    kind = type(value)
    if kind is str or isinstance(value, bytes):
        return _PLACE_BYTES + len(value)
    if kind is dict or kind is list:
        return len(encode({"": value})) + _PLACE_BYTES
    return _PLACE_BYTES
