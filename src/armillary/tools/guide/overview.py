"""`armillary` without a command, `armillary help` and `armillary --help`: the commands by purpose, with examples to
begin with; and `armillary help COMMAND`, the arguments of one command.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any, Final

from armillary import __version__
from armillary.errors import bad_request
from armillary.tools.guide.command_parser import commands_of, meanings_of, suggestion

_GROUPS: Final = (
    ("Begin", ("demo", "serve", "emulator", "trust", "connection-strings", "portal")),
    ("Query and look", ("query", "shell", "partitions", "keys", "top", "report", "feed")),
    ("Databases and containers", ("databases", "containers", "scale", "split", "merge", "migrate", "script")),
    ("Items in and out", ("import", "export", "snapshot", "restore", "backup", "check", "upgrade")),
    ("Choose a partition key and a throughput", ("advise", "estimate", "simulate", "scale-model", "capture")),
    ("Test applications", ("faults", "clock", "mode")),
    ("Operate", ("health", "runtime", "config", "account-keys", "cluster")),
    ("This program", ("help", "completion", "version")),
)
_OTHERS: Final = "More"
_WIDTH: Final = 80
_NAME_CHARACTERS: Final = 20
_EXAMPLES: Final = (
    ("armillary demo", "a guided tour with a hot key"),
    ("armillary serve --memory", "a server, until Ctrl-C"),
    ('armillary query shop/orders "SELECT * FROM c"', "rows, and their charge"),
)


def overview(parser: argparse.ArgumentParser) -> str:
    """The page that bare `armillary` prints. A command that no group names is among the last ones."""
    meanings = meanings_of(parser)
    lines = [*wrap(f"armillary {__version__}: {parser.description}", _WIDTH), "", "To begin with:"]
    width = max(len(command) for command, _ in _EXAMPLES)
    lines += [f"  {command:<{width}}  {meaning}" for command, meaning in _EXAMPLES]
    for title, names in _grouped(list(meanings)):
        lines += ["", f"{title}:"]
        for name in names:
            beginning = f"  {name:<{_NAME_CHARACTERS}}"
            lines += wrap(meanings[name], _WIDTH, initial_indent=beginning, subsequent_indent=" " * len(beginning))
    lines += ["", "`armillary help COMMAND` shows the arguments of a command.", ""]
    return "\n".join(lines)


def _grouped(commands: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    left = list(commands)
    for title, names in _GROUPS:
        found = [name for name in names if name in left]
        left = [name for name in left if name not in found]
        if found:
            yield title, found
    if left:
        yield _OTHERS, left


def add_parsers(commands: Any, add_command: Any) -> None:
    help_ = add_command(commands, "help", "show the commands, or the arguments of one")
    help_.add_argument("words", metavar="COMMAND", nargs="*", help="such as containers create")
    completion = add_command(commands, "completion", "print a script that completes commands and options in a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), metavar="bash|zsh|fish")


def help_text(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Of the command that the words name."""
    found = parser
    for number, word in enumerate(words):
        known = commands_of(found)
        if word not in known:
            said = " ".join(("armillary", *words[: number + 1]))
            raise bad_request(f"There is no command {said!r}.{suggestion(word, known)} `armillary help` lists them.")
        found = known[word]
    return found.format_help()
