"""The arguments of `armillary import` and `armillary export`. Built at every start, so it imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

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
    taking = add_command(commands, "import", "bring items into a container, from a file or another database")
    places = _PLACES.format(folder="a folder of mongodump, ", stream="input")
    taking.add_argument("place", metavar="SOURCE", help=places)
    taking.add_argument("container", metavar="DATABASE/CONTAINER")
    taking.add_argument(
        "--partition-key",
        metavar="PATH",
        action="append",
        help="make the container if it is missing, partitioned by this; up to three times, for levels",
    )
    taking.add_argument("--throughput", metavar="RU", type=int, help="of a container that is made")
    _add_shared(taking)

    giving = add_command(commands, "export", "write the items of a container to a file or another database")
    giving.add_argument("container", metavar="DATABASE/CONTAINER")
    giving.add_argument("place", metavar="SINK", help=_PLACES.format(folder="", stream="output"))
    _add_shared(giving)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("json", "jsonl", "csv", "parquet", "bson"), help="of a file, if its ending does not say it"
    )
    parser.add_argument(
        "--synthetic-key",
        metavar="PATH=TEMPLATE",
        action="append",
        help="make a property of others: '/pk={deviceId}-{date}'",
    )
    parser.add_argument("--id", metavar="TEMPLATE", help="what the id is: a property, or a template such as '{a}-{b}'")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", help="give a property another name")
    parser.add_argument(
        "--type",
        metavar="NAME=TYPE",
        action="append",
        help="make a property a number, integer, text, bool, date or json",
    )
    parser.add_argument("--drop", metavar="NAME", action="append", help="leave a property out")
    parser.add_argument("--csv-text", action="store_true", help="take every cell of a CSV file for text")
    parser.add_argument(
        "--bson-exact", action="store_true", help="keep the types of BSON, as Extended JSON (default: plain JSON)"
    )
    parser.add_argument(
        "--parallel", metavar="N", type=int, help=f"requests that are under way at once (default: {PARALLEL})"
    )
    parser.add_argument("--bad", metavar="FILE", help="where bad rows go, with the reason (default: beside the state)")
    parser.add_argument("--state", metavar="FILE", help="where it is kept how far the run has got")
    parser.add_argument("--restart", action="store_true", help="begin anew, whatever an earlier run has done")
    parser.add_argument("--remote-key", metavar="KEY", help=f"of the other endpoint (prefer {KEY_VARIABLE})")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("--data", metavar="DIR", help="the server's data directory (ARMILLARY_DATA)")
    parser.add_argument("--url", metavar="URL", help="where the server is, if its data directory does not say it")
    parser.add_argument("--key", metavar="KEY", help="the server's account key (prefer ARMILLARY_KEY)")
    parser.add_argument("--config", metavar="FILE", help="the server's settings file (ARMILLARY_CONFIG)")
