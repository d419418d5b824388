"""Which paths every item of a partition has, found out when someone asks and kept up by the log of changes.

ORDER BY over a path gives items that lack it too, and those have no term in the index. Knowing that there are none
saves looking at all items. The first question about a path walks its terms once; later ones look at what was written
since. Nothing of it is stored: after a restart it is found out again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import orjson

from armillary import limits
from armillary.model import layout
from armillary.model.encoding import payload_of
from armillary.model.index_paths import text_steps
from armillary.partition import log
from armillary.storage.engine import View

_CHECK_TIME_EVERY = 256
_CHUNK_BITS = 1 << 16


class Presence:
    def __init__(self) -> None:
        self._known: OrderedDict[str, _Path] = OrderedDict()

    def is_everywhere(self, view: View, head: log.Head, path: str, is_due: Callable[[], bool]) -> bool | None:
        """Whether every item has a path; None: time is up, ask again. A wrong "no" is possible and harmless."""
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = _Path(path, head.lsn)
            if len(self._known) > limits.PRESENCE_PATHS_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(path)
        if known.is_everywhere is False and head.lsn - known.lsn > 1000 + head.item_count // 4:
            known = self._known[path] = _Path(path, head.lsn)  # much has changed: look again
        if known.is_everywhere is None and not known.count(view, is_due):
            return None
        if known.is_everywhere is not False and not known.catch_up(view, head, is_due):
            return None
        return known.is_everywhere


class _Path:
    def __init__(self, path: str, lsn: int) -> None:
        self.lsn = lsn  # changes up to here are taken into account
        self.is_everywhere: bool | None = None  # None: not found out yet
        self._path = path
        self._steps = text_steps(path)
        self._after = b""  # terms up to this key were counted
        self._is_counted = False
        self._having: dict[int, bytearray] | None = {}  # a bit for each item that has the path, by rid

    def count(self, view: View, is_due: Callable[[], bool]) -> bool:
        """Note which items have a term; whether that is done."""
        if self._is_counted:
            return True
        number = view.get(layout.path_key(self._path))
        if number is not None:
            prefix = layout.term_prefix(int.from_bytes(number, "big"))
            low = self._after + b"\x00" if self._after else prefix
            for seen, (key, _) in enumerate(view.scan(low, layout.prefix_end(prefix)), 1):
                self._note(int.from_bytes(key[-layout.RID_BYTES :], "big"), True)
                if seen % _CHECK_TIME_EVERY == 0 and is_due():
                    self._after = key
                    return False
        self._is_counted = True
        return True

    def catch_up(self, view: View, head: log.Head, is_due: Callable[[], bool]) -> bool:
        """Look at what was written since; whether that is done."""
        changes = view.scan(layout.change_key(self.lsn + 1), layout.space_end(layout.CHANGES))
        for seen, (key, value) in enumerate(changes, 1):
            change = log.unpack_change(key, value)
            has_path = False
            if change.kind == log.ITEM_WRITTEN:
                stored = view.get(layout.item_key(change.number))
                has_path = stored is not None and self._has_path(orjson.loads(payload_of(stored)))
                if not has_path and self._having is None:
                    self.is_everywhere = False
                    self.lsn = head.lsn
                    return True
            self._note(change.number, has_path)
            if seen % _CHECK_TIME_EVERY == 0 and is_due():
                # The changes of this lsn may not all be seen; looking at some again does no harm.
                self.lsn = log.change_lsn(key) - 1
                return False
        self.lsn = head.lsn
        if self._having is not None:
            count = sum(int.from_bytes(bits, "big").bit_count() for bits in self._having.values())
            self.is_everywhere = count == head.item_count
            self._having = None
        return True

    def _note(self, rid: int, has_path: bool) -> None:
        if self._having is None:
            return
        chunk, bit = divmod(rid, _CHUNK_BITS)
        bits = self._having.setdefault(chunk, bytearray(_CHUNK_BITS // 8))
        if has_path:
            bits[bit >> 3] |= 1 << (bit & 7)
        else:
            bits[bit >> 3] &= ~(1 << (bit & 7))

    def _has_path(self, node: Any) -> bool:
        for step in self._steps:
            if type(node) is not dict or step not in node:
                return False
            node = node[step]
        return True
