"""Deletion of a logical partition that another process holds: in several visits if it takes long, charged as one."""

from __future__ import annotations

from typing import Any

import pytest
from support.divided import Spread, divide
from support.house import AccountHouse, Hurried

from armillary import limits
from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.visits.elsewhere.questions import Asked
from armillary.errors import Failure
from armillary.model.key_values import Key
from armillary.storage.memory import MemoryEngine


async def filled(step_s: float) -> AccountHouse[Hurried]:
    house = await AccountHouse.begin(MemoryEngine(), Hurried())
    container = await house.create("c", 24_000)
    await house.put(container, *[{"id": f"{n}", "pk": "a" if n < 250 else "b"} for n in range(300)])
    house.clock.step_s = step_s
    return house


async def test_in_several_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    house = await filled(0.0)
    expected = await items.delete_by_key(house.account.container("db", "c"), Key(("a",)))
    await house.close()
    asked: list[Any] = []
    answer = Asked.answer

    async def noted(question: Asked, here: Any) -> Any:
        asked.append(question.visit)
        return await answer(question, here)

    divide(monkeypatch, Spread())
    house = await filled(limits.VISIT_SECONDS_MAX / 100)
    monkeypatch.setattr(Asked, "answer", noted)
    container = house.account.container("db", "c")
    done = await items.delete_by_key(container, Key(("a",)))
    house.clock.step_s = 0.0
    assert (done.charge_ru, done.result, done.range_id) == (expected.charge_ru, expected.result, expected.range_id)
    assert len(asked) > 1
    with pytest.raises(Failure):
        await items.read(container, "0", ItemOptions(key=Key(("a",))))
    assert (await items.read(container, "299", ItemOptions(key=Key(("b",))))).payload is not None
    await house.close()
