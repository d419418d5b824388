"""The balancer: at the leader of log 0 it looks at the cluster, and carries out the first step of the plan; then it
looks again. So it needs no memory of a plan, and a step that failed or that something else made needless is planned
anew. Copies to new replicas run beside it, a few at a time; no other step counts on one that is not whole.

What it decides is in the catalog before it is done (`record.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from armillary import limits, work
from armillary.clock import Clock
from armillary.cluster.placement.draft import LogNode
from armillary.cluster.placement.figures import Figures
from armillary.cluster.placement.planner import Plan, plan
from armillary.cluster.placement.record import SETTING, PlacementRecord
from armillary.cluster.placement.steps import Action, Cause, PlacementActions, Step
from armillary.errors import Failure

_log = logging.getLogger("armillary.cluster")
Place = TypeVar("Place", int, LogNode)
_ATTEMPTS = 3  # at a copy to one node, or at handing over to it, until another one is chosen


class PlacementStore(Protocol):
    """The settings of the catalog."""

    async def kept_setting(self, name: str) -> bytes | None: ...
    async def keep_setting(self, name: str, value: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class DoneStep:
    step: Step
    ended_s: float  # seconds since 1970
    seconds: float
    failure: str | None


@dataclass(frozen=True, slots=True)
class PlacementState:
    """What there is and what will be done, for an operator."""

    figures: Figures
    record: PlacementRecord
    plan: Plan
    under_way: tuple[Step, ...]
    done: tuple[DoneStep, ...]  # the newest comes last


class Balancer:
    def __init__(self, store: PlacementStore, actions: PlacementActions, clock: Clock) -> None:
        self._store = store
        self._actions = actions
        self._clock = clock
        self._changing = asyncio.Lock()  # held while the record is read and written
        self._wake = asyncio.Event()
        self._copies: dict[LogNode, tuple[Step, asyncio.Task[None]]] = {}
        self._done: deque[DoneStep] = deque(maxlen=limits.PLACEMENT_STEPS_KEPT)
        self._failures: dict[LogNode, int] = {}
        self._left_out: dict[int, float] = {}  # logs, until a time
        self._avoided: dict[LogNode, float] = {}
        self._resting: dict[int, float] = {}

    async def run(self) -> None:
        """Until cancelled. Copies that are under way then go on at their nodes, and are seen by the next balancer."""
        told = ""
        try:
            while True:
                self._wake.clear()
                try:
                    has_done = await self.round()
                    told = ""
                except Failure as failure:
                    has_done = False
                    if failure.message != told:
                        told = failure.message
                        _log.warning("the logs are not placed now: %s", told)
                if has_done:  # what it has changed is seen a little later
                    await self._clock.sleep(limits.PLACEMENT_STEP_SECONDS)
                else:
                    await self._pause()
        finally:
            await self._end_copies(list(self._copies))

    async def round(self) -> bool:
        """Carry out the next step, if there is one. Raises a Failure if it is not known what there is."""
        record, figures = await self.record(), await self._actions.figures()
        found = await self._planned(
            figures,
            record,
            under_way=frozenset(self._copies),
            avoided=self._present(self._avoided),
            resting=self._present(self._resting),
            left_out=self._present(self._left_out),
            may_copy=len(self._copies) < record.rules.copies,
            steps_max=1,
        )
        if not found.steps:
            return False
        step = found.steps[0]
        await self._record(step, figures)
        if step.action is Action.CARRY:
            self._copies[step.log, step.node] = step, asyncio.create_task(self._copy(step))
            return True
        if step.action is Action.GIVE_UP:
            await self._end_copies([(step.log, step.node)])
        await self._do(step)
        return True

    async def _copy(self, step: Step) -> None:
        try:
            await self._do(step)
        except Exception:  # the balancer is not to try it at once again
            _log.exception("placement: it failed to %s", step.text)
            self._note_failure(step)
        self._copies.pop((step.log, step.node), None)
        self._wake.set()

    async def _end_copies(self, places: Iterable[LogNode]) -> None:
        """They may go on at their nodes."""
        copies = [self._copies.pop(each)[1] for each in places if each in self._copies]
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)

    async def _planned(self, *given: Any, **named: Any) -> Plan:
        """The event loop has its turns meanwhile: a plan for many nodes takes a tenth of a second."""
        return await work.run(lambda: plan(*given, **named))

    async def _do(self, step: Step) -> None:
        begun_s = self._clock.monotonic_s()
        _log.warning("placement: %s, since %s", step.text, step.reason)
        place, failure = (step.log, step.node), None
        try:
            match step.action:
                case Action.CARRY:
                    await self._actions.carry(*place)
                case Action.HAND_OVER:
                    await self._actions.hand_over(*place)
                case Action.GIVE_UP:
                    await self._actions.give_up(*place)
            self._failures.pop(place, None)
            if step.cause is Cause.LOAD:
                self._resting[step.log] = self._clock.monotonic_s() + limits.PLACEMENT_REST_SECONDS
        except Failure as failed:
            failure = failed.message
            self._note_failure(step)
            _log.warning("placement: it failed to %s: %s", step.text, failure)
        taken_s = self._clock.monotonic_s() - begun_s
        self._done.append(DoneStep(step, self._clock.now_s(), taken_s, failure))

    def _note_failure(self, step: Step) -> None:
        place, now_s = (step.log, step.node), self._clock.monotonic_s()
        self._left_out[step.log] = now_s + limits.PLACEMENT_RETRY_SECONDS
        if step.action is Action.GIVE_UP:
            return
        self._failures[place] = self._failures.get(place, 0) + 1
        if self._failures[place] >= _ATTEMPTS:
            self._failures.pop(place)
            self._avoided[place] = now_s + limits.PLACEMENT_GONE_SECONDS

    def _present(self, until: dict[Place, float]) -> set[Place]:
        now_s = self._clock.monotonic_s()
        for each in [each for each, until_s in until.items() if until_s <= now_s]:
            del until[each]
        return set(until)

    async def _pause(self) -> None:
        """Until something has changed here, or for a while."""
        waking = asyncio.ensure_future(self._wake.wait())
        pause = asyncio.ensure_future(self._clock.sleep(limits.PLACEMENT_PAUSE_SECONDS))
        try:
            await asyncio.wait([waking, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waking.cancel()
            pause.cancel()

    # The record.

    async def record(self) -> PlacementRecord:
        return PlacementRecord.unpack(await self._store.kept_setting(SETTING))

    async def change(self, change: Callable[[PlacementRecord], PlacementRecord]) -> PlacementRecord:
        """Store what an operator wants. It is looked at at once."""
        async with self._changing:
            before = await self.record()
            changed = change(before)
            if changed != before:
                await self._store.keep_setting(SETTING, changed.pack())
        self._left_out.clear()
        self._wake.set()
        return changed

    async def _record(self, step: Step, figures: Figures) -> None:
        """Which nodes are to have replicas of a log, when a step is done."""
        log = figures.log(step.log)
        if step.action is Action.HAND_OVER or log is None:
            return
        present = {each.node for each in log.replicas} | {node for number, node in self._copies if number == step.log}
        carrying = present | {step.node} if step.action is Action.CARRY else present - {step.node}
        async with self._changing:
            before = await self.record()
            changed = before.carrying(step.log, tuple(carrying))
            if changed != before:
                await self._store.keep_setting(SETTING, changed.pack())

    # For an operator.

    async def state(self) -> PlacementState:
        record, figures = await self.record(), await self._actions.figures()
        found = await self._planned(
            figures, record, avoided=self._present(self._avoided), resting=self._present(self._resting)
        )
        return PlacementState(
            figures, record, found, tuple(step for step, _ in self._copies.values()), tuple(self._done)
        )
