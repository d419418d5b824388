"""Patches: the rules of the service, hostile input, and an input document that must not change."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from support.portions import Amount
from support.refusals import refused

from armillary.errors import Failure, Kind
from armillary.model.patch import parse_patch

ITEM: dict[str, Any] = {
    "id": "x",
    "pk": "p",
    "tenant": {"user": "u", "other": 1},
    "n": 3,
    "f": 1.5,
    "s": "text",
    "list": [1, 2, 3],
    "deep": {"er": [{"a": 1}, {"b": [10, 20]}]},
    "a/b": 1,
    "c~d": 2,
    "": 3,
}
KEYS = (("pk",), ("tenant", "user"))


def patched(*operations: dict[str, Any], item: dict[str, Any] = ITEM) -> dict[str, Any]:
    before = copy.deepcopy(item)
    try:
        return parse_patch({"operations": list(operations)}).apply(item, KEYS)
    finally:
        assert json.dumps(item) == json.dumps(before), "the input changed"


def refused_patch(*operations: Any, words: str = "") -> str:
    return refused(lambda: patched(*operations), words)


def test_add() -> None:
    assert patched({"op": "add", "path": "/new", "value": None})["new"] is None
    assert patched({"op": "add", "path": "/n", "value": {"a": 1}})["n"] == {"a": 1}
    assert patched({"op": "add", "path": "/list/0", "value": 0})["list"] == [0, 1, 2, 3]
    assert patched({"op": "add", "path": "/list/3", "value": 4})["list"] == [1, 2, 3, 4]
    assert patched({"op": "add", "path": "/list/-", "value": 4})["list"] == [1, 2, 3, 4]
    assert patched({"op": "add", "path": "/deep/er/1/b/1", "value": 15})["deep"]["er"][1]["b"] == [10, 15, 20]
    refused_patch({"op": "add", "path": "/list/4", "value": 0}, words="outside of the array")
    refused_patch({"op": "add", "path": "/missing/x", "value": 0}, words="'/missing' does not exist")
    refused_patch({"op": "add", "path": "/n/x", "value": 0}, words="'/n' is no object")


def test_set() -> None:
    assert patched({"op": "set", "path": "/list/0", "value": 9})["list"] == [9, 2, 3]
    assert patched({"op": "set", "path": "/list/3", "value": 9})["list"] == [1, 2, 3, 9]
    assert patched({"op": "set", "path": "/list/-", "value": 9})["list"] == [1, 2, 3, 9]
    assert patched({"op": "set", "path": "/tenant/new", "value": 9})["tenant"] == {"user": "u", "other": 1, "new": 9}
    refused_patch({"op": "set", "path": "/missing/x", "value": 0})


def test_replace_and_remove() -> None:
    assert patched({"op": "replace", "path": "/s", "value": []})["s"] == []
    assert patched({"op": "replace", "path": "/list/2", "value": []})["list"] == [1, 2, []]
    assert "s" not in patched({"op": "remove", "path": "/s"})
    assert "s" not in patched({"op": "remove", "path": "/s", "value": None})  # as azure-cosmos for Java writes it
    assert patched({"op": "remove", "path": "/list/0"})["list"] == [2, 3]
    for op in ({"op": "replace", "value": 1}, {"op": "remove"}):
        for path in ("/missing", "/list/3", "/list/-", "/tenant/missing", "/s/0", "/list/x", "/list/01", "/list/-1"):
            refused_patch({**op, "path": path})


def test_incr() -> None:
    total = patched({"op": "incr", "path": "/n", "value": 7})["n"]
    assert total == 10
    assert type(total) is int
    assert patched({"op": "incr", "path": "/n", "value": -0.5})["n"] == 2.5
    assert patched({"op": "incr", "path": "/f", "value": 1})["f"] == 2.5
    assert patched({"op": "incr", "path": "/list/1", "value": 5})["list"] == [1, 7, 3]
    assert patched({"op": "incr", "path": "/counter", "value": 5})["counter"] == 5
    for path in ("/s", "/list", "/tenant", "/list/3", "/list/-", "/missing/x"):
        refused_patch({"op": "incr", "path": path, "value": 1})
    values: list[Any] = ["1", None, True, [], {}]
    for value in values:
        refused_patch({"op": "incr", "path": "/n", "value": value}, words="needs a number")
    largest = {"id": "x", "n": 2**63 - 1, "f": 1.7e308, "t": True, "z": None}
    with pytest.raises(Failure, match="64-bit"):
        patched({"op": "incr", "path": "/n", "value": 1}, item=largest)
    with pytest.raises(Failure, match="range of numbers"):
        patched({"op": "incr", "path": "/f", "value": 1.7e308}, item=largest)
    for path in ("/t", "/z"):
        with pytest.raises(Failure, match="not a number"):
            patched({"op": "incr", "path": path, "value": 1}, item=largest)
    assert patched({"op": "incr", "path": "/n", "value": 0}, item=largest)["n"] == 2**63 - 1


def test_move() -> None:
    moved = patched({"op": "move", "from": "/s", "path": "/tenant/text"})
    assert "s" not in moved
    assert moved["tenant"]["text"] == "text"
    assert patched({"op": "move", "from": "/list/0", "path": "/list/-"})["list"] == [2, 3, 1]
    assert patched({"op": "move", "from": "/list/2", "path": "/list/0"})["list"] == [3, 1, 2]
    assert patched({"op": "move", "from": "/s", "path": "/s"})["s"] == "text"
    assert patched({"op": "move", "from": "/s", "path": "/n"})["n"] == "text"
    refused_patch({"op": "move", "from": "/missing", "path": "/x"})
    refused_patch({"op": "move", "from": "/deep", "path": "/deep/er"}, words="inside itself")
    refused_patch({"op": "move", "from": "/s", "path": "/missing/x"})
    refused_patch({"op": "move", "path": "/x"}, words="lacks 'from'")
    refused_patch({"op": "move", "from": "", "path": "/x"})


def test_escapes_and_odd_names() -> None:
    assert patched({"op": "set", "path": "/a~1b", "value": 9})["a/b"] == 9
    assert patched({"op": "set", "path": "/c~0d", "value": 9})["c~d"] == 9
    assert patched({"op": "set", "path": "/~01", "value": 9})["~1"] == 9
    assert patched({"op": "set", "path": "/", "value": 9})[""] == 9
    assert patched({"op": "set", "path": "/é 😀", "value": 9})["é 😀"] == 9
    paths: list[Any] = ["", "n", "n/x", "/a~", "/a~2", None, 1, [], {}]
    for path in paths:
        refused_patch({"op": "set", "path": path, "value": 1})
    refused_patch({"op": "set", "path": "/list/٣", "value": 1})  # an Arabic digit is no index
    refused_patch({"op": "set", "path": "/x" * 129, "value": 1}, words="128")


@pytest.mark.parametrize("name", ["id", "_rid", "_self", "_etag", "_ts", "_attachments", "_lsn", "pk"])
def test_protected_properties(name: str) -> None:
    for op in ("add", "set", "replace", "incr"):
        refused_patch({"op": op, "path": f"/{name}", "value": 1}, words="may not be changed")
    refused_patch({"op": "remove", "path": f"/{name}"}, words="may not be changed")
    refused_patch({"op": "move", "from": f"/{name}", "path": "/x"}, words="may not be changed")
    refused_patch({"op": "move", "from": "/n", "path": f"/{name}"}, words="may not be changed")
    refused_patch({"op": "set", "path": f"/{name}/x", "value": 1}, words="may not be changed")


def test_neither_over_nor_around_the_partition_key() -> None:
    refused_patch({"op": "set", "path": "/tenant", "value": {"user": "u"}}, words="partition key")
    refused_patch({"op": "remove", "path": "/tenant"})
    refused_patch({"op": "move", "from": "/tenant", "path": "/x"})
    refused_patch({"op": "move", "from": "/deep", "path": "/tenant"})
    refused_patch({"op": "set", "path": "/tenant/user", "value": "v"})
    assert patched({"op": "set", "path": "/tenant/other", "value": 2})["tenant"]["other"] == 2
    assert patched({"op": "set", "path": "/deep/id", "value": 2})["deep"]["id"] == 2


def test_all_or_nothing_and_in_order() -> None:
    result = patched(
        {"op": "add", "path": "/color", "value": "yellow"},
        {"op": "remove", "path": "/s"},
        {"op": "replace", "path": "/n", "value": {"x": 1}},
        {"op": "set", "path": "/n/y", "value": []},
        {"op": "add", "path": "/n/y/-", "value": 1},
        {"op": "incr", "path": "/n/y/0", "value": 7},
        {"op": "move", "from": "/color", "path": "/favorite"},
    )
    assert result["n"] == {"x": 1, "y": [8]}
    assert result["favorite"] == "yellow"
    message = refused_patch({"op": "set", "path": "/n", "value": 1}, {"op": "remove", "path": "/missing"})
    assert message.startswith("Patch operation 1 (remove)")


def test_a_patch_can_be_applied_twice() -> None:
    patch = parse_patch(
        {"operations": [{"op": "set", "path": "/v", "value": []}, {"op": "add", "path": "/v/-", "value": 1}]}
    )
    assert patch.apply(ITEM)["v"] == patch.apply(ITEM)["v"] == [1]


def test_shape_of_the_body() -> None:
    one = {"op": "remove", "path": "/s"}
    assert parse_patch({"operations": [one], "condition": "from c where c.n = 3"}).condition == "from c where c.n = 3"
    assert parse_patch({"operations": [one], "condition": None}).condition is None
    assert len(parse_patch([one] * 10).operations) == 10
    bodies: list[Any] = [
        None,
        1,
        "x",
        {},
        [],
        [1],
        {"operations": {}},
        {"operations": [one] * 11},
        {"operations": [one], "condition": 1},
        {"operations": [one], "more": 1},
        [{"op": "copy", "from": "/a", "path": "/b"}],
        [{"op": "ADD", "path": "/b", "value": 1}],
        [{"path": "/b", "value": 1}],
        [{"op": ["add"], "path": "/b", "value": 1}],
        [{"op": "add", "path": "/b"}],
        [{"op": "add", "value": "/b"}],
        [{"op": "remove", "path": "/s", "value": 1}],
        [{"op": "add", "path": "/b", "value": 1, "extra": 1}],
    ]
    for body in bodies:
        with pytest.raises(Failure) as caught:
            parse_patch(body)
        assert caught.value.kind is Kind.BAD_REQUEST


def test_depth_after_the_patch() -> None:
    tower: Any = 1
    for _ in range(126):
        tower = [tower]
    assert patched({"op": "set", "path": "/t", "value": [tower]})["t"]
    refused_patch({"op": "set", "path": "/t", "value": [[tower]]}, words="")
    climbing = [{"op": "set", "path": "/t" + "/0" * (i * 126), "value": tower} for i in range(2)]
    refused_patch(*climbing)


def test_fuzz(amount: Amount) -> None:
    seed = 4_711
    print("seed", seed)
    dice = random.Random(seed)
    steps = [
        "n",
        "list",
        "deep",
        "er",
        "tenant",
        "user",
        "other",
        "0",
        "1",
        "3",
        "-",
        "01",
        "~0",
        "~1",
        "~",
        "",
        "id",
        "_ts",
    ]
    values: list[Any] = [
        None,
        True,
        1,
        -1,
        2**63 - 1,
        1.7e308,
        "x",
        [],
        {},
        [1, [2]],
        {"a": {"b": []}},
        "-",
        {"op": "add"},
    ]

    def path() -> Any:
        if dice.random() < 0.03:
            return dice.choice(values)
        return "/" + "/".join(dice.choices(steps, k=dice.choice([1, 1, 1, 2, 2, 3])))

    def operation() -> Any:
        if dice.random() < 0.02:
            return dice.choice(values)
        op = dice.choice(["add", "set", "replace", "remove", "incr", "move"])
        made: dict[str, Any] = {"op": op, "path": path()}
        if op == "move":
            made["from"] = path()
        elif op != "remove":
            made["value"] = dice.choice(values) if op != "incr" or dice.random() < 0.1 else dice.choice([1, -2, 0.5])
        if dice.random() < 0.03:
            made[dice.choice(["op", "path", "value", "from", "zzz"])] = dice.choice(values)
        if dice.random() < 0.02:
            made.pop(dice.choice(list(made)))
        return made

    before = json.dumps(ITEM)
    counts = {"applied": 0, "refused": 0}
    for _ in range(amount(20_000)):
        body: Any = {"operations": [operation() for _ in range(dice.choice([1, 1, 1, 1, 2, 3, 11]))]}
        if dice.random() < 0.05:
            body[dice.choice(["condition", "operations", "x"])] = dice.choice(values)
        try:
            result = parse_patch(body).apply(ITEM, KEYS)
        except Failure as failure:
            assert failure.kind is Kind.BAD_REQUEST  # noqa: PT017
            counts["refused"] += 1
        else:
            counts["applied"] += 1
            assert (result["id"], result["pk"], result["tenant"]["user"]) == ("x", "p", "u")
            json.dumps(result, allow_nan=False)
        assert json.dumps(ITEM) == before
    assert min(counts.values()) > amount(1_000), counts
