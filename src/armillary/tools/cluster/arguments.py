"""The arguments and help texts of `armillary cluster`. Built at every start of the program, so this module imports
nothing heavy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from armillary import limits
from armillary.tools.commands.arguments import AddCommand, Commands, of_server

NODES_MAX = 9
STANDBYS_MAX = 4
LOGS_MAX, REPLICAS_MAX, COPIES_MAX = limits.CLUSTER_LOGS_MAX, limits.PLACEMENT_REPLICAS_MAX, limits.PLACEMENT_COPIES_MAX


def add_parsers(commands: Commands, add_command: AddCommand) -> None:
    cluster = add_command(commands, "cluster", "try, operate and repair a cluster of several nodes")
    verbs = cluster.add_subparsers(dest="verb", required=True, metavar="VERB")
    _add_try(verbs, add_command)
    _add_stopped(verbs, add_command)
    of_server(add_command(verbs, "status", "show the nodes, which of them leads, how far they are, and the log"))
    failover = of_server(add_command(verbs, "failover", "let another node lead"))
    failover.add_argument("node", metavar="NODE", nargs="?", default="", help="default: one of the preferred region")
    region = of_server(
        add_command(verbs, "failover-region", "make a region the write region, now and in the order of failover")
    )
    region.add_argument("region", metavar="REGION")
    drain = of_server(add_command(verbs, "drain", "have a node give up leading, and not take over until `undrain`"))
    undrain = of_server(add_command(verbs, "undrain", "let a drained node take over again"))
    for parser in (drain, undrain):
        parser.add_argument("node", metavar="NODE", nargs="?", default="", help="default: the node that is asked")
    drain.add_argument("--empty", action="store_true", help="several logs: its replicas go to other nodes, too")
    _add_placement(verbs, add_command)
    remove = of_server(add_command(verbs, "remove", "forget a node that is gone for good"))
    remove.add_argument("node", metavar="NODE")
    of_server(add_command(verbs, "verify", "compare the states of all nodes at the same row of the log"))


def _add_placement(verbs: Commands, add_command: AddCommand) -> None:
    of_server(add_command(verbs, "plan", "several logs: show where they are, and what the balancer will move and why"))
    placement = of_server(add_command(verbs, "placement", "several logs: show or change the rules of the balancer"))
    placement.add_argument("--replicas", metavar="N", type=_count(1, REPLICAS_MAX), help="of each log")
    placement.add_argument("--copies", metavar="N", type=_count(1, COPIES_MAX), help="to new replicas, at a time")
    placement.add_argument(
        "--balancing", choices=("on", "off"), help="off: only moves and drains of operators are done"
    )
    move = of_server(add_command(verbs, "move", "several logs: let a node lead a log, copied there if need be"))
    move.add_argument("log", metavar="LOG", type=_count(0, LOGS_MAX - 1), help="its number")
    move.add_argument("node", metavar="NODE", nargs="?", default="", help="default: the balancer chooses again")


def _add_stopped(verbs: Commands, add_command: AddCommand) -> None:
    init = add_command(verbs, "init", "make the data directory of a stopped single server the first of a new cluster")
    leave = add_command(verbs, "leave", "make the replica of a stopped node the data directory of a single server")
    reset = add_command(verbs, "reset-log", "make a new log of a stopped node's replica: the log was lost or set back")
    for parser in (init, reset):
        parser.add_argument("--from", metavar="DIR", type=Path, required=True, help="the data directory")
    leave.add_argument("--data", metavar="DIR", required=True, help="the data directory")
    for parser in (leave, reset):
        parser.add_argument("--accept-loss", action="store_true", help="also if acknowledged writes may be lost by it")
    for parser in (init, leave, reset):
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        parser.add_argument("--cluster", metavar="URL", help="the PostgreSQL database of the log (ARMILLARY_CLUSTER)")
        parser.add_argument(
            "--cluster-single-postgres", action="store_true", help="accept a PostgreSQL server without a standby"
        )
        parser.add_argument("--config", metavar="FILE", help="a settings file (ARMILLARY_CONFIG)")


def _add_try(verbs: Commands, add_command: AddCommand) -> None:
    trial = add_command(verbs, "try", "start PostgreSQL and several nodes on this machine, until Ctrl-C")
    trial.add_argument("--nodes", metavar="N", type=_count(1, NODES_MAX), default=3, help="how many (default: 3)")
    trial.add_argument("--regions", metavar="NAMES", help="such as eu,us: the nodes are spread over them")
    trial.add_argument(
        "--standbys",
        metavar="N",
        type=_count(0, STANDBYS_MAX),
        default=0,
        help="synchronous standbys of PostgreSQL (default: 0)",
    )
    trial.add_argument("--keep", metavar="DIR", type=Path, help="keep the data in this new directory")


def _count(low: int, high: int) -> type[int]:
    def count(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return count  # type: ignore[return-value]
