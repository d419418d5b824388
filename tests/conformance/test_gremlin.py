"""The Gremlin corpus: every case of gremlin/cases.jsonl as a text, in process, on the graph in memory.

Whether conditions are taken as a hint or ignored by the graph must make no difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.gremlin_values import matches
from support.gremlin_graph import MemoryGraph, run_script

from armillary.errors import Failure, Kind
from armillary.languages.gremlin.errors import STATUS_OF_KIND

HERE = Path(__file__).parent / "gremlin"
CASES: list[dict[str, Any]] = [json.loads(line) for line in (HERE / "cases.jsonl").read_text("utf-8").splitlines()]
TINKERPOP: list[dict[str, Any]] = [
    json.loads(line) for line in (HERE / "tinkerpop.jsonl").read_text("utf-8").splitlines()
]
GRAPHS: dict[str, dict[str, Any]] = json.loads((HERE / "graphs.json").read_text("utf-8"))


_BUILT: dict[str, MemoryGraph] = {}


async def build(name: str) -> MemoryGraph:
    """A graph of its own: built by its scripts once, then copied."""
    if name not in _BUILT:
        _BUILT[name] = await build_anew(name)
    return _BUILT[name].copy()


async def build_anew(name: str) -> MemoryGraph:
    key = GRAPHS[name]["partition_key"]
    graph = MemoryGraph(key.lstrip("/") if key else None)
    for script in GRAPHS[name]["scripts"]:
        await run_script(graph, script)
    return graph


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_case(case: dict[str, Any]) -> None:
    for uses_conditions in (True, False):
        await check(case, uses_conditions=uses_conditions)


async def check(case: dict[str, Any], *, uses_conditions: bool) -> None:
    graph = await build(case["graph"])
    graph.uses_conditions = uses_conditions
    for script in case.get("setup", []):
        await run_script(graph, script)
    if case.get("error"):
        with pytest.raises(Failure) as caught:
            await run_script(graph, case["script"], case.get("bindings"))
        failure = caught.value
        if "x_ms_status_code" in case:
            code = failure.details.get("x_ms_status_code", STATUS_OF_KIND.get(failure.kind, (0, 0))[1])
            assert code == case["x_ms_status_code"]
        assert failure.kind in (Kind.BAD_REQUEST, Kind.CONFLICT, Kind.UNSUPPORTED)
        return
    results = await run_script(graph, case["script"], case.get("bindings"))
    if "expect_keys" in case:
        assert set(case["expect_keys"]) <= set(results[0])
    else:
        assert matches(case, results), f"conditions {uses_conditions}: expected {case['expect']}, found {results}"


async def test_as_tinkerpop_answers() -> None:
    """Results of TinkerPop's own engine; what it refuses is refused."""
    wrong = []
    for case in TINKERPOP:
        graph = await build(case["graph"])
        try:
            found: Any = await run_script(graph, case["script"])
        except Failure as failure:
            found = failure
        is_right = isinstance(found, Failure) if case.get("error") else isinstance(found, list) and matches(case, found)
        if not is_right:
            wrong.append((case["script"], found, case.get("expect")))
    assert not wrong, wrong
