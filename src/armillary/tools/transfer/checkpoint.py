"""The progress of a run in a small file: the same command, started again, resumes from it. It is written when
everything before a place has been acknowledged, so a place that is remembered is never ahead of what was done.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

import orjson

from armillary.errors import bad_request
from armillary.storage.private import open_file
from armillary.tools.transfer.rows import Document, Position

_FORMAT: Final = 1
_SAVE_EVERY_S: Final = 1.0


class Checkpoint:
    def __init__(self, path: Path, identity: Document, *, is_restart: bool) -> None:
        """`identity`: of the run; a file of another run is refused rather than taken for this one's."""
        self._path = path
        self._identity = identity
        self._saved_s = time.monotonic()
        self.source: Position | None = None
        self.sink: Position | None = None
        self.rows = 0
        self.bad_rows = 0
        self.bad_bytes = 0  # of the file of bad rows
        self.charge_ru = 0.0
        self.refused = self.without_key = 0
        self.refused_ru = 0.0
        self.is_resumed = False
        self.is_kept = False  # whether a later run could take it up
        if path.exists() and not is_restart:
            self._load()

    def _load(self) -> None:
        try:
            content: dict[str, Any] = orjson.loads(self._path.read_bytes())
            if content["format"] != _FORMAT:
                raise ValueError(content["format"])
            identity = content["identity"]
            self.source, self.sink = content["source"], content["sink"]
            self.rows, self.bad_rows = content["rows"], content["badRows"]
            self.bad_bytes, self.charge_ru = content["badBytes"], content["chargeRu"]
            # Earlier builds did not count these.
            self.refused, self.refused_ru = content.get("refused", 0), content.get("refusedRu", 0.0)
            self.without_key = content.get("rowsWithoutKey", 0)
            counts = (self.rows, self.bad_rows, self.bad_bytes)
            if not all(type(count) is int and count >= 0 for count in counts) or not isinstance(identity, dict):
                raise ValueError(content)
            if not all(each is None or isinstance(each, dict) for each in (self.source, self.sink)):
                raise ValueError(content)
        except (OSError, ValueError, KeyError, TypeError):
            raise bad_request(
                f"{self._path} is no state of a run that could be resumed. Name another file with --state, or begin "
                "anew with --restart."
            ) from None
        if identity != self._identity:
            differing = next(name for name in self._identity if identity.get(name) != self._identity[name])
            raise bad_request(
                f"{self._path} is the state of another run: its {differing} differs. Name another file with --state, "
                "or begin anew with --restart."
            )
        self.is_resumed = self.is_kept = True

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._saved_s >= _SAVE_EVERY_S

    def save(self) -> None:
        self._saved_s = time.monotonic()
        content = {
            "format": _FORMAT,
            "identity": self._identity,
            "source": self.source,
            "sink": self.sink,
            "rows": self.rows,
            "badRows": self.bad_rows,
            "badBytes": self.bad_bytes,
            "chargeRu": self.charge_ru,
            "refused": self.refused,
            "refusedRu": self.refused_ru,
            "rowsWithoutKey": self.without_key,
        }
        beside = self._path.with_name(self._path.name + ".new")
        try:
            with open_file(beside, "wb") as file:
                file.write(orjson.dumps(content))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
            self.is_kept = True
        except OSError as error:
            raise bad_request(f"The state cannot be kept in {self._path}: {error.strerror}.") from None

    def forget(self) -> None:
        """The run is complete."""
        self._path.unlink(missing_ok=True)
