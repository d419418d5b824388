"""Links between processes: writes are done once whatever happens to their messages; questions are cancelled, end at
their limit, and are bounded in number."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from support.divided import Spread, divide
from support.house import House
from support.limits import WithLimits

from armillary.account.items import items
from armillary.account.items.items import ItemOptions
from armillary.account.visits.elsewhere import message_table
from armillary.account.visits.elsewhere.link import Link
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question, Told, ask
from armillary.account.visits.elsewhere.remembered_answers import RememberedAnswers, WriteIds
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.model.keys import Key
from armillary.model.messages.codec import Codec
from armillary.model.patch import Operation, Patch

# Whole accounts.


@pytest.mark.parametrize("seed", range(40))
async def test_writes_are_done_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Messages are delayed, overtaken, repeated and lost with their connection; each write counts once."""
    spread = Spread(places=2, dice=random.Random(seed))
    divide(monkeypatch, spread)
    house = await House.open()
    container = await house.container(30_000)
    dice = random.Random(seed)
    counts = dict.fromkeys(range(8), 0)
    for number in counts:
        document = {"id": str(number), "pk": f"k{number}", "n": 0}
        await items.create(container, document, ItemOptions(key=Key((f"k{number}",))), house.clock)
    step = Patch(None, (Operation("incr", ("n",), value=1),))

    async def writer() -> None:
        for _ in range(12):
            number = dice.randrange(len(counts))
            key = Key((f"k{number}",))
            await items.patch(container, str(number), step, ItemOptions(key=key))
            counts[number] += 1
            found = await items.read(container, str(number), ItemOptions(key=key))
            assert found.payload is not None

    await asyncio.gather(*[writer() for _ in range(4)])
    for number, count in counts.items():
        found = await items.read(container, str(number), ItemOptions(key=Key((f"k{number}",))))
        assert found.payload is not None
        assert orjson.loads(found.payload)["n"] == count
    await house.close()
    assert spread.lost > 0


# One link.


@dataclass(slots=True)
class Work(Question):
    name: str
    id: bytes | None = None
    size: bytes = b""

    @property
    def write_id(self) -> bytes | None:
        return self.id

    async def answer(self, here: LocalPlace) -> Any:
        begun.append(self.name)
        try:
            await gates.setdefault(self.name, asyncio.Event()).wait()
        except asyncio.CancelledError:
            cancelled.append(self.name)
            raise
        if self.name == "broken":
            raise ZeroDivisionError
        if self.name == "refused":
            raise Failure(Kind.CONFLICT, "no")
        return object() if self.name == "unknown" else f"{self.name} is done"


@dataclass(slots=True)
class News(Told):
    text: str

    def take(self, here: LocalPlace) -> None:
        begun.append(self.text)


begun: list[str] = []
cancelled: list[str] = []
gates: dict[str, asyncio.Event] = {}


