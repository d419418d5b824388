"""Escaping of text for terminals and logs: names and values from requests may contain control characters, which a
terminal would obey, and line ends, which would forge log lines."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_END: Final = re.compile("\n+")


def printable(text: str) -> str:
    """Escape control characters, except tabs and line ends."""
    return _CONTROL.sub(_escaped, text)


def one_line(text: str, continued: str = "\\n") -> str:
    """Escape control characters and line ends."""
    return _LINE_END.sub(lambda found: continued * len(found.group()), printable(text))


def json_line(text: str) -> str:
    """JSON that leaves other than ASCII characters as they are, in one line all the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
