"""Stored procedures, triggers and functions as resources. None is run yet, and that is said."""

from __future__ import annotations

from typing import Any

import pytest
from sdk.clients import everything, refused

TRIGGER = {"triggerType": "Pre", "triggerOperation": "All"}


@pytest.mark.parametrize(
    ("kind", "plural", "more"),
    [
        ("stored_procedure", "stored_procedures", {}),
        ("trigger", "triggers", TRIGGER),
        ("user_defined_function", "user_defined_functions", {}),
    ],
)
async def test_life(container: Any, kind: str, plural: str, more: dict[str, Any]) -> None:
    def call(verb: str, *arguments: Any, many: bool = False) -> Any:
        return getattr(container.scripts, f"{verb}_{plural if many else kind}")(*arguments)

    created = await call("create", {"id": "one", "body": "function () {}", **more})
    assert created["body"] == "function () {}"
    assert {name: created[name] for name in more} == more
    with refused(409):
        await call("create", {"id": "one", "body": "function () {}", **more})
    assert await call("get", "one") == created
    replaced = await call("replace", "one", {"id": "one", "body": "function (a) {}", **more})
    assert (replaced["body"], replaced["_rid"]) == ("function (a) {}", created["_rid"])
    await call("create", {"id": "two words", "body": "function () {}", **more})
    assert [each["id"] for each in await everything(call("list", many=True))] == ["one", "two words"]
    found = await everything(call("query", "SELECT * FROM c WHERE c.id = 'one'", many=True))
    assert [each["id"] for each in found] == ["one"]
    await call("delete", "one")
    with refused(404):
        await call("get", "one")


async def test_running_is_refused(container: Any) -> None:
    await container.scripts.create_stored_procedure({"id": "s", "body": "function () {}"})
    with refused(400, text="not supported"):
        await container.scripts.execute_stored_procedure("s", partition_key="a")
    with refused(404):
        await container.scripts.execute_stored_procedure("missing", partition_key="a")
    await container.scripts.create_trigger({"id": "t", "body": "function () {}", **TRIGGER})
    with refused(400, text="not supported"):
        await container.create_item({"id": "1", "pk": "a"}, pre_trigger_include="t")
    assert await everything(container.read_all_items()) == []


@pytest.mark.parametrize("more", [{"triggerType": "During"}, {"triggerOperation": "Sometimes"}, {"id": ""}])
async def test_refused(container: Any, more: dict[str, Any]) -> None:
    with refused(400):
        await container.scripts.create_trigger({"id": "t", "body": "function () {}", **TRIGGER, **more})
