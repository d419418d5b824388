"""The arguments of the commands that look ahead: `armillary estimate` and `armillary simulate`. Built at every start of
the program, so it imports nothing heavy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from armillary.tools.profiles import PROFILES

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AddCommand = Callable[..., argparse.ArgumentParser]


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    estimate = add_command(
        commands, "estimate", "say which throughput, partitions and money a workload needs, without a server"
    )
    estimate.add_argument("--workload", metavar="FILE", help="a workload file (docs/foresight.md)")
    rates = (
        ("reads", "point reads a second"),
        ("creates", "creates a second"),
        ("upserts", "upserts a second, of items that exist"),
        ("replaces", "replaces a second"),
        ("deletes", "deletes a second"),
        ("queries", "queries a second that name the partition key"),
        ("cross-queries", "queries a second that visit all partitions"),
    )
    for name, meaning in rates:
        estimate.add_argument(f"--{name}", metavar="RATE", type=float, help=meaning)
    estimate.add_argument("--rows", metavar="N", type=float, help="rows that a query returns (default: 10)")
    estimate.add_argument("--item-size", metavar="SIZE", help="stored size of an item (default: 1KB)")
    estimate.add_argument("--terms", metavar="N", type=int, help="index terms of an item (default: 10)")
    estimate.add_argument("--size", metavar="SIZE", help="data that is stored, such as 500GB (default: none)")
    estimate.add_argument("--distinct", metavar="N", type=int, help="values of the partition key (default: 1000000)")
    estimate.add_argument("--zipf", metavar="S", type=float, help="skew of these values (default: 0, even)")
    estimate.add_argument("--throughput", metavar="RU", type=int, help="judge this manual throughput")
    estimate.add_argument("--autoscale", metavar="RU", type=int, help="judge this autoscale maximum")
    estimate.add_argument("--serverless", action="store_true", help="judge serverless")
    add_utilisation(estimate)
    _add_shared(estimate, "how far ahead, such as 12mo (default: now)")

    simulate = add_command(
        commands, "simulate", "play a workload over months, without a server: splits, 429, full keys"
    )
    simulate.add_argument("--workload", metavar="FILE", required=True, help="a workload file (docs/foresight.md)")
    simulate.add_argument(
        "--vary",
        metavar="NAME=A,B,C",
        action="append",
        help="compare values of a field, such as throughput=4000,8000 or operations.0.rate=5,50; may be given several "
        "times",
    )
    simulate.add_argument("--step", metavar="TIME", help="length of a step, such as 1s, 1min or 1h (default: by --for)")
    _add_shared(simulate, "how long (default: 12mo)")

    model = add_command(commands, "scale-model", "play a workload on the real engine, small, beside its simulation")
    model.add_argument("--workload", metavar="FILE", required=True, help="a workload file (docs/foresight.md)")
    model.add_argument("--for", metavar="TIME", dest="horizon", help="how long (default: 30d)")
    model.add_argument("--items", metavar="N", type=int, help="items that are stored in the end (default: 20000)")
    model.add_argument("--looks", metavar="N", type=int, help="how often to compare, from 1 to 8 (default: 8)")
    _add_profile(model)
    _add_bounds(model)
    _add_output(model)


def _add_shared(parser: argparse.ArgumentParser, horizon: str) -> None:
    parser.add_argument("--for", metavar="TIME", dest="horizon", help=horizon)
    parser.add_argument("--dynamic", action="store_true", help="autoscale bills each partition by itself")
    add_report_options(parser, "where named keys of a distribution lie")


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        choices=tuple(PROFILES),
        help="the edition of the service whose limits hold, as of armillary serve (default: today)",
    )


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--partition-storage", metavar="SIZE", help="what a partition holds (default: 50GB)")
    parser.add_argument("--logical-partition-storage", metavar="SIZE", help="what one key holds (default: 20GB)")
    parser.add_argument(
        "--partition-throughput", metavar="RU", type=int, help="RU/s that a partition carries (default: 10000)"
    )


def add_utilisation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--utilisation",
        metavar="SHARE",
        type=float,
        help="how much of its throughput the hottest partition is planned to use (default: 0.7)",
    )


def add_report_options(parser: argparse.ArgumentParser, seeded: str) -> None:
    """What all foresight commands take."""
    _add_profile(parser)
    _add_bounds(parser)
    parser.add_argument(
        "--as",
        choices=("armillary", "cloud"),
        dest="place",
        help="whose storage rules and split times count (default: armillary)",
    )
    parser.add_argument(
        "--index-share",
        metavar="SHARE",
        type=float,
        help="what the index adds to the items' bytes, with --as cloud (default: 0.2)",
    )
    parser.add_argument("--prices", metavar="FILE", help="prices instead of the built-in ones (docs/foresight.md)")
    _add_output(parser, seeded)


def _add_output(parser: argparse.ArgumentParser, seeded: str = "where named keys of a distribution lie") -> None:
    parser.add_argument("--seed", metavar="N", type=int, help=f"{seeded} (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument("--html", metavar="FILE", help="write a report as one HTML file")
