"""The arguments of `armillary query` and `armillary shell`, and the reading of parameters of a query. Built at every
start of the program, so this module imports nothing heavy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from armillary.errors import bad_request
from armillary.tools.commands.arguments import AddCommand, Commands, place_of_server

NAMES: Final = ("query", "shell")
OUTPUTS: Final = ("table", "json", "csv")


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    query = add_command(commands, "query", "run a SQL query and show its rows, charge, partitions and index advice")
    query.add_argument("container", metavar="DATABASE/CONTAINER")
    query.add_argument(
        "sql", metavar="SQL", help='such as "SELECT * FROM c WHERE c.total > 100"; - reads standard input'
    )
    _output(query)
    query.add_argument(
        "--parameter",
        metavar="NAME=VALUE",
        action="append",
        help="value of @NAME in the query, as JSON or text; give it once for each parameter",
    )
    query.add_argument(
        "--partition-key", metavar="VALUE", help="ask one logical partition only: its key as a string or JSON"
    )
    query.add_argument("--max-items", metavar="N", type=int, help="stop after N rows (default: all)")
    query.add_argument(
        "--explain", action="store_true", help="run the query and show its plan and itemised charge, not its rows"
    )
    _server(query)

    shell = add_command(commands, "shell", "query containers at a prompt, with completion and history")
    shell.add_argument(
        "container", metavar="DATABASE/CONTAINER", nargs="?", help="the container to begin with (see \\use)"
    )
    _output(shell)
    shell.add_argument(
        "--keep-going", action="store_true", help="without a terminal: go on after a statement that failed"
    )
    _server(shell)


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", choices=OUTPUTS, help="table (default), json (one row a line), or csv with a line of names"
    )


def _server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", metavar="KEY", help="the account key (default: asked for with the control key)")
    place_of_server(parser)


def parameters_of(given: Sequence[str]) -> list[dict[str, Any]]:
    """NAME=VALUE as the SQL API takes parameters. A value that is not JSON is text."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name if name.startswith("@") else f"@{name}"
        if not equals or name == "@":
            raise bad_request(f"--parameter is {text!r}; expected NAME=VALUE, such as --parameter city=Berlin.")
        if name in found:
            raise bad_request(f"The parameter {name} is given twice. Give each one once.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return [{"name": name, "value": value} for name, value in found.items()]
