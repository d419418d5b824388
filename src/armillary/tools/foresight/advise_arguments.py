"""The arguments of `armillary advise`. Built at every start of the program, so it imports nothing heavy."""

from __future__ import annotations

import argparse

from armillary.tools.foresight.arguments import AddCommand, Commands, add_report_options, add_utilisation
from armillary.tools.transfer.arguments import KEY_VARIABLE, add_server_options

_SOURCE = (
    "a file (.json, .jsonl, .csv, .parquet, .bson, .bson.gz), a folder of mongodump, - for standard input, "
    "cosmos:URL/DATABASE/CONTAINER, table:URL/TABLE, mongodb://HOST/DATABASE.COLLECTION, or DATABASE/CONTAINER of a "
    "running server"
)


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    advise = add_command(commands, "advise", "say which partition key suits data and requests, and why")
    advise.add_argument("source", metavar="SOURCE", help=_SOURCE)
    _add_requests(advise)
    _add_candidates(advise)
    _add_plan(advise)
    advise.add_argument(
        "--rows",
        metavar="N",
        type=int,
        help="rows kept as a sample for figures of several paths, and drawn of a running container (default: 200000)",
    )
    advise.add_argument(
        "--format",
        choices=("json", "jsonl", "csv", "parquet", "bson"),
        help="format of a file, if its name does not tell",
    )
    advise.add_argument("--csv-text", action="store_true", help="keep every cell of a CSV file as text")
    advise.add_argument("--remote-key", metavar="KEY", help=f"key of the other endpoint (better: set {KEY_VARIABLE})")
    add_report_options(advise, "seed of the sample and of the intervals")
    add_server_options(advise)


def _add_requests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requests",
        metavar="CAPTURE",
        action="append",
        help="requests of a capture, or azure:FILE.csv for an export of the cloud's logs; may be given several times",
    )
    parser.add_argument("--workload", metavar="FILE", help="planned requests, as a workload file (docs/foresight.md)")


def _add_candidates(parser: argparse.ArgumentParser) -> None:
    several = "; may be given several times"
    parser.add_argument(
        "--candidate",
        metavar="PATH[,PATH...]",
        action="append",
        help="a key to be judged in any case: paths, or one such as {tenantId}-{createdAt:day} or {tenantId}-{0..15}"
        + several,
    )
    parser.add_argument("--must", metavar="PATH", action="append", help=f"a path that the key must have{several}")
    parser.add_argument("--never", metavar="PATH", action="append", help=f"a path that no key may have{several}")
    parser.add_argument(
        "--known",
        metavar="PATH",
        action="append",
        help=f"a path whose value the application knows when it reads by id{several}",
    )
    parser.add_argument(
        "--presence", metavar="SHARE", type=float, help="how many of the rows must have a path (default: 0.99)"
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", metavar="SIZE", help="size of all data, such as 500GB, if what is read is a part")
    parser.add_argument("--items", metavar="N", type=int, help="number of all items, instead of --size")
    parser.add_argument("--growth", metavar="SIZE/TIME", help="how fast the data grows, such as 2GB/day")
    parser.add_argument("--horizon", metavar="TIME", help="how far ahead to look, such as 24mo (the default)")
    parser.add_argument("--throughput", metavar="RU", type=int, help="judge with this manual throughput")
    parser.add_argument("--autoscale", metavar="RU", type=int, help="judge with this autoscale maximum")
    parser.add_argument("--serverless", action="store_true", help="judge as serverless")
    add_utilisation(parser)
    parser.add_argument(
        "--definition",
        metavar="FILE",
        help="a container's definition as JSON: indexingPolicy, uniqueKeyPolicy, or indexes as MongoDB lists them",
    )
