"""`armillary runtime`: shows and changes what an operator sets while the server runs (read-only mode, the level of the
log, the logs of requests), by the names of the settings. The parser is built at every start of the program, so nothing
heavy is imported here.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from armillary.errors import Failure
from armillary.tools.commands.arguments import AddCommand, Commands, of_server
from armillary.tools.guide.command_parser import offer_words
from armillary.tools.settings import OPTIONS

if TYPE_CHECKING:
    from armillary.tools.remote import Server
    from armillary.tools.screen import Screen

NAME: Final = "runtime"
# The settings, with their names in the control API.
_FIELDS: Final = {
    "read-only": "readOnly",
    "log-level": "logLevel",
    "log-requests": "logRequests",
    "log-slow": "logSlowMs",
}


def add_parser(commands: Commands, add_command: AddCommand) -> None:
    meaning = "show or change settings of a running server: read-only mode, the logs of requests"
    runtime = of_server(add_command(commands, NAME, meaning))
    for name in _FIELDS:
        option = OPTIONS[name]
        text = option.meaning.replace("%", "%%")
        if option.is_flag:
            runtime.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=text)
        else:
            value = name.rpartition("-")[2].upper()
            offer_words(runtime.add_argument(f"--{name}", metavar=value, help=text), option.words)


def show_or_change(server: Server, screen: Screen, arguments: dict[str, Any]) -> None:
    given = {field: arguments[_attribute(name)] for name, field in _FIELDS.items() if _attribute(name) in arguments}
    try:
        content = server.put(NAME, body=given) if given else server.get(NAME)
    except Failure as failure:
        for name, field in _FIELDS.items():
            failure.message = failure.message.replace(f"'{field}'", f"--{name}")
        raise
    if screen.is_json:
        screen.content(content)
        return
    rows = [[name, str(content[field]).lower()] for name, field in _FIELDS.items()]
    screen.table(("setting", "in force"), rows)
    if given:
        screen.say("It is so until the server restarts or reads its settings again (SIGHUP).")


def _attribute(name: str) -> str:
    return name.replace("-", "_")
