"""How the log is written to standard error: as lines of text or as JSON (`--log-format`), without secrets.

Messages are made so that they hold none; as a second line of defence, what looks like a signature, a token or a key is
taken out of every line, tracebacks included.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from armillary.tools.screen import json_line, one_line

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_FURTHER: Final = "\n    "  # before every line of a record but the first
_TAKEN_OUT: Final = "[redacted]"
# Signatures in addresses and headers, tokens of the control API, keys and passwords in connection strings.
_SECRET: Final = re.compile(
    r"((?:\bsig(?:nature)?(?:=|%3d)|\bbearer\s+|\bsharedkey(?:lite)?\s+[\w.-]+:|key=|password=)['\"]?)[^\s'\"&;,]+",
    re.IGNORECASE,
)

Secrets = Callable[[], Iterable[str | None]]  # the keys that are in force


def set_up(level: str, log_format: str, secrets: Secrets) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(secrets) if log_format == "json" else TextLines(secrets))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def redacted(text: str, secrets: Iterable[str | None]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, _TAKEN_OUT)
    return _SECRET.sub(rf"\1{_TAKEN_OUT}", text)


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
