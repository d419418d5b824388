"""The lines that the process of an advice reads: first, if there is a capture, its file in base64, each line with a
mark before it that no JSON begins with; then rows, one a line.
"""

from __future__ import annotations

import io
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

import orjson

_CAPTURE_LINE: Final = b"="


def capture_line(part: bytes) -> bytes:
    """A line of the process's input for a part of the capture's file."""
    return _CAPTURE_LINE + b64encode(part)


class TaskLines:
    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._next: bytes | None = None  # the first row, which ended the capture

    def capture(self) -> io.BufferedReader:
        """The file of the capture, to be read to its end before the rows."""
        return io.BufferedReader(_CaptureFile(self))

    def capture_part(self) -> bytes:
        """The next part of the capture; empty at its end."""
        if self._next is not None:
            return b""
        line = next(self._lines, b"")
        if line.startswith(_CAPTURE_LINE):
            return b64decode(line[len(_CAPTURE_LINE) :])
        self._next = line
        return b""

    def rows(self) -> Iterator[tuple[bytes, dict[str, Any] | str]]:
        """Each row as it came, with its content, or with the reason why it has none."""
        lines = chain([self._next] if self._next else [], self._lines)
        for number, line in enumerate(lines, 1):
            try:
                content = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield line, f"row {number}: it is not JSON: {error.msg}"
                continue
            yield line, content if isinstance(content, dict) else f"row {number}: it is no JSON object"


class _CaptureFile(io.RawIOBase):
    def __init__(self, lines: TaskLines) -> None:
        super().__init__()
        self._task_lines = lines
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._left:
            self._left = self._task_lines.capture_part()
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
