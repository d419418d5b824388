"""The arguments and help texts of the commands that talk to a running server, and the reading of those that several
commands take: names such as shop/orders, partition keys, throughput, the confirmation of a delete. Built at every start
of the program, so this module imports nothing heavy; each command is a function of a module beside this one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from armillary.errors import Failure, Kind, bad_request
from armillary.tools.guide.command_parser import key_path

# How the caller makes a parser and adds a setting to it: `cli.py` knows both.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AddCommand = Callable[..., argparse.ArgumentParser]

_KEY_NAMES = ("primary", "secondary", "primaryReadonly", "secondaryReadonly")
NAMES = (
    "databases",
    "containers",
    "partitions",
    "keys",
    "top",
    "report",
    "scale",
    "split",
    "merge",
    "feed",
    "migrate",
    "script",
    "snapshot",
    "restore",
    "backup",
    "account-keys",
    "connection-strings",
    "portal",
    "capture",
)


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    databases = add_command(commands, "databases", "list, create and delete databases")
    verbs = _verbs(databases, add_command)
    of_server(add_command(verbs, "list", "list the databases"))
    show = of_server(add_command(verbs, "show", "show a database and its containers"))
    show.add_argument("database")
    create = of_server(add_command(verbs, "create", "create a database"))
    create.add_argument("database")
    _throughput(create, "shared by its containers")
    _delete(of_server(add_command(verbs, "delete", "delete a database with everything in it")), "database")

    containers = add_command(commands, "containers", "list, create and delete containers")
    verbs = _verbs(containers, add_command)
    listed = of_server(add_command(verbs, "list", "list the containers"))
    listed.add_argument("database", nargs="?")
    show = of_server(add_command(verbs, "show", "show a container's definition"))
    _container(show)
    create = of_server(add_command(verbs, "create", "create a container; its database too, if it does not exist"))
    _container(create)
    _key(create)
    create.add_argument("--definition", metavar="FILE", help="a JSON file with policies, as the SQL API has them")
    _throughput(create, "of the container")
    _container(_delete(of_server(add_command(verbs, "delete", "delete a container with its items")), None))

    scale = of_server(add_command(commands, "scale", "change the throughput of a container or of a database"))
    scale.add_argument("name", metavar="DATABASE[/CONTAINER]")
    scale.add_argument("throughput", metavar="RU", nargs="?", type=int, default=None, help="request units a second")
    scale.add_argument(
        "--autoscale", metavar="RU", type=int, help="autoscale maximum in request units a second, instead of RU"
    )
    _waiting(scale)

    partitions = of_server(add_command(commands, "partitions", "draw the partitions of containers, and their top keys"))
    partitions.add_argument("containers", metavar="DATABASE/CONTAINER", nargs="+", help="give several to compare them")
    _top(partitions)
    partitions.add_argument(
        "--since", metavar="SECONDS", type=int, help="the load that is judged (default: of the last 600 seconds)"
    )
    partitions.add_argument("--watch", action="store_true", help="draw again and again, until Ctrl-C")
    _pace(partitions)
    top = of_server(add_command(commands, "top", "show the busiest containers, again and again"))
    top.add_argument("--top", metavar="N", type=int, help="how many to show (default: 20)")
    top.add_argument(
        "--sort", choices=["ru", "requests", "refused", "full", "budget"], help="by what to sort (default: ru)"
    )
    _pace(top)
    report = of_server(add_command(commands, "report", "write a report on a container to an HTML file"))
    _container(report)
    report.add_argument("--html", metavar="FILE", required=True, help="the file to write; it needs no other files")
    report.add_argument("--hours", metavar="N", type=int, help="how far back the history goes (default: 6)")
    _top(report)
    keys = of_server(add_command(commands, "keys", "show the partition keys with the most bytes and request units"))
    _container(keys)
    _top(keys)

    split = of_server(add_command(commands, "split", "split a partition in two"))
    _container(split)
    split.add_argument(
        "range", metavar="PARTITION", nargs="?", type=int, default=None, help="its id (default: the largest)"
    )
    _waiting(split)
    merge = of_server(add_command(commands, "merge", "merge two neighbouring partitions into one"))
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
    _add_snapshots_and_backups(commands, add_command)
    _add_account_keys(commands, add_command)
    _add_connection_strings(commands, add_command)
    _add_capture(commands, add_command)
    portal = of_server(add_command(commands, "portal", "open the portal in the browser, logged in"))
    portal.add_argument("--print", action="store_true", help="print the address, which is good for a minute, instead")

    migrate = of_server(add_command(commands, "migrate", "change the partition key of a container while it is in use"))
    _container(migrate)
    migrate.add_argument(
        "target",
        metavar="DATABASE/NEW",
        help="the new container, created if it does not exist; takes the old one's name in the end",
    )
    _key(migrate)
    _throughput(migrate, "of the new container (default: as the old one)")
    migrate.add_argument("--keep-as", metavar="NAME", help="new name of the old container (default: NAME-before)")
    migrate.add_argument(
        "--no-switch", action="store_true", help="copy, follow changes and compare, but do not switch the names"
    )
    migrate.add_argument(
        "--filter",
        metavar="CONDITION",
        help="move only the items for which it holds, such as \"c.tenantId = 'acme'\", to a container of their own; "
        "both keep their names, and the key is the old one's unless one is given",
    )
    migrate.add_argument(
        "--remove",
        action="store_true",
        help="with --filter: at the end, refuse to write these items in the old container, and remove them there",
    )
    migrate.add_argument(
        "--lift-fence", action="store_true", help="allow writes again in the old container of items that were removed"
    )


def _add_feed(commands: Commands, add_command: AddCommand) -> None:
    feed = add_command(commands, "feed", "show the change feed of a container")
    verbs = feed.add_subparsers(dest="verb", metavar="tail", required=True)
    tail = add_command(verbs, "tail", "print the changes of a container as they happen, one JSON value a line")
    place_of_server(tail)
    _container(tail)
    tail.add_argument(
        "--mode",
        choices=["latest", "all-versions"],
        help="latest: the newest version of each item (default); all-versions: every write and delete, if the "
        "container's change feed policy keeps them",
    )
    tail.add_argument("--from", metavar="START", help="beginning, now (default), or a time: 2026-01-31T12:00:00Z")
    tail.add_argument(
        "--partition-key", metavar="VALUE", help="changes of one logical partition: its key as a string or JSON"
    )
    tail.add_argument("--limit", metavar="N", type=int, help="stop after N changes")
    tail.add_argument(
        "--no-follow", action="store_true", help="stop at the end of the feed instead of waiting for more"
    )


def _add_script(commands: Commands, add_command: AddCommand) -> None:
    script = add_command(commands, "script", "store and run stored procedures, triggers and functions")
    verbs = script.add_subparsers(dest="verb", metavar="list|show|put|delete|run", required=True)
    _container(of_server(add_command(verbs, "list", "list the scripts of a container")))
    show = of_server(add_command(verbs, "show", "print the source of a script"))
    put = of_server(add_command(verbs, "put", "store a script; replaces a script of the same name"))
    delete = _delete(of_server(add_command(verbs, "delete", "delete a script")), None)
    for parser in (show, put, delete):
        _container(parser)
        parser.add_argument("name")
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--trigger", action="store_true", help="NAME is a trigger (default: a stored procedure)")
        kind.add_argument("--function", action="store_true", help="NAME is a user-defined function")
    put.add_argument("file", metavar="FILE", help="its JavaScript source; - reads standard input")
    put.add_argument("--when", choices=["pre", "post"], help="when a trigger runs (default: pre)")
    put.add_argument(
        "--operation",
        choices=["all", "create", "update", "replace", "delete"],
        help="what a trigger runs for (default: all)",
    )
    run = of_server(add_command(verbs, "run", "run a stored procedure"))
    _container(run)
    run.add_argument("name")
    run.add_argument("--partition-key", metavar="VALUE", help="the logical partition it runs in: a string or JSON")
    run.add_argument("--params", metavar="JSON", help="its arguments as a JSON list")
    run.add_argument("--explain", action="store_true", help="show each read and write with its charge")
    run.add_argument("--dry-run", action="store_true", help="roll back whatever it writes")


def _add_snapshots_and_backups(commands: Commands, add_command: AddCommand) -> None:
    snapshot = of_server(add_command(commands, "snapshot", "write a database or container to a file"))
    snapshot.add_argument("name", metavar="DATABASE[/CONTAINER]", help="/ for all databases")
    snapshot.add_argument("file", metavar="FILE")
    restore = of_server(add_command(commands, "restore", "restore databases and containers from a snapshot file"))
    restore.add_argument("file", metavar="FILE")
    restore.add_argument("--as", dest="target", metavar="DATABASE[/CONTAINER]", help="restore under another name")
    restore.add_argument(
        "--replace", action="store_true", help="replace a database or container that has the name already"
    )

    backup = add_command(commands, "backup", "back up the whole account while the server runs, and restore it")
    verbs = backup.add_subparsers(dest="verb", required=True, metavar="create|list|verify|restore|prune")
    meanings = {
        "create": "add a backup to a directory; files that an earlier backup has are not copied again",
        "list": "list the backups in a directory",
        "verify": "read all of a backup, open it and verify every invariant",
        "restore": "write a backup to a new data directory",
        "prune": "remove old backups and the files that only they need",
    }
    for verb, meaning in meanings.items():
        parser = of_server(add_command(verbs, verb, meaning))
        parser.add_argument("directory", metavar="DIR", help="where the backups are")
        if verb in ("verify", "restore"):
            parser.add_argument(
                "--number",
                metavar="N",
                type=int,
                help="number of the backup, as `backup list` shows it (default: the newest)",
            )
        if verb == "restore":
            parser.add_argument("--to", metavar="DIR", required=True, help="the new data directory")
        if verb == "prune":
            parser.add_argument(
                "--keep", metavar="N", type=int, required=True, help="how many of the newest backups to keep"
            )


def _add_account_keys(commands: Commands, add_command: AddCommand) -> None:
    keys = add_command(commands, "account-keys", "show and change the keys that clients sign with")
    verbs = keys.add_subparsers(dest="verb", required=True, metavar="list|connection-strings|regenerate")
    of_server(add_command(verbs, "list", "show the keys"))
    of_server(add_command(verbs, "connection-strings", "show the connection strings for each protocol"))
    regenerate = of_server(
        add_command(verbs, "regenerate", "replace a key at once; clients that use the old one are refused")
    )
    regenerate.add_argument("key", choices=_KEY_NAMES)


def _add_connection_strings(commands: Commands, add_command: AddCommand) -> None:
    strings = of_server(add_command(commands, "connection-strings", "show what clients of each API connect with"))
    strings.add_argument("api", metavar="API", nargs="?", help="sql, table, mongo or gremlin: that string alone")
    strings.add_argument("--key", choices=_KEY_NAMES, help="the key in the strings (default: the first that is told)")


def _add_capture(commands: Commands, add_command: AddCommand) -> None:
    capture = add_command(commands, "capture", "record what is asked of a container, for advise and simulate")
    verbs = capture.add_subparsers(dest="verb", required=True, metavar="start|list|stop|save|delete")
    start = of_server(add_command(verbs, "start", "begin to record the requests of a container"))
    _container(start)
    start.add_argument("--for", metavar="TIME", help="how long: 90s, 15m, 1h (default) up to 24h")
    start.add_argument(
        "--share", metavar="SHARE", type=float, help="how many of the requests, from 0.0001 to 1 (default)"
    )
    start.add_argument("--limit", metavar="N", type=int, help="stop after N requests (default: 1000000)")
    start.add_argument(
        "--values", action="store_true", help="keep values of up to 128 bytes readable, not only their digests"
    )
    listed = of_server(add_command(verbs, "list", "list the captures of all containers, or of one"))
    listed.add_argument("container", metavar="DATABASE/CONTAINER", nargs="?")
    stop = of_server(add_command(verbs, "stop", "end a capture; what it has recorded is kept"))
    _container(stop)
    stop.add_argument("id", metavar="ID", nargs="?", help="its id (default: the one that runs)")
    save = of_server(add_command(verbs, "save", "write a capture that has ended to a file"))
    _container(save)
    save.add_argument("id", metavar="ID", help="its id, as `armillary capture list` shows it")
    save.add_argument("file", metavar="FILE", help="the file to write")
    save.add_argument("--as-workload", action="store_true", help="write a workload: rates, key shares, filter paths")
    save.add_argument(
        "--secret", metavar="FILE", help="also write the secret of its digests, by which they are joined with items"
    )
    delete = _delete(of_server(add_command(verbs, "delete", "delete a capture")), None)
    _container(delete)
    delete.add_argument("id", metavar="ID", help="its id, as `armillary capture list` shows it")


def _verbs(parser: argparse.ArgumentParser, add_command: AddCommand) -> Commands:
    of_server(parser)
    return parser.add_subparsers(dest="verb", metavar="list|show|create|delete")


def of_server(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Arguments of every command that talks to a server and can print JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return place_of_server(parser)


def place_of_server(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Arguments that locate the server."""
    parser.add_argument("--data", metavar="DIR", help="the server's data directory (ARMILLARY_DATA)")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="address of the server, such as http://127.0.0.1:8081 (default: read from the data directory)",
    )
    parser.add_argument(
        "--client-certificate",
        metavar="FILE",
        type=Path,
        help="a PEM file with a certificate and its key, for a server with --tls-client-ca",
    )
    parser.add_argument("--config", metavar="FILE", help="the server's settings file (ARMILLARY_CONFIG)")
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, help="how long to wait for each answer of the server (default: 60)"
    )
    return parser


