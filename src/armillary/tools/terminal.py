"""Text for terminals and logs that may hold names and values of others: without the characters that a terminal obeys,
or that would make one line look like two."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_LINE_END: Final = re.compile("\n+")


def printable(text: str) -> str:
    """Tabs and line ends stay."""
    return _CONTROL.sub(_escaped, text)


def one_line(text: str, continued: str = "\\n") -> str:
    """The same in one line."""
    return _LINE_END.sub(lambda found: continued * len(found.group()), printable(text))


def json_line(text: str) -> str:
    """JSON that leaves other than ASCII characters as they are, in one line all the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
