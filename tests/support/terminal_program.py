"""Runs commands of Armillary one after the other in this process, which a test has given a pseudo-terminal: its one
argument is a JSON file with a list of [name, arguments]. Before each, its name is printed on a line of its own.

What differs from run to run is fixed here: the times of partitions in a plan, the sizes of backups and captures. What a
cluster answers is canned, since its nodes need PostgreSQL."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.tools.cli import main
from armillary.tools.cluster.commands import show_status
from armillary.tools.commands import backups
from armillary.tools.foresight import capture
from armillary.tools.querying.sql_pages import Figures
from armillary.tools.screen import Screen

MARK = "@@@"


class Cluster:
    """In the place of a server."""

    def get(self, *path: str) -> dict[str, Any]:
        figures = {"alive": True, "drained": False, "silentSeconds": 0.0, "version": "0.1.0"}
        rows = {"appliedRow": 1_234_567, "flushedRow": 1_234_500, "lagSeconds": 0.004, "forwards": 12}
        nodes = [
            {"name": f"node{number}", "region": region, "role": role, **figures, **rows, "lagRows": number - 1}
            | {"addresses": {"sql": f"http://10.0.0.{number}:8081"}}
            for number, region, role in ((1, "eu", "leads"), (2, "eu", "follows"), (3, "us", "follows"))
        ]
        log = {"lowestRow": 1_000_000, "newestRow": 1_234_567, "bytes": 123_456_789, "slowestReplica": "node3"}
        log |= {"wantsSynchronousStandby": True, "hasSynchronousStandby": True}
        names = {"leader": "node1", "epoch": 4, "node": "node2", "priorities": ["eu", "us"]}
        return names | {"nodes": nodes, "log": log}


def fix_what_varies() -> None:
    add = Figures.add

    def added(self: Figures, headers: Mapping[str, str], row_count: int) -> None:
        add(self, headers, row_count)
        for each in self.partitions.values():
            each["ms"] = 1.0

    Figures.add = added  # type: ignore[method-assign]
    for module in (backups, capture):
        setattr(module, "size", lambda size_bytes: "1.0 MB")  # noqa: B010 - the name is imported there


def run(arguments: list[str]) -> int:
    if arguments == ["cluster", "status"]:
        return show_status(Cluster(), Screen(), {})  # type: ignore[arg-type]
    return main(arguments)


if __name__ == "__main__":
    fix_what_varies()
    for name, arguments in json.loads(Path(sys.argv[1]).read_text()):
        print(f"{MARK}{name}", flush=True)
        code = run(arguments)
        sys.stdout.flush()
        if code != 0:
            print(f"exit code {code}", flush=True)
    print(MARK, flush=True)
