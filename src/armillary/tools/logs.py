"""How the log is written to standard error: as lines of text or as JSON (`--log-format`), without secrets.

Messages are made so that they hold none; as a second line of defence, what looks like a signature, a token or a key is
taken out of every line, tracebacks included. Writing never blocks the event loop: a full pipe whose reader has stopped
reading would else stop all requests, and the handling of SIGTERM.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from armillary.tools.screen import json_line, one_line

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FURTHER: Final = "\n    "  # before every line of a record but the first
_TAKEN_OUT: Final = "[redacted]"
# Signatures in addresses and headers, tokens of the control API, keys and passwords in connection strings.
_SECRET: Final = re.compile(
    r"((?:\bsig(?:nature)?(?:=|%3d)|\bbearer\s+|\bsharedkey(?:lite)?\s+[\w.-]+:|key=|password=)['\"]?)[^\s'\"&;,]+",
    re.IGNORECASE,
)

_FULL_PIPE_MS: Final = 100

Secrets = Callable[[], Iterable[str | None]]  # the keys that are in force


def set_up(level: str, log_format: str, secrets: Secrets) -> None:
    handler = StandardError(sys.stderr)
    handler.setFormatter(JsonLines(secrets) if log_format == "json" else TextLines(secrets))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def redacted(text: str, secrets: Iterable[str | None]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, _TAKEN_OUT)
    return _SECRET.sub(rf"\1{_TAKEN_OUT}", text)


class StandardError(logging.Handler):
    """Writes lines to a stream, and drops them while its reader does not read."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._dropped = 0
        self._poll: select.poll | None = None
        try:
            self._descriptor = stream.fileno()
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLOUT)
        except (OSError, ValueError):  # a stream of a test's
            pass

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record) + "\n"
            if self._poll is None:
                self._stream.write(text)
                self._stream.flush()
                return
            if self._dropped and self._write(f"{self._dropped} lines of the log were dropped: it was not read\n"):
                self._dropped = 0
            if self._dropped or not self._write(text):
                self._dropped += 1
        except Exception:
            self._dropped += 1  # the log is the only place to report it

    def _write(self, text: str) -> bool:
        """Write in portions that a pipe which is ready takes without blocking (PIPE_BUF). The reader of a pipe that is
        full is waited for once; lines are dropped until it reads on."""
        assert self._poll is not None
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            if not self._poll.poll(0 if self._dropped else _FULL_PIPE_MS):
                return False
            left = left[os.write(self._descriptor, left[: select.PIPE_BUF]) :]
        return True


class TextLines(logging.Formatter):
    def __init__(self, secrets: Secrets) -> None:
        super().__init__(_TEXT)
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (its name in the standard library)
        # Names that clients chose stand in messages. Whatever is in them, a message is one line.
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        # A traceback has further lines: they are indented, so none of them looks like another record.
        return redacted(one_line(super().format(record), _FURTHER), self._secrets())


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message; of the security log also the event and its fields."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        secrets = list(self._secrets())
        shown = {name: redacted(value, secrets) if isinstance(value, str) else value for name, value in content.items()}
        return json_line(json.dumps(shown, ensure_ascii=False, default=str))
