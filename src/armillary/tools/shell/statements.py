"""Splits what is typed or piped into statements: a SQL statement ends with a semicolon outside of strings and
comments, a command that begins with a backslash ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

# A string in either kind of quotes, a comment up to the end of its line, or a semicolon. A string that is not closed
# reaches to the end, so a semicolon in it does not end the statement.
_TOKEN: Final = re.compile(r"'(?:[^'\\]|\\.)*(?:'|\\?$)|\"(?:[^\"\\]|\\.)*(?:\"|\\?$)|--[^\n]*|;", re.DOTALL)
COMMAND: Final = "\\"


def end_of_statement(text: str) -> int | None:
    """The place behind the first semicolon that ends a statement; None: there is none yet."""
    return next((found.end() for found in _TOKEN.finditer(text) if found.group() == ";"), None)


def is_complete(text: str) -> bool:
    """Whether Enter ends the input: it is empty, a command, or ends with a semicolon."""
    stripped = text.strip()
    if not stripped or stripped.startswith(COMMAND):
        return True
    end = end_of_statement(stripped)
    while end is not None and end < len(stripped):
        stripped = stripped[end:].strip()
        end = end_of_statement(stripped)
    return end is not None


def is_blank(text: str) -> bool:
    """Whether there is nothing but space and comments."""
    return not re.sub(r"--[^\n]*", "", text).strip()


def statements(lines: Iterable[str]) -> Iterator[str]:
    """The statements and commands of some lines, without their semicolons. What follows the last semicolon is one, too:
    a pipe need not end with one."""
    text = ""
    for line in lines:
        text += line
        while not is_blank(text):
            if text.lstrip().startswith(COMMAND):
                command, _, text = text.lstrip().partition("\n")
                yield command.rstrip().removesuffix(";").rstrip()
                continue
            end = end_of_statement(text)
            if end is None:
                break
            if not is_blank(text[: end - 1]):
                yield text[: end - 1].strip()
            text = text[end:]
        else:
            text = ""
    if not is_blank(text):
        yield text.strip()