class Pair:
    """The two ends of a link."""

    def __init__(self) -> None:
        for each in (begun, cancelled, gates):
            each.clear()
        names = {**message_table.CLASSES, "work": f"{__name__}:Work", "news": f"{__name__}:News"}
        self.codec = Codec(names)
        self.clock = VirtualClock()
        self.here = self.new_process()
        ids = WriteIds(self.clock)
        self.is_cut = False
        self.asker = Link(1, self._carry(lambda frame: self.place.received(frame)), ids, codec=self.codec)
        self.place = Link(0, self._carry(self.asker.received), ids, self.here, self.codec)
        self.asker.peer = self.here.remembered.run

    def new_process(self) -> LocalPlace:
        account: Any = None  # the answers here do not need one
        return LocalPlace(account, RememberedAnswers(self.clock))

    def _carry(self, receive: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def carry(frame: bytes) -> None:
            if not self.is_cut:
                asyncio.get_running_loop().call_soon(receive, frame)

        return carry

    def begin(self, name: str, limit_s: float = 60.0, **given: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.asker.ask(Work(name, **given), limit_s=limit_s))


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def let(name: str) -> None:
    gates.setdefault(name, asyncio.Event()).set()


async def test_questions_are_answered_in_any_order() -> None:
    pair = Pair()
    first, second = pair.begin("first"), pair.begin("second")
    pair.asker.tell(News("told"))
    await turns()
    assert begun == ["told", "first", "second"]
    let("second")
    assert await second == "second is done"
    let("first")
    assert await first == "first is done"


async def test_what_goes_wrong_there_is_raised_here() -> None:
    pair = Pair()
    for name in ("refused", "broken", "unknown"):
        let(name)
    with pytest.raises(Failure, match="no") as refusal:
        await pair.begin("refused")
    assert refusal.value.kind is Kind.CONFLICT
    for name in ("broken", "unknown"):
        with pytest.raises(Failure, match="unknown error") as refusal:
            await pair.begin(name)
        assert refusal.value.kind is Kind.INTERNAL


async def test_a_read_is_cancelled_with_its_asker_and_a_write_goes_on() -> None:
    pair = Pair()
    read, write = pair.begin("read"), pair.begin("write", id=pair.asker.new_write_id())
    await turns()
    for task in (read, write):
        task.cancel()
    await turns()
    assert cancelled == ["read"]
    let("write")
    await turns()
    assert cancelled == ["read"]


async def test_a_question_ends_at_its_limit() -> None:
    pair = Pair()
    with pytest.raises(TimeoutError):
        await pair.begin("late", 0.0)
    await turns()
    assert begun in ([], ["late"])
    assert cancelled == begun


async def test_a_write_without_an_answer_may_be_done(with_limits: WithLimits) -> None:
    pair = Pair()
    with_limits(VISIT_SECONDS_MAX=0.0)
    with pytest.raises(Failure, match=r"does not answer\. Try again") as refusal:
        await ask(pair.asker, Work("read"), pair.clock)
    assert (refusal.value.kind, refusal.value.retry_after_ms) == (Kind.UNAVAILABLE, 500)
    with pytest.raises(Failure, match="Whether this write was stored is not known") as refusal:
        await ask(pair.asker, Work("write", pair.asker.new_write_id()), pair.clock)
    assert (refusal.value.kind, refusal.value.retry_after_ms) == (Kind.UNAVAILABLE, None)


async def test_a_write_is_asked_again_and_done_once() -> None:
    pair = Pair()
    write_id = pair.asker.new_write_id()
    first = pair.begin("write", id=write_id)
    await turns()
    pair.asker.lost()
    pair.place.lost()
    with pytest.raises(Lost):
        await first
    again = pair.begin("write", id=write_id)
    await turns()
    let("write")
    assert await again == "write is done"
    assert await pair.begin("write", id=write_id) == "write is done"
    assert begun == ["write"]
    assert cancelled == []


async def test_another_run_of_the_process_refuses_a_write_that_may_be_done() -> None:
    pair = Pair()
    let("write")
    write_id = pair.asker.new_write_id()
    await pair.begin("write", id=write_id)
    pair.place = Link(0, pair._carry(pair.asker.received), WriteIds(pair.clock), pair.new_process(), pair.codec)
    with pytest.raises(Failure, match="Whether this write was stored is not known"):
        await pair.begin("write", id=write_id)
    assert begun == ["write"]


async def test_answers_are_remembered_as_long_as_it_is_promised(
    with_limits: WithLimits,
) -> None:
    pair = Pair()
    with_limits(REMEMBERED_MAX=3)
    let("write")
    ids = [pair.asker.new_write_id() for _ in range(4)]
    for each in ids:
        await pair.begin("write", id=each)
    assert len(begun) == 4
    with pytest.raises(Failure, match="not known"):  # it was forgotten, and is not done again
        await pair.begin("write", id=ids[0])
    for each in ids[1:]:
        assert await pair.begin("write", id=each) == "write is done"
    pair.clock.advance(121)
    await pair.begin("write", id=pair.asker.new_write_id())
    for each in ids:
        with pytest.raises(Failure, match="not known"):
            await pair.begin("write", id=each)
    assert len(begun) == 5
    with_limits(REMEMBERED_MAX=100, REMEMBERED_BYTES_MAX=60)
    more = [pair.asker.new_write_id() for _ in range(4)]
    for each in more:
        await pair.begin("write", id=each)
    with pytest.raises(Failure, match="not known"):
        await pair.begin("write", id=more[0])
    assert await pair.begin("write", id=more[3]) == "write is done"


async def test_what_is_too_much_waits_and_is_refused(with_limits: WithLimits) -> None:
    pair = Pair()
    with_limits(LINK_QUESTIONS_MAX=2)
    tasks = [pair.begin(f"{number}") for number in range(5)]
    await turns()
    assert begun == ["0", "1"]
    tasks[2].cancel()
    let("1")
    await turns()
    assert begun == ["0", "1", "3"]
    for number in (0, 3, 4):
        let(str(number))
    await turns()
    assert [await tasks[number] for number in (0, 1, 3, 4)] == [f"{number} is done" for number in (0, 1, 3, 4)]
    with_limits(LINK_QUESTIONS_MAX=100, LINK_BYTES_MAX=1_000, LINK_WAIT_SECONDS_MAX=0.0)
    large = pair.begin("large", size=bytes(1_000))
    await turns()
    with pytest.raises(Failure, match="Too many requests") as refusal:
        await pair.begin("further")
    assert (refusal.value.kind, refusal.value.retry_after_ms) == (Kind.UNAVAILABLE, 500)
    let("large")
    assert await large == "large is done"
    let("further")
    assert await pair.begin("further") == "further is done"


async def test_frames_that_mean_nothing_are_refused() -> None:
    pair = Pair()
    for frame in (b"", b"\x00", bytes(8), b"\x09" + bytes(8)):
        with pytest.raises(Failure, match="not what it should be"):
            pair.place.received(frame)
    pair.place.received(bytes(9) + b"\x01\x01")  # a question that is none is answered with a refusal
    await turns()
    assert begun == []
