"""How much a stage may hold: what sorts, groups and arrays that grow are counted against. There is no disk to go to
beyond it, so more is refused. Sizes are estimates, good to a factor of two.
"""

from __future__ import annotations

from typing import Any, Final

from armillary import limits
from armillary.languages.mongo.errors import refusal
from armillary.model.bson_values import Document, encode

EXCEEDED: Final = 292
_PLACE_BYTES: Final = 64  # of a value in a list or a dictionary


class Budget:
    """What one stage of one run holds."""

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


def value_bytes(value: Any) -> int:
    kind = type(value)
    if kind is str or isinstance(value, bytes):
        return _PLACE_BYTES + len(value)
    if kind is dict or kind is list:
        return len(encode({"": value})) + _PLACE_BYTES
    return _PLACE_BYTES
