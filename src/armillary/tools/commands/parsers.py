"""The arguments of the commands that talk to a running server. Built at every start, so it imports nothing heavy; what
the commands do is in the modules beside this one, imported when one is called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from armillary.tools.commands.keeping_parsers import KEEPING, add_keeping

# How the caller makes a parser and adds a setting to it: `cli.py` knows both.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AddCommand = Callable[..., argparse.ArgumentParser]

NAMES = (
    "databases",
    "containers",
    "partitions",
    "keys",
    "scale",
    "split",
    "merge",
    "feed",
    "migrate",
    "script",
    *KEEPING,
)


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    databases = add_command(commands, "databases", "list, create and delete databases")
    verbs = _verbs(databases, add_command)
    _of_server(add_command(verbs, "list", "list the databases"))
    show = _of_server(add_command(verbs, "show", "show a database and its containers"))
    show.add_argument("database")
    create = _of_server(add_command(verbs, "create", "create a database"))
    create.add_argument("database")
    _throughput(create, "shared by its containers")
    _delete(_of_server(add_command(verbs, "delete", "delete a database with everything in it")), "database")

    containers = add_command(commands, "containers", "list, create and delete containers")
    verbs = _verbs(containers, add_command)
    listed = _of_server(add_command(verbs, "list", "list the containers"))
    listed.add_argument("database", nargs="?")
    show = _of_server(add_command(verbs, "show", "show a container's definition"))
    _container(show)
    create = _of_server(add_command(verbs, "create", "create a container; its database too, if it does not exist"))
    _container(create)
    _key(create)
    create.add_argument("--definition", metavar="FILE", help="a JSON file with policies, as the SQL API has them")
    _throughput(create, "of the container")
    _container(_delete(_of_server(add_command(verbs, "delete", "delete a container with its items")), None))

    scale = _of_server(add_command(commands, "scale", "change the throughput of a container or of a database"))
    scale.add_argument("name", metavar="DATABASE[/CONTAINER]")
    scale.add_argument("throughput", metavar="RU", nargs="?", type=int, default=None, help="request units a second")
    scale.add_argument("--autoscale", metavar="RU", type=int, help="the most that it scales to by itself")
    _waiting(scale)

    partitions = _of_server(
        add_command(commands, "partitions", "draw the partitions of containers, and their top keys")
    )
    partitions.add_argument("containers", metavar="DATABASE/CONTAINER", nargs="+", help="several are compared")
    _top(partitions)
    keys = _of_server(add_command(commands, "keys", "show the partition keys with the most bytes and request units"))
    _container(keys)
    _top(keys)

    split = _of_server(add_command(commands, "split", "split a partition in two"))
    _container(split)
    split.add_argument(
        "range", metavar="PARTITION", nargs="?", type=int, default=None, help="its id (default: the largest)"
    )
    _waiting(split)
    merge = _of_server(add_command(commands, "merge", "merge two neighbouring partitions into one"))
    _container(merge)
    merge.add_argument(
        "ranges",
        metavar="PARTITION",
        nargs="*",
        type=int,
        default=[],
        help="two ids (default: the smallest neighbours)",
    )
    _waiting(merge)
    _add_feed(commands, add_command)
    _add_script(commands, add_command)
    add_keeping(commands, add_command, _of_server)

    migrate = _of_server(
        add_command(commands, "migrate", "move a live container to another partition key, under the name it has")
    )
    _container(migrate)
    migrate.add_argument(
        "target", metavar="DATABASE/NEW", help="the new container; made if it is missing, and renamed in the end"
    )
    _key(migrate)
    _throughput(migrate, "of the new container (default: as the old one)")
    migrate.add_argument("--keep-as", metavar="NAME", help="what the old one is called then (default: its name-before)")
    migrate.add_argument("--no-switch", action="store_true", help="copy, follow and compare, and leave the names alone")


def _add_feed(commands: Commands, add_command: AddCommand) -> None:
    feed = add_command(commands, "feed", "show the change feed of a container")
    verbs = feed.add_subparsers(dest="verb", metavar="tail", required=True)
    tail = add_command(verbs, "tail", "print what is written to a container as it happens, one JSON text a line")
    _place(tail)
    _container(tail)
    tail.add_argument(
        "--mode",
        choices=["latest", "all-versions"],
        help="items as they are (default), or each of their versions and deletes, where the container keeps them",
    )
    tail.add_argument("--from", metavar="START", help="beginning, now (default), or a time: 2026-01-31T12:00:00Z")
    tail.add_argument("--partition-key", metavar="VALUE", help="of one logical partition: a text, or JSON")
    tail.add_argument("--limit", metavar="N", type=int, help="end after so many changes")
    tail.add_argument("--no-follow", action="store_true", help="end when there is nothing more")


def _add_script(commands: Commands, add_command: AddCommand) -> None:
    script = add_command(commands, "script", "store and run stored procedures, triggers and functions")
    verbs = script.add_subparsers(dest="verb", metavar="list|show|put|delete|run", required=True)
    _container(_of_server(add_command(verbs, "list", "list the scripts of a container")))
    show = _of_server(add_command(verbs, "show", "print the source of a script"))
    put = _of_server(add_command(verbs, "put", "store a script, in the place of one of its name if there is one"))
    delete = _delete(_of_server(add_command(verbs, "delete", "delete a script")), None)
    for parser in (show, put, delete):
        _container(parser)
        parser.add_argument("name")
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--trigger", action="store_true", help="it is a trigger (default: a stored procedure)")
        kind.add_argument("--function", action="store_true", help="it is a user-defined function")
    put.add_argument("file", metavar="FILE", help="with its JavaScript; - is standard input")
    put.add_argument("--when", choices=["pre", "post"], help="when a trigger runs (default: pre)")
    put.add_argument(
        "--operation",
        choices=["all", "create", "update", "replace", "delete"],
        help="what a trigger runs for (default: all)",
    )
    run = _of_server(add_command(verbs, "run", "run a stored procedure"))
    _container(run)
    run.add_argument("name")
    run.add_argument("--partition-key", metavar="VALUE", help="the logical partition it runs in: a text, or JSON")
    run.add_argument("--params", metavar="JSON", help="its arguments, a JSON list")
    run.add_argument("--explain", action="store_true", help="show each read and write with its charge")
    run.add_argument("--dry-run", action="store_true", help="keep nothing of what it does")


def _verbs(parser: argparse.ArgumentParser, add_command: AddCommand) -> Commands:
    _of_server(parser)
    return parser.add_subparsers(dest="verb", metavar="list|show|create|delete")


def _of_server(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """What every command takes that talks to a server."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return _place(parser)


