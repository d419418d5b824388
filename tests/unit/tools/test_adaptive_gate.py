"""The parallelism of an import: it falls where a server refuses operations, and rises again. What progress shows."""

from __future__ import annotations

import asyncio

import pytest

from armillary.tools.screen import Screen, _growing
from armillary.tools.transfer.endpoints.adaptive_gate import AdaptiveGate
from armillary.tools.transfer.files.csv_files import _sniffed


async def test_refusals_halve_the_requests_and_then_their_operations() -> None:
    gate = AdaptiveGate(8, 100)
    leaving = asyncio.Event()

    async def hold() -> None:
        async with gate.passed():
            await leaving.wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(hold())
        await asyncio.sleep(0)
        gate.answered(40, 60)
        assert (gate.limit, gate.operations) == (2, 100)
        leaving.set()
    for _ in range(4):  # those that were under way
        gate.answered(0, 100)
    assert (gate.limit, gate.operations) == (1, 50)
    gate.answered(40, 10)
    assert (gate.limit, gate.operations) == (1, 40)
    gate.answered(0, 40)
    assert gate.operations == 20
    for _ in range(80):
        gate.answered(1, 0)
    assert (gate.limit, gate.operations) == (1, 100)
    for _ in range(40):
        gate.answered(1, 0)
    assert (gate.limit, gate.operations) == (8, 100)


async def test_requests_that_were_sent_before_a_refusal_count_once() -> None:
    gate = AdaptiveGate(8, 100)
    for _ in range(4):
        gate.answered(100, 0)
    assert gate.limit == 8  # doubled by the first round of answers
    entered = asyncio.Event()
    leaving = asyncio.Event()

    async def send() -> None:
        async with gate.passed():
            entered.set()
            await leaving.wait()
            gate.answered(0, 100)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(send())
        await entered.wait()
        leaving.set()
    assert gate.limit == 4


async def test_no_more_than_the_limit_pass() -> None:
    gate = AdaptiveGate(2, 100)
    running = most = 0

    async def send() -> None:
        nonlocal running, most
        async with gate.passed():
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    tasks = [asyncio.create_task(send()) for _ in range(20)]
    await asyncio.sleep(0)
    tasks[5].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (running, most) == (0, 2)


@pytest.mark.parametrize(
    ("beginning", "delimiter"),
    [
        (b"id,name\n1;2;3", ","),
        (b"\xef\xbb\xbfid;name;city\r\n", ";"),
        (b"id\tname\n", "\t"),
        (b'"a;b;c",d\n', ","),
        (b"id|x\n", "|"),
        (b"id\n1\n", ","),
        (b"", ","),
    ],
)
def test_the_delimiter_of_a_csv_file(beginning: bytes, delimiter: str) -> None:
    assert _sniffed(beginning) == delimiter


def test_progress_never_runs_backwards() -> None:
    shown: list[float] = []
    update = _growing(lambda share, text: shown.append(share))
    for share in (0.1, 0.5, 0.2, 0.6, 2.0, 0.0):
        update(share, "")
    assert shown == [0.1, 0.5, 0.5, 0.6, 1.0, 1.0]


def test_columns_are_dropped_in_order_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, rows = ("name", ">first", ">second", "third"), [["x" * 20, 1, 2, "y" * 20]]
    for width, expected in (("100", ()), ("50", ("third",)), ("32", ("third", "second")), ("10", ("third", "second"))):
        screen = Screen()
        screen._console.width = int(width)
        screen.table(columns, rows, drop=("third", "second"))
        shown = capsys.readouterr().out
        for column in ("third", "second"):
            assert (column in shown.split("\n")[1]) == (column not in expected), shown
        assert ("not fit" in " ".join(shown.split())) == bool(expected)
