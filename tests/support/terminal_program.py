"""Runs commands of Armillary one after the other in this process, which a test has given a pseudo-terminal: its one
argument is a JSON file with a list of [name, arguments]. Before each, its name is printed on a line of its own. The
calls that have drawn a table, as [file, line], are written beside that file.

What differs from run to run is fixed here: the times of partitions in a plan, the sizes of backups and captures. What a
cluster answers is canned, since its nodes need PostgreSQL."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import armillary
from armillary.tools import screen as screen_module
from armillary.tools.cli import main
from armillary.tools.cluster.commands import show_status, verify
from armillary.tools.cluster.placement_commands import show_plan
from armillary.tools.cluster.trial import _tell
from armillary.tools.commands import backups
from armillary.tools.foresight import capture
from armillary.tools.querying.sql_pages import Figures
from armillary.tools.screen import Screen

MARK = "@@@"


class Cluster:
    """In the place of a server."""

    def post(self, *path: str, body: dict[str, Any]) -> dict[str, Any]:
        digests = [{"name": f"node{number}", "digest": "ab12" * 16, "reached": True} for number in (1, 2, 3)]
        return {"complete": True, "equal": True, "mark": 1_234_567, "nodes": digests}

    def get(self, *path: str) -> dict[str, Any]:
        return self._placement() if path == ("cluster", "placement") else self._status()

    def _placement(self) -> dict[str, Any]:
        nodes = [f"node{number}" for number in range(1, 6)]
        logs = [
            {
                "log": number,
                "leader": nodes[number],
                "chosenLeader": "node3" if number == 2 else None,
                "replicas": [
                    {"node": node, "whole": (number, node) != (3, "node5"), "lagRows": 0}
                    for node in (nodes if number == 0 else nodes[number - 1 : number + 2])
                ],
                "unitsPerSecond": 1_234.5 * number,
                "bytes": 123_456_789 * number,
                "partitions": 16,
            }
            for number in range(4)
        ]
        copy = {"action": "carry", "log": 3, "node": "node5", "cause": "load", "bytes": 370_370_367}
        copy |= {"text": "copy log 3 to node5", "reason": "node3 has more load than node5"}
        lead = {"action": "hand-over", "log": 3, "node": "node5", "cause": "load", "bytes": 0}
        lead |= {
            "text": "let node5 lead log 3",
            "reason": "node4 leads more than node5; log 3 spends 3,704 RU/s",
        }
        unmet = ["Log 1 has 2 of 3 replicas: no other live node with room is there."]
        done = [{**lead, "log": 1, "text": "let node2 lead log 1", "seconds": 0.41, "failure": None}]
        done += [{**copy, "text": "copy log 1 to node4", "seconds": 31.8, "failure": "Node node4 does not answer."}]
        rules = {"replicas": 3, "copies": 2, "balancing": True}
        return rules | {"logs": logs, "steps": [lead], "underWay": [copy], "unmet": unmet, "done": done}

    def _status(self) -> dict[str, Any]:
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


def note_tables() -> set[tuple[str, int]]:
    """The places that call for tables from now on."""
    noted: set[tuple[str, int]] = set()
    made_table = Screen.made_table

    def made(self: Screen, *arguments: Any, **named: Any) -> Any:
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename == screen_module.__file__:
            frame = frame.f_back
        source = Path(frame.f_code.co_filename).relative_to(Path(armillary.__file__).parent)
        noted.add((source.as_posix(), frame.f_lineno))
        return made_table(self, *arguments, **named)

    Screen.made_table = made  # type: ignore[method-assign]
    return noted


def run(arguments: list[str]) -> int:
    if arguments == ["cluster", "status"]:
        return show_status(Cluster(), Screen(), {})  # type: ignore[arg-type]
    if arguments == ["cluster", "plan"]:
        return show_plan(Cluster(), Screen(), {})  # type: ignore[arg-type]
    if arguments == ["cluster", "verify"]:
        return verify(Cluster(), Screen(), {})  # type: ignore[arg-type]
    if arguments == ["cluster", "try"]:
        _tell(Screen(), [_trial_node(number) for number in (1, 2, 3)], None)
        return 0
    return main(arguments)


def _trial_node(number: int) -> Any:
    doors = {"sql": "http", "table": "http", "mongo": "mongodb", "gremlin": "ws", "portal": "http"}
    addresses = {door: f"{scheme}://127.0.0.1:4{number}00{at}" for at, (door, scheme) in enumerate(doors.items())}
    place = Path(f"/tmp/trial/node{number}")
    process = SimpleNamespace(pid=1000 + number)
    return SimpleNamespace(name=f"node{number}", region="local", process=process, doors=addresses, directory=place)


if __name__ == "__main__":
    fix_what_varies()
    tables = note_tables()
    for name, arguments in json.loads(Path(sys.argv[1]).read_text()):
        print(f"{MARK}{name}", flush=True)
        code = run(arguments)
        sys.stdout.flush()
        if code != 0:
            print(f"exit code {code}", flush=True)
    Path(f"{sys.argv[1]}.tables").write_text(json.dumps(sorted(tables)))
    print(MARK, flush=True)