def _container(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("container", metavar="DATABASE/CONTAINER")


def _key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition-key",
        metavar="PATH",
        type=key_path,
        action="append",
        help="such as /customerId; give it up to three times for a hierarchical key",
    )
    parser.add_argument("--fixed", action="store_true", help="without partition key: one partition of up to 10 GB")


def _throughput(parser: argparse.ArgumentParser, whose: str) -> None:
    parser.add_argument("--throughput", metavar="RU", type=int, help=f"request units a second, {whose}")
    parser.add_argument(
        "--autoscale", metavar="RU", type=int, help=f"autoscale maximum in request units a second, {whose}"
    )


def _delete(parser: argparse.ArgumentParser, what: str | None) -> argparse.ArgumentParser:
    if what is not None:
        parser.add_argument(what)
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    return parser


def _top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--top", metavar="N", type=int, help="how many keys to show (default: 10)")


def _pace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", metavar="SECONDS", type=float, help="how often to draw again (default: 1)")
    parser.add_argument("--times", metavar="N", type=int, help="stop after so many times")


def _waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-wait", action="store_true", help="return at once; the server completes it in the background"
    )


# What the commands read from their arguments.


def container_path(name: str) -> tuple[str, str, str, str]:
    """The path of a container in the control API."""
    database, slash, container = name.partition("/")
    if not slash or not database or not container or "/" in container:
        raise bad_request(f"{name!r} does not name a container: write DATABASE/CONTAINER, such as shop/orders.")
    return "databases", database, "containers", container


