"""What the shell offers when Tab is pressed: commands, containers, keywords and functions of SQL, and the properties
that a sample of the items has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from armillary.languages.sql.compiling.function_table import FUNCTIONS
from armillary.languages.sql.syntax.lexer import KEYWORDS
from armillary.tools.querying.arguments import OUTPUTS
from armillary.tools.shell.session import COMMANDS, Session
from armillary.tools.shell.statements import COMMAND

_WORD: Final = re.compile(r"[\w.]*$")
_ALIAS: Final = re.compile(r"\bFROM\s+(\w+)(?:\s+(?:AS\s+)?(\w+))?", re.IGNORECASE)
_COMMAND: Final = re.compile(r"\\(\w*)(\s+)?(.*)", re.DOTALL)
_FUNCTIONS: Final = sorted(name for name in FUNCTIONS if not name.startswith("_"))


class ShellCompleter(Completer):
    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        command = _COMMAND.match(before.lstrip())
        if command is None:
            yield from self._of_sql(before, document.text)
        elif command.group(2) is None:
            names = [COMMAND + name for name in COMMANDS]
            yield from _offered(names, COMMAND + command.group(1))
        else:
            kind = COMMANDS.get(command.group(1), (None, ""))[1]
            rest = command.group(3)
            if kind == "sql":
                yield from self._of_sql(rest, rest)
            elif kind == "containers":
                yield from _offered(self._session.container_names(), rest)
            elif kind == "outputs":
                yield from _offered(OUTPUTS, rest)

    def _of_sql(self, before: str, text: str) -> Iterator[Completion]:
        word = found.group() if (found := _WORD.search(before)) else ""
        alias, dot, _ = word.partition(".")
        if dot:
            # Any name before a dot: FROM, which declares it, stands behind SELECT.
            yield from _offered([f"{alias}.{path}" for path in self._session.property_paths()], word)
            return
        declared = [name for each in _ALIAS.findall(text) for name in each if name and name.upper() not in KEYWORDS]
        if word:
            keywords = sorted(KEYWORDS)
            # In the case that the word was begun in; functions are written in upper case.
            yield from _offered([each.lower() for each in keywords] if word.islower() else keywords, word)
            yield from _offered([f"{name}(" for name in _FUNCTIONS], word.upper(), len(word))
        yield from _offered(dict.fromkeys(declared), word)


def _offered(words: Iterable[str], begun: str, length: int | None = None) -> Iterator[Completion]:
    """Those that begin as the word does. `length`: of the text that is replaced."""
    back = len(begun) if length is None else length
    return (Completion(word, start_position=-back) for word in words if word.startswith(begun))
