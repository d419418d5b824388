"""Captures inside the account: their bounds, what a crash and a full disk leave, and requests that clients of the
protocols seldom send. The protocols themselves are in tests/control/test_captures.py."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.house import House
from support.limits import WithLimits
from support.waiting import until

from armillary.account import containers
from armillary.account.captures import notes
from armillary.account.captures.capture_lines import Lines
from armillary.account.captures.capture_store import CaptureRecord, FileStore
from armillary.account.captures.value_digests import Digests, canonical
from armillary.account.container import Container
from armillary.account.items import items
from armillary.account.items.bulk import run_bulk
from armillary.account.items.items import ItemOptions, Member
from armillary.account.queries import item_pages
from armillary.account.registry import AccountSettings
from armillary.account.visits.page_walk import FeedOptions
from armillary.errors import Failure, Kind
from armillary.insight.captures import Capture, Captured, read_capture
from armillary.languages.sql.compiling.compile import compile_query
from armillary.model.keys import NO_KEY, Key
from armillary.partition.operations import Result, Verb

NAMES = ("d400", "c")


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = await House.open()
    yield house
    await house.close()


async def begin(house: House, container: Container, **options: Any) -> CaptureRecord:
    count = len(container.partitions)
    return await house.account.captures.start(NAMES, container.record.rid, container.key, count, **options)


async def end(house: House, record: CaptureRecord) -> list[Captured]:
    await house.account.captures.stop(record)
    return list((await opened(house, record)).records)


async def opened(house: House, record: CaptureRecord) -> Capture:
    parts: list[bytes] = []
    while (part := await house.account.captures.part(NAMES, record, len(parts))) is not None:
        parts.append(part)
    return read_capture(BytesIO(b"".join(parts)))


def spent_ru(container: Container) -> float:
    return sum(meter.totals.charged_ru for meter in container.meters)


async def test_what_clients_seldom_send(house: House) -> None:
    """Bulk requests, conditions that are not met, a delete of a whole key; and what no door has asked for."""
    container = await house.container(12_000)
    record = await begin(house, container)
    key = ItemOptions(key=Key(("a",)))
    range_id = str(container.partition_for(container.effective_key(Key(("a",)))).range.id)
    members = [Member(Verb.CREATE, None, {"id": str(number), "pk": "a"}, options=key) for number in range(3)]
    await run_bulk(container, range_id, members, house.clock)
    await run_bulk(container, range_id, members[:2], house.clock)  # conflicts
    with pytest.raises(Failure):
        await items.delete(container, "0", replace(key, if_match="other"))
    await items.delete_by_key(container, Key(("a",)))
    bound = compile_query("SELECT * FROM c WHERE c.pk = 'a'").bind({}, container.query_context())
    await item_pages.query(house.account, container, bound, b"", FeedOptions())
    found = await end(house, record)
    assert sum(each.charge_ru for each in found) == pytest.approx(spent_ru(container))
    assert [each.operation for each in found] == ["create"] * 5 + ["delete", "delete", "query"]
    assert found[-1].equal == {"/pk": found[0].leaf["/pk"]} and found[0].door == "server"
    assert found[6].key == found[0].key and found[6].item_id is None


async def test_bounds(house: House, with_limits: WithLimits) -> None:
    container = await house.container()
    with_limits(CAPTURE_FLUSH_SECONDS=0.01)
    timed = await begin(house, container, seconds=60)
    assert house.account.captures.is_on and container.is_observed

    def passes() -> bool:
        house.clock.advance(30)
        return timed.state == "stopped"

    await until(passes, "its time is over")
    assert timed.reason == "its time is over" and not house.account.captures.is_on and not container.is_observed

    few = await begin(house, container, limit=3)
    await house.put(container, *[{"id": str(number), "pk": "a"} for number in range(5)])
    assert len(await end(house, few)) == 3 and few.reason == "it has as many requests as it may"

    with_limits(CAPTURE_BYTES_MAX=100)
    small = await begin(house, container)
    await house.put(container, *[{"id": str(number), "pk": "a"} for number in range(5)])
    assert await end(house, small) == [] and (small.requests, small.size_bytes) == (0, 0)
    assert small.missed == 5 and small.reason == "its file has the largest size that it may have"

    with_limits(CAPTURE_WAITING_BYTES_MAX=1, CAPTURE_FLUSH_BYTES=1, CAPTURE_BYTES_MAX=1_000_000)
    slow = await begin(house, container)
    await house.put(container, *[{"id": str(number), "pk": "a"} for number in range(5)])
    assert len(await end(house, slow)) + slow.missed == 5 and slow.missed

    with_limits(CAPTURES_MAX=4)
    with pytest.raises(Failure, match="4 captures are kept"):
        await begin(house, container)
    await house.account.captures.delete(slow)
    with_limits.restore()
    shared = await begin(house, container, share=0.5)
    for number in range(100):
        notes.begin("sql", f"activity {number}")
        await house.put(container, {"id": "1", "pk": "a"})
    notes.REQUEST.set(None)
    assert 20 < len(await end(house, shared)) < 80


async def test_two_captures_and_a_deleted_container(house: House) -> None:
    container = await house.container()
    first = await begin(house, container)
    await house.put(container, {"id": "1", "pk": "a"})
    second = await begin(house, container)
    await house.put(container, {"id": "2", "pk": "a"})
    assert len(await end(house, first)) == 2
    assert container.recording is not None
    await containers.delete_container(house.account, container, None)
    await until(lambda: second.state == "stopped", "its container was deleted")
    assert not house.account.captures.of_container(container.record.rid)


async def test_files(house: House, tmp_path: Path) -> None:
    """A crash may leave more than the record says, and after a power failure less; a disk may be full."""
    house.settings = AccountSettings(captures_path=tmp_path / "captures")
    await house.reopen()
    container = await house.container()
    record = await begin(house, container)
    for number in range(3):
        await house.put(container, {"id": str(number), "pk": "a"})
        container.recording._recorders[0]._is_due.set()  # type: ignore[union-attr]
        await until(lambda wanted=number + 1: record.requests == wanted, "a member is written")  # type: ignore[misc]
    body = tmp_path / "captures" / f"{record.id}.gz"
    await asyncio.to_thread(FileStore(tmp_path / "captures").save, replace(record))
    whole = body.read_bytes()

    store = FileStore(tmp_path / "captures")
    body.write_bytes(whole + b"half")
    [found] = store.load()
    assert (found.state, found.requests, body.read_bytes()) == ("interrupted", 3, whole)
    store.save(replace(record, state="running"))
    body.write_bytes(whole[:-5])
    [found] = store.load()
    assert found.requests == 2 and gzip.decompress(body.read_bytes()).count(b"\n") == 2
    store.save(replace(record, state="running"))
    body.unlink()
    [found] = store.load()
    assert (found.requests, store.read(found, 0, 100)) == (0, b"")
    (tmp_path / "captures" / "0123456789ab.json").write_text("{}")
    (tmp_path / "captures" / "fedcba987654.json").write_text("half a rec")
    assert len(store.load()) == 1, "what is no record is left out"

    await house.account.captures.delete(record)
    again = await begin(house, container)
    (tmp_path / "captures" / f"{again.id}.gz").mkdir()  # in the way of the file
    await house.put(container, {"id": "1", "pk": "a"})
    await house.account.captures.stop(again)
    assert (again.state, again.requests) == ("stopped", 0) and "cannot be written" in again.reason


def test_the_fast_line_is_the_other_one() -> None:
    statuses: dict[Result | Kind, tuple[int, int]] = {Result.READ: (200, 0), Result.MISSING: (404, 0)}
    request = notes.Request("sql", "activity")
    made = [Lines(Digests(b"s" * 32), None, statuses, keeps_values=each) for each in (False, True)]
    for payload in (None, b"x" * 500):
        result = Result.READ if payload else Result.MISSING
        size_bytes = -1 if payload is None else len(payload)
        for key in (Key(("a",)), Key(("a", 1)), NO_KEY, None):
            note = notes.Note("read", result, 1.25, key, "id", int(payload is not None), len(payload or b""))
            for lines in made:
                fast = lines.read((request, key, "id", result, 1.25, size_bytes, 7, 0.0), 9)
                assert orjson.loads(fast) == orjson.loads(lines.line(note, request, (7,), 9))


def test_values() -> None:
    digests = Digests(b"s" * 32)
    assert digests.of(1) == digests.of(1.0) and digests.of(0) == digests.of(-0.0)
    different = ["1", 1, True, None, "true", "", 2**60, 1e308, float("inf"), b"1"]
    assert len({digests.of(each) for each in different}) == len(different)
    assert digests.of("x") != Digests(b"t" * 32).of("x")
    assert canonical("\ud800") and canonical(10**400)
    lines = Lines(digests, None, {}, keeps_values=True)
    note = notes.Note("create", Result.CREATED, 1.0, NO_KEY, "\ud800", document={"\ud800": "\ud800", "n": 2**70})
    line = orjson.loads(lines.line(note, notes.Request("sql", "\ud800"), (0,), 0))
    assert set(line["leaf"]) == {"/id", "/?", "/n"} and set(line["values"].values()) == {"?", float(2**70)}


async def test_a_line_that_cannot_be_made_ends_the_capture_alone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    container = await house.container()
    record = await begin(house, container)

    def broken(*_: Any) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(Lines, "line", broken)
    await house.put(container, {"id": "1", "pk": "a"})
    assert (await items.read(container, "1", ItemOptions(key=Key(("a",))))).result is Result.READ
    assert "could not be recorded" in record.reason and await end(house, record) == []


async def test_running_captures_are_not_sent(house: House) -> None:
    container = await house.container()
    record = await begin(house, container)
    with pytest.raises(Failure) as refused:
        await house.account.captures.part(NAMES, record, 0)
    assert refused.value.kind is Kind.CONFLICT
