"""The history of load on disk: records of columns, of the divisions that they name, of splits and merges, and of the
times in which the server ran. Records are appended; a column of ten minutes replaces the minutes in it, and columns of
the same time add up, so a record that a crash has cut off costs only itself. The file is written anew when most of it
is out of date.

Kept beside the storage engine, not in it: on a node of a cluster the engine holds what all nodes share, and the history
is what this node has metered. Snapshots and backups leave it out.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from armillary import limits
from armillary.account.load_history.columns import Layout, PackedColumn
from armillary.account.load_history.layers import ContainerHistory, Reshaped
from armillary.storage.record_file import RecordFile

log = logging.getLogger(__name__)

_COLUMN, _JSON = b"C", b"J"
_COLUMN_HEAD = struct.Struct(">BQIH")  # bytes of the rid, start, seconds, number of layouts
_REWRITE_BYTES_MIN = 4 * limits.MB

Runs = list[list[float]]  # begin and end of each stretch of time in which load was counted


class StoredHistory:
    """Made by `open`. It knows which divisions are in the file already."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._written: set[tuple[bytes, int]] = set()  # layouts: rid and number
        self._fresh_bytes = max(file.size_bytes, _REWRITE_BYTES_MIN)  # when it was written anew last
        self._is_failing = False

    @classmethod
    async def open(cls, path: Path) -> tuple[StoredHistory, dict[bytes, ContainerHistory], Runs]:
        file, records = await asyncio.to_thread(RecordFile.open, path)
        found: dict[bytes, ContainerHistory] = {}
        runs: Runs = []
        for index, record in enumerate(records):
            try:
                _restore(record, found, runs)
            except (ValueError, KeyError, TypeError, struct.error, AssertionError) as error:
                log.warning("a record of the history of load is not readable and is left out: %r", error)
            if index % 256 == 255:
                await asyncio.sleep(0)
        stored = cls(file)
        stored._written = {(rid, number) for rid, history in found.items() for number in history.layouts}
        return stored, found, runs

    async def save(
        self,
        columns: Iterable[tuple[ContainerHistory, PackedColumn]],
        reshapes: Iterable[tuple[ContainerHistory, Reshaped]],
        run: Iterable[float],
    ) -> None:
        """Append what is new."""
        records: list[bytes] = []
        for history, column in columns:
            records += self._layouts(history, column.layouts)
            records.append(_column(history.rid, column))
        records += [_reshape(history.rid, each) for history, each in reshapes]
        records.append(_json({"kind": "run", "run": list(run)}))
        await self._write(lambda: self._file.append(records))

    @property
    def is_stale(self) -> bool:
        """Whether most of the file is out of date."""
        return self._file.size_bytes > min(2 * self._fresh_bytes, limits.HISTORY_DISK_BYTES_MAX)

    async def rewrite(self, histories: Iterable[ContainerHistory], runs: Runs) -> None:
        """Write what is known, and nothing else."""
        self._written.clear()
        records = [_json({"kind": "run", "run": run}) for run in runs]
        for history in histories:
            records += [_reshape(history.rid, each) for each in history.reshapes]
            for column in _saved_columns(history):
                records += self._layouts(history, column.layouts)
                records.append(_column(history.rid, column))
            await asyncio.sleep(0)
        await self._write(lambda: self._file.rewrite(records))
        self._fresh_bytes = max(self._file.size_bytes, _REWRITE_BYTES_MIN)

    def _layouts(self, history: ContainerHistory, numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            if (history.rid, number) not in self._written:
                self._written.add((history.rid, number))
                layout = history.layouts[number]
                yield _json(
                    {
                        "kind": "layout",
                        "rid": history.rid.hex(),
                        "number": number,
                        "version": layout.version,
                        "parts": layout.to_json(),
                    }
                )

    async def _write(self, write: Any) -> None:
        try:
            await asyncio.to_thread(write)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                log.warning("the history of load cannot be saved: %s", error.strerror or "unknown reason")
            self._is_failing = True


def _saved_columns(history: ContainerHistory) -> Iterator[PackedColumn]:
    """All columns of a minute and more, and the finest as minutes."""
    for layer in history.layers[1:]:
        yield from tuple(layer)
    for start_s in sorted({column.start_s // 60 * 60 for column in history.layers[0]}):
        minute = history.minute(start_s)
        if minute is not None:
            yield minute


# Records.


def _json(content: dict[str, Any]) -> bytes:
    return _JSON + orjson.dumps(content)


def _column(rid: bytes, column: PackedColumn) -> bytes:
    head = _COLUMN_HEAD.pack(len(rid), column.start_s, column.seconds, len(column.layouts))
    return b"".join((_COLUMN, head, rid, struct.pack(f">{len(column.layouts)}I", *column.layouts), column.packed))


def _reshape(rid: bytes, reshaped: Reshaped) -> bytes:
    return _json(
        {
            "kind": "reshape",
            "rid": rid.hex(),
            "time": reshaped.time_s,
            "parents": list(reshaped.parents),
            "children": list(reshaped.children),
            "boundary": reshaped.boundary.hex(),
            "reason": reshaped.reason,
        }
    )


def _restore(record: bytes, found: dict[bytes, ContainerHistory], runs: Runs) -> None:
    if record[:1] == _COLUMN:
        _restore_column(record, found)
        return
    content = orjson.loads(record[1:])
    if content["kind"] == "run":
        begin_s, end_s = content["run"]
        if runs and runs[-1][0] == begin_s:
            runs[-1][1] = end_s
        else:
            runs.append([begin_s, end_s])
        return
    rid = bytes.fromhex(content["rid"])
    history = found.setdefault(rid, ContainerHistory(rid))
    if content["kind"] == "layout":
        layout = Layout.parse(content["number"], content["parts"], content["version"])
        history.layouts[layout.number] = layout
        history.next_layout = max(history.next_layout, layout.number + 1)
    elif content["kind"] == "reshape":
        parents, children = tuple(content["parents"]), tuple(content["children"])
        boundary = bytes.fromhex(content["boundary"])
        history.reshapes.append(Reshaped(content["time"], parents, children, boundary, content["reason"]))


def _restore_column(record: bytes, found: dict[bytes, ContainerHistory]) -> None:
    length, start_s, seconds, layout_count = _COLUMN_HEAD.unpack_from(record, 1)
    at = 1 + _COLUMN_HEAD.size
    rid = record[at : at + length]
    at += length
    layouts = struct.unpack_from(f">{layout_count}I", record, at)
    column = PackedColumn(start_s, seconds, record[at + 4 * layout_count :], layouts)
    history = found.setdefault(rid, ContainerHistory(rid))
    if any(number not in history.layouts for number in layouts):
        raise KeyError("a division that no record before has")
    history.drop_within(column.start_s, column.end_s, finer_than_s=seconds)
    history.put(column)
