"""Entities that were shown a short while ago, as they were shown: pages and points are often asked for again, and
making JSON of an item takes longer than finding it. An item that is written again has another etag, and so is another
one here.
"""

from __future__ import annotations

from typing import Final

import orjson

from armillary import limits
from armillary.doors.table.entities.entities import Form, entity_json

_TAIL_BYTES: Final = 200  # of an item: its rid and its etag are in them, which no other version of any item shares
_ENTRY_BYTES: Final = 200  # what keeping one takes beside its texts


class Rendered:
    """Bounded by bytes; the oldest go first."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, bytes], bytes] = {}
        self._size_bytes = 0

    def text(self, payload: bytes, form: Form) -> bytes:
        """An item as the JSON of an entity; empty if it is none."""
        if form.level == "full" or form.wanted is not None:
            return _made(payload, form)
        key = (form.level, payload[-_TAIL_BYTES:])
        text = self._texts.get(key)
        if text is None:
            text = _made(payload, form)
            self._keep(key, text)
        return text

    def _keep(self, key: tuple[str, bytes], text: bytes) -> None:
        self._texts[key] = text
        self._size_bytes += len(text) + _TAIL_BYTES + _ENTRY_BYTES
        while self._size_bytes > limits.TABLE_RENDERED_BYTES_MAX:
            oldest = next(iter(self._texts))
            self._size_bytes -= len(self._texts.pop(oldest)) + _TAIL_BYTES + _ENTRY_BYTES


def _made(payload: bytes, form: Form) -> bytes:
    entity = entity_json(orjson.loads(payload), form)
    return orjson.dumps(entity) if entity is not None else b""