def _place(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Where the server is."""
    parser.add_argument("--data", metavar="DIR", help="the server's data directory (ARMILLARY_DATA)")
    parser.add_argument("--url", metavar="URL", help="where the server is, if its data directory does not say it")
    parser.add_argument(
        "--client-certificate",
        metavar="FILE",
        type=Path,
        help="a PEM file with a certificate and its key, for a server with --tls-client-ca",
    )
    parser.add_argument("--config", metavar="FILE", help="the server's settings file (ARMILLARY_CONFIG)")
    return parser


def _container(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("container", metavar="DATABASE/CONTAINER")


def _key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition-key", metavar="PATH", action="append", help="such as /customerId; up to three times, for levels"
    )
    parser.add_argument("--fixed", action="store_true", help="without partition key: one partition of up to 10 GB")


def _throughput(parser: argparse.ArgumentParser, whose: str) -> None:
    parser.add_argument("--throughput", metavar="RU", type=int, help=f"request units a second, {whose}")
    parser.add_argument("--autoscale", metavar="RU", type=int, help=f"the most that it scales to by itself, {whose}")


def _delete(parser: argparse.ArgumentParser, what: str | None) -> argparse.ArgumentParser:
    if what is not None:
        parser.add_argument(what)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


def _top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--top", metavar="N", type=int, help="how many keys (default: 10)")


def _waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return at once, and let it go on")