def throughput_fields(arguments: dict[str, Any]) -> dict[str, int]:
    """The throughput among the arguments, as the control API takes it; empty if there is none."""
    given = {name: arguments[name] for name in ("throughput", "autoscale") if arguments.get(name) is not None}
    if len(given) > 1:
        raise bad_request("Give a fixed throughput or --autoscale, not both.")
    for name, ru in given.items():
        if ru < 1:
            raise bad_request(f"The {name} is {ru}; expected request units a second, such as 400.")
    return given


def key_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """The partition key of a new container among the arguments, as the control API takes it."""
    if "partition_key" in arguments and "fixed" in arguments:
        raise bad_request("Give --partition-key or --fixed, not both.")
    if "partition_key" in arguments:
        return {"partitionKey": arguments["partition_key"]}
    return {"fixed": True} if "fixed" in arguments else {}


def key_values(given: str) -> list[Any]:
    """The values of a partition key. Text that is not JSON is a string; a list gives the levels of a key."""
    try:
        value = json.loads(given)
    except ValueError:
        value = given
    return value if isinstance(value, list) else [value]


def confirm(question: str, is_sure: bool) -> None:
    """Ask before a delete. Without a terminal the answer is no, unless --yes is given."""
    if is_sure:
        return
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if answer.strip().lower() not in ("y", "yes"):
        raise Failure(Kind.BAD_REQUEST, "Nothing was deleted. Answer yes, or give --yes.")
