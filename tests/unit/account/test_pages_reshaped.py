"""Pages of queries and feeds over partitions that split and merge between them: as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from support.house import House

from armillary.account.changes import feed_positions
from armillary.account.changes.feed_positions import Positions, Stretch
from armillary.account.container import Container
from armillary.account.queries import item_pages
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.key_values import Key
from armillary.model.keys import SPACE_HIGH, SPACE_LOW

ITEMS = 60
QUERIES = {
    "plain": "SELECT VALUE c.id FROM c",
    "ascending": "SELECT VALUE c.id FROM c ORDER BY c.n",
    "descending": "SELECT VALUE c.id FROM c ORDER BY c.n DESC",
    "joined": "SELECT VALUE CONCAT(c.id, t) FROM c JOIN t IN c.tags ORDER BY c.n",
    "first": "SELECT TOP 25 VALUE c.id FROM c ORDER BY c.n",
    "some": "SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 20 LIMIT 25",
    "any": "SELECT TOP 25 VALUE c.id FROM c",
}


@pytest.fixture
async def house() -> AsyncIterator[House]:
    opened = await House.open()
    yield opened
    await opened.close()


async def fill(house: House, seed: int) -> Container:
    dice = random.Random(seed)
    container = await house.container()
    documents = [
        {"id": f"i{number}", "pk": f"k{number % 17}", "n": dice.randrange(9), "tags": ["x", "y"]}
        for number in range(ITEMS)
    ]
    await house.put(container, *documents)
    return container


async def reshape(house: House, container: Container, dice: random.Random) -> None:
    reshaper, ranges = house.account.reshaper, container.map.ranges
    at = dice.randrange(len(ranges))
    if at + 1 < len(ranges) and dice.random() < 0.4:
        begun = await reshaper.merge(container, ranges[at].id, ranges[at + 1].id)
    else:
        begun = await reshaper.split(container, ranges[at].id)
    await reshaper.finished(begun)


async def page(
    house: House, container: Container, text: str, continuation: str | None, range_id: str | None = "0", **more: Any
) -> tuple[list[Any], str | None]:
    options = FeedOptions(range_id=range_id, page_items=7, continuation=continuation, **more)
    bound = compile_query(text).bind({}, container.query_context())
    answer = await item_pages.query(house.account, container, bound, text.encode(), options)
    return [orjson.loads(row) for row in answer.rows], answer.continuation


@pytest.mark.parametrize("name", QUERIES)
async def test_a_range_that_is_gone(house: House, seed: int, name: str) -> None:
    """Who has begun to read a range goes on with what was split and merged out of it, in one order."""
    print(f"--seed {seed}")
    dice, container, text = random.Random(seed), await fill(house, seed), QUERIES[name]
    expected: list[Any] = []
    token: str | None = None
    while not expected or token is not None:
        rows, token = await page(house, container, text, token)
        expected += rows
    rows, token = await page(house, container, text, None)
    while token is not None:
        await reshape(house, container, dice)
        more, token = await page(house, container, text, token)
        rows += more
    assert min(each.id for each in container.map.ranges) > 0, "the range is gone"
    if "ORDER BY" not in text:
        expected, rows = sorted(expected), sorted(rows)  # in any order, each once
    if name == "any":
        assert len(rows) == len(set(rows)) == len(expected)
    elif name == "plain":
        assert rows == expected
    else:
        numbers = {each["id"]: each["n"] for each in await everything(house, container)}
        order = [numbers[row.rstrip("xy")] for row in rows]
        assert order == [numbers[row.rstrip("xy")] for row in expected]
        assert len(set(rows)) == len(rows)


async def everything(house: House, container: Container) -> list[dict[str, Any]]:
    answer = await item_pages.read_feed(house.account, container, FeedOptions(page_items=1000))
    return [orjson.loads(row) for row in answer.rows]


async def test_a_token_goes_to_all_children(house: House, seed: int) -> None:
    """As JavaScript's client does it: the parent's token to each range in its place."""
    container = await fill(house, seed)
    text = QUERIES["ascending"]
    rows, token = await page(house, container, text, None)
    await house.account.reshaper.finished(await house.account.reshaper.split(container, 0))
    found = list(rows)
    for key_range in container.map.ranges:
        follow = token
        while follow is not None:
            more, follow = await page(house, container, text, follow, str(key_range.id))
            found += more
    assert sorted(found) == sorted(f"i{number}" for number in range(ITEMS))


async def test_the_first_page_of_a_range_that_is_gone(house: House, seed: int) -> None:
    container = await fill(house, seed)
    await house.account.reshaper.finished(await house.account.reshaper.split(container, 0))
    await house.reopen()
    container = house.account.owner_container("d400", "c")
    for text in (QUERIES["ascending"], "SELECT VALUE COUNT(1) FROM c"):
        with pytest.raises(Failure) as caught:
            await page(house, container, text, None)
        assert caught.value.kind is Kind.RANGE_GONE
    rows: list[Any] = []
    token: str | None = None
    for _ in range(ITEMS):
        more, token = await page(house, container, QUERIES["ascending"], token, is_unaware=True)
        rows += more
        if token is None:
            break
    assert sorted(rows) == sorted(f"i{number}" for number in range(ITEMS))
    # Clients add up what ranges tell them: here two pages of one.
    counts, token = await page(house, container, "SELECT VALUE COUNT(1) FROM c", None, is_unaware=True)
    assert token is not None
    more, token = await page(house, container, "SELECT VALUE COUNT(1) FROM c", token, is_unaware=True)
    assert sum(counts + more) == ITEMS and token is None
    with pytest.raises(Failure) as caught:
        await page(house, container, QUERIES["plain"], None, "77", is_unaware=True)
    assert caught.value.kind is Kind.RANGE_GONE


async def test_tokens_of_other_keys_are_refused(house: House, seed: int) -> None:
    container = await fill(house, seed)
    text = QUERIES["plain"]
    _, token = await page(house, container, text, None, None, epk_range=(SPACE_LOW, b"\x20"))
    with pytest.raises(Failure) as caught:
        await page(house, container, text, token, None, epk_range=(b"\x20", SPACE_HIGH))
    assert caught.value.kind is Kind.BAD_REQUEST
    with pytest.raises(Failure) as caught:
        await page(house, container, text, token, None, key=Key(("k1",)))
    assert caught.value.kind is Kind.BAD_REQUEST


def test_positions_of_parts() -> None:
    stretches = (Stretch(b"\x10", b"\x20", 5), Stretch(b"\x20", b"\x30", 9))
    token = Positions(stretches).encode(b"secret", b"rid", is_part=True)
    assert token.isdigit()
    read = feed_positions.decode(token, b"secret", b"rid", b"\x18", b"\x28")
    assert read.stretches == (Stretch(b"\x18", b"\x20", 5), Stretch(b"\x20", b"\x28", 9))
    assert feed_positions.decode(token, b"secret", b"rid", SPACE_LOW, SPACE_HIGH).stretches == stretches
    assert not feed_positions.decode(token, b"secret", b"rid", b"\x30", b"\x40").stretches
    for at in range(0, len(token), 3):
        wrong = f"{token[:at]}{(int(token[at : at + 3]) + 1) % 256:03}{token[at + 3 :]}"
        with pytest.raises(Failure):
            feed_positions.decode(wrong, b"secret", b"rid", SPACE_LOW, SPACE_HIGH)
