"""What the operator of a server, or a test of an application, sets for all of its processes at run time: rules of
faults, the movable clock, the points at which splits and merges stop, read-only mode and the level of the log. The
first process is told by the control API and has the others follow before it answers; one that starts asks for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from armillary import limits
from armillary.account.account import Account
from armillary.account.captures.capture_store import CaptureRecord
from armillary.account.events import EventKind
from armillary.account.faults import FaultRule, FaultTarget
from armillary.account.visits.elsewhere.place import LocalPlace, Lost, Question, Told
from armillary.clock import ClockPosition, MovableClock
from armillary.errors import Failure
from armillary.model.keys import PartitionKeyDefinition
from armillary.processes.places import ProcessHere, ask_once, ask_starting

log = logging.getLogger(__name__)


class RuntimeSettings(Protocol):
    """`tools/serving/runtime.py` has it."""

    def shown(self) -> dict[str, Any]: ...
    def follow(self, settings: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class ServerControls:
    rules: list[FaultRule] = field(default_factory=list)
    clock: ClockPosition | None = None  # None: it cannot be moved
    pauses: list[str] = field(default_factory=list)
    runtime: dict[str, Any] = field(default_factory=dict)
    captures: list[CaptureRecord] = field(default_factory=list)  # that run; the first process writes them


class _Controlled(Protocol):
    """The account of a process (`divided_account.py`)."""

    controls: Controls


@dataclass(slots=True)
class AskControls(Question):
    """Of the first process."""

    async def answer(self, here: LocalPlace) -> ServerControls:
        return _controls(here).present()


@dataclass(slots=True)
class UseControls(Question):
    controls: ServerControls

    async def answer(self, here: LocalPlace) -> None:
        await cast(ProcessHere, here).opened.wait()
        _controls(here).use(self.controls)


@dataclass(slots=True)
class FireRule(Question):
    """Of the first process, which counts for all: whether a rule of faults hits a request that it is about."""

    rule_id: int
    container: bytes  # rid

    async def answer(self, here: LocalPlace) -> bool:
        container = here.account.container_by_rid(self.container)
        rule = here.account.faults.rules.get(self.rule_id)
        return container is not None and rule is not None and here.account.faults.fires(rule, container)


@dataclass(slots=True)
class RecordEvent(Told):
    """To the first process, for people who look."""

    kind: str
    text: str
    database: str | None
    container: str | None
    details: dict[str, Any]

    def take(self, here: LocalPlace) -> None:
        kind = cast(EventKind, self.kind)
        here.account.events.record(kind, self.text, self.database, self.container, **self.details)


def _controls(here: LocalPlace) -> Controls:
    return cast(_Controlled, here.account).controls


class Controls:
    """Of one process."""

    def __init__(self, account: Account, here: ProcessHere) -> None:
        self.runtime: RuntimeSettings | None = None
        self._account = account
        self._here = here
        self._spread: object = None  # what the others follow; rules are made and deleted, and never changed
        self._spreading = asyncio.Lock()
        if not account.plans:
            account.faults.decide = self._ask_first
            account.events.forward = self._tell_first

    def present(self) -> ServerControls:
        account = self._account
        return ServerControls(
            list(account.faults.rules.values()),
            account.clock.position if isinstance(account.clock, MovableClock) else None,
            account.reshaper.pauses,
            self.runtime.shown() if self.runtime is not None else {},
            account.captures.running,
        )

    def use(self, controls: ServerControls) -> None:
        account = self._account
        account.faults.follow(controls.rules)
        if controls.clock is not None and isinstance(account.clock, MovableClock):
            account.clock.follow(controls.clock)
        account.reshaper.pause(controls.pauses)
        if self.runtime is not None and controls.runtime:
            self.runtime.follow(controls.runtime)
        if not account.plans:
            account.captures.follow(controls.captures, self._key_of)

    def _key_of(self, rid: bytes) -> PartitionKeyDefinition | None:
        container = self._account.container_by_rid(rid)
        return container.key if container is not None else None

    async def spread(self) -> None:
        """Have the other processes follow what has changed. One that does not is started anew."""
        async with self._spreading:
            present = self.present()
            names = [rule.id for rule in present.rules], [each.id for each in present.captures]
            settings = names, present.clock, present.pauses, present.runtime
            if settings == self._spread:
                return
            await asyncio.gather(*[self._tell(number, present) for number in self._here.places.others])
            self._spread = settings

    async def _tell(self, number: int, controls: ServerControls) -> None:
        try:
            await self._here.places[number].ask_connected(UseControls(controls), limits.ADOPT_SECONDS_MAX)
        except Lost:
            pass  # it has ended
        except (Failure, TimeoutError) as error:
            log.error("process %d does not obey the control API (%r): it is started anew", number, error)
            self._here.end_process(number)

    async def ask(self) -> None:
        """When this process starts."""
        self.use(await ask_starting(self._here.places.first, AskControls(), limits.CATALOG_SECONDS_MAX))

    async def _ask_first(self, rule: FaultRule, container: FaultTarget) -> bool:
        try:
            question = FireRule(rule.id, container.record.rid)
            is_hit: bool = await ask_once(self._here.places.first, question, limits.ADOPT_SECONDS_MAX)
        except Failure:
            return False  # it has ended, and is being started anew
        return is_hit

    def _tell_first(
        self, kind: EventKind, text: str, database: str | None, container: str | None, details: dict[str, Any]
    ) -> None:
        self._here.places.first.tell(RecordEvent(kind, text, database, container, details))
