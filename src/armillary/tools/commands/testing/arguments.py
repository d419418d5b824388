"""The arguments of the commands for tests of applications: `armillary faults`, `armillary clock` and `armillary mode`.
Built at every start of the program, so this module imports nothing heavy.
"""

from __future__ import annotations

from typing import Final

from armillary.tools.commands.arguments import AddCommand, Commands, of_server

NAMES: Final = ("faults", "clock", "mode")


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    _add_faults(commands, add_command)
    _add_clock(commands, add_command)
    mode = of_server(add_command(commands, "mode", "show or set whether throughput is enforced, observed or off"))
    mode.add_argument(
        "mode",
        nargs="?",
        default=None,
        choices=("enforce", "observe", "off", "default"),
        help="default: as the server was started (without one: show the modes of all containers)",
    )
    mode.add_argument(
        "containers", metavar="DATABASE/CONTAINER", nargs="*", default=[], help="(default: all containers)"
    )


def _add_faults(commands: Commands, add_command: AddCommand) -> None:
    faults = of_server(add_command(commands, "faults", "make requests fail or wait: list, add and remove fault rules"))
    verbs = faults.add_subparsers(dest="verb", metavar="list|add|remove|clear")
    of_server(add_command(verbs, "list", "list the rules with how often each was hit"))
    add = of_server(add_command(verbs, "add", "add a rule; fields that are left out do not narrow the selection"))
    add.add_argument(
        "--operation",
        metavar="NAME",
        action="append",
        help="read, create, upsert, replace, patch, delete, batch, query, feed, changes, or write for all writes; "
        "give it several times for several",
    )
    add.add_argument("--container", metavar="DATABASE[/CONTAINER]", help="of this database or container only")
    add.add_argument("--partition-key", metavar="VALUE", help="of this partition key only: a string or JSON")
    add.add_argument("--partition", metavar="ID", type=int, help="of this physical partition only")
    add.add_argument("--skip", metavar="N", type=int, help="let the first N requests pass")
    add.add_argument("--every", metavar="N", type=int, help="hit every N-th request")
    add.add_argument("--count", metavar="N", type=int, help="hit at most N requests")
    add.add_argument("--probability", metavar="P", type=float, help="hit at random, from 0 to 1")
    add.add_argument("--seed", metavar="N", type=int, help="with --probability: the same seed hits the same requests")
    add.add_argument("--status", metavar="CODE", type=int, help="answer with 404, 408, 410, 429, 449, 500 or 503")
    add.add_argument("--sub-status", metavar="CODE", type=int, help="with --status, such as 1002")
    add.add_argument("--retry-after-ms", metavar="MS", type=int, help="with --status: how long the client is to wait")
    add.add_argument("--delay-ms", metavar="MS", type=int, help="wait before the answer, up to a minute")
    add.add_argument("--drop", action="store_true", help="end the connection without an answer")
    add.add_argument("--after", action="store_true", help="carry the write out, and lose its answer")
    add.add_argument("--rule", metavar="JSON", help="the whole rule as JSON, instead of the options above")
    remove = of_server(add_command(verbs, "remove", "remove rules"))
    remove.add_argument("id", metavar="ID", nargs="+", type=int, help="as `armillary faults list` shows it")
    of_server(add_command(verbs, "clear", "remove all rules"))


def _add_clock(commands: Commands, add_command: AddCommand) -> None:
    clock = of_server(add_command(commands, "clock", "show, stop and move the clock of a server with --clock movable"))
    verbs = clock.add_subparsers(dest="verb", metavar="show|stop|advance|run")
    of_server(add_command(verbs, "show", "show the server's time"))
    of_server(add_command(verbs, "stop", "stop the clock"))
    advance = of_server(add_command(verbs, "advance", "move the clock on"))
    advance.add_argument("time", metavar="TIME", help="such as 90s, 15m, 36h, 7d, or a number of seconds")
    of_server(add_command(verbs, "run", "let the clock go on from where it stands"))
