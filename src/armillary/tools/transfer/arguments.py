"""The arguments of `armillary import` and `armillary export`. Built at every start, so it imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from armillary.tools.guide.command_parser import key_path

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AddCommand = Callable[..., argparse.ArgumentParser]

NAMES = ("import", "export")
KEY_VARIABLE = "ARMILLARY_REMOTE_KEY"
PARALLEL = 100  # what the article on partitioning advises

_PLACES = (
    "a file (.json, .jsonl, .csv, .parquet, .bson, .bson.gz), {folder}- for standard {stream}, "
    "cosmos:URL/DATABASE/CONTAINER, table:URL/TABLE, or mongodb://HOST/DATABASE.COLLECTION"
)


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    taking = add_command(commands, "import", "import items into a container from a file or another database")
    places = _PLACES.format(folder="a folder of mongodump, ", stream="input")
    taking.add_argument("place", metavar="SOURCE", help=places)
    taking.add_argument("container", metavar="DATABASE/CONTAINER")
    taking.add_argument(
        "--partition-key",
        metavar="PATH",
        type=key_path,
        action="append",
        help="create the container, with this key, if it does not exist; up to three times for a hierarchical key",
    )
    taking.add_argument("--throughput", metavar="RU", type=int, help="request units a second of a new container")
    _add_shared(taking)

    giving = add_command(commands, "export", "write the items of a container to a file or another database")
    giving.add_argument("container", metavar="DATABASE/CONTAINER")
    giving.add_argument("place", metavar="SINK", help=_PLACES.format(folder="", stream="output"))
    giving.add_argument(
        "--partition-key-value",
        metavar="VALUE",
        action="append",
        help="only the items of this partition key: text, or JSON; once for each level of a hierarchical key, of which "
        "the last may be left out",
    )
    giving.add_argument("--query", metavar="SQL", help="the rows of this query instead of all items")
    _add_shared(giving)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("json", "jsonl", "csv", "parquet", "bson"), help="of a file, if its name does not tell"
    )
    parser.add_argument(
        "--synthetic-key",
        metavar="PATH=TEMPLATE",
        action="append",
        help="compose a property from others: '/pk={deviceId}-{date}'",
    )
    parser.add_argument("--id", metavar="TEMPLATE", help="the property to use as id, or a template such as '{a}-{b}'")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", help="rename a property")
    parser.add_argument(
        "--type",
        metavar="NAME=TYPE",
        action="append",
        help="convert a property to number, integer, text, bool, date or json",
    )
    parser.add_argument("--drop", metavar="NAME", action="append", help="leave a property out")
    parser.add_argument(
        "--delimiter",
        metavar="CHARACTER",
        help="between the cells of a CSV file, such as ';' or tab (default: by its first line; export: comma)",
    )
    parser.add_argument("--csv-text", action="store_true", help="keep every cell of a CSV file as text")
    parser.add_argument(
        "--bson-exact", action="store_true", help="keep the types of BSON, as Extended JSON (default: plain JSON)"
    )
    parser.add_argument("--parallel", metavar="N", type=int, help=f"concurrent requests at most (default: {PARALLEL})")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, help="to wait for each answer (default: 120)")
    parser.add_argument(
        "--bad", metavar="FILE", help="file for bad rows with the reasons (default: beside the state file)"
    )
    parser.add_argument("--state", metavar="FILE", help="file that keeps the progress, so that a run can be resumed")
    parser.add_argument("--restart", action="store_true", help="start over, ignoring the progress of an earlier run")
    parser.add_argument("--remote-key", metavar="KEY", help=f"key of the other endpoint (better: set {KEY_VARIABLE})")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    add_server_options(parser)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """How a running server is found."""
    parser.add_argument("--data", metavar="DIR", help="the server's data directory (ARMILLARY_DATA)")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="address of the server, such as http://127.0.0.1:8081 (default: read from the data directory)",
    )
    parser.add_argument("--key", metavar="KEY", help="the server's account key (better: set ARMILLARY_KEY)")
    parser.add_argument("--config", metavar="FILE", help="the server's settings file (ARMILLARY_CONFIG)")
