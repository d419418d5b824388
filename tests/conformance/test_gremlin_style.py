"""Traversals in the style of Cosmos's documentation, one after the other on one graph, through the door: on one
partition and on four. What they give was looked at one by one; gremlin/style.jsonl has it, and the scripts that build
the graph anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.gremlin_house import GremlinHouse

CASES = [json.loads(line) for line in (Path(__file__).parent / "gremlin/style.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("partitions", [1, 4])
async def test_style(partitions: int) -> None:
    settings: dict[str, Any] = {"partition_throughput_ru": 200} if partitions > 1 else {}
    house = await GremlinHouse.open(**settings)
    container = await house.graph()
    assert len(container.partitions) == partitions
    wrong = []
    for case in CASES:
        if "setup" in case:
            for script in ("g.V().drop()", *case["setup"]):
                await house.run(script)
            continue
        if "status" in case:
            status, code, _ = await house.refusal(case["script"])
            found: Any = [status, code]
            expected = case["status"]
        else:
            found = await house.run(case["script"])
            if "count" in case:
                found, expected = len(found), case["count"]
            else:
                found, expected = _comparable(found, case), _comparable(case["expect"], case)
        if found != expected:
            wrong.append((case["script"], found, expected))
    assert not wrong, wrong
    await house.close()


def _comparable(values: list[Any], case: dict[str, Any]) -> list[str]:
    """Lists that come from several partitions have no order of their own, at any depth."""
    texts = [json.dumps(_sorted(value), sort_keys=True) for value in values]
    return texts if case.get("ordered") else sorted(texts)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in value.items() if name != "objects"} | (
            {"objects": value["objects"]} if "objects" in value else {}
        )
    return sorted((_sorted(each) for each in value), key=json.dumps) if isinstance(value, list) else value
