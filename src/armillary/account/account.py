"""The account: one object that opens containers and runs their upkeep in the background. All doors share it.

Doors ask it for a database or container, which `registry.py` finds, and call the functions of this package with it:
`account/items/items.py` for items, `account/queries/item_pages.py` for pages of items and queries, `containers.py`,
`account/security/permissions.py`, `account/items/procedures.py` and `account/throughput/offers.py` for the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from armillary import limits
from armillary.account.captures.captures import Captures
from armillary.account.catalog.allocation import NewStore, place_of_store
from armillary.account.catalog.catalog import SECRET
from armillary.account.catalog.container_rules import new_rules
from armillary.account.catalog.container_state import ContainerState, stored_change
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.faults import FaultRule, Faults, FaultTarget
from armillary.account.load_history.recorder import LoadHistory
from armillary.account.registry import AccountSettings, Registry, missing
from armillary.account.reshaping.split_planner import Reshaper
from armillary.account.security.database_users import DatabaseUsers
from armillary.account.snapshots.snapshots import Snapshots
from armillary.account.throughput.budgets import Budgets
from armillary.account.upkeep_rounds import Rounds
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.model.resources import ResourceType
from armillary.partition.partition import Partition
from armillary.partition.upkeep import rules_change
from armillary.scripts.functions import FunctionProcesses
from armillary.scripts.jail import Jail
from armillary.scripts.run import ScriptQueue
from armillary.storage.engine import Engine

log = logging.getLogger(__name__)

_PROFILE = "profile"  # the setting of the catalog that names the profile under which it was last opened


class Stoppable(Protocol):
    async def stop(self) -> None: ...


class Account(Registry):
    def __init__(self, engine: Engine, clock: Clock, settings: AccountSettings) -> None:
        super().__init__(engine, clock, settings)
        # Held while the definition of a container or an offer changes.
        self.control: AbstractAsyncContextManager[object, None] = asyncio.Lock()
        self.faults = Faults(clock, self._arm_faults)
        self.faults.on_hit = self._note_fault
        self.captures = Captures(clock, self.events, settings.captures_path)
        self.captures.on_changed = self._captures_changed
        self.history = LoadHistory(clock, settings.history_memory_bytes, settings.history_path)
        self.budgets = Budgets(self, self.history)
        self.reshaper = Reshaper(self, self.budgets)
        self.snapshots = Snapshots(self)
        self.migrations: dict[tuple[str, str], Stoppable] = {}  # by the names of what is moved, as it was found
        self.jail = Jail(settings.script_confinement)  # where scripts run; nothing runs there until one does
        self.script_queue = ScriptQueue()
        self.function_processes = FunctionProcesses(settings.script_confinement)  # the same for functions of queries
        self.database_users = DatabaseUsers(self.catalog)  # of the MongoDB door
        self.secret = b""  # signs continuation and resource tokens; made once per data directory
        self._unopened: dict[bytes, Record] = {}  # containers that could not be opened yet, by rid
        self._upkeep: list[asyncio.Task[None]] = []
        self._restating: dict[bytes, asyncio.Task[None]] = {}
        self.rounds = Rounds(self, self.reshaper)  # of upkeep
        self.catalog.lsn_of = self._lsn_of

    @classmethod
    async def open(cls, engine: Engine, clock: Clock, settings: AccountSettings | None = None) -> Account:
        account = cls(engine, clock, settings or AccountSettings())
        await account.begin()
        return account

    async def begin(self) -> None:
        """Read what is stored, serve it, and begin background work."""
        clock = self.clock
        await self.catalog.open()
        self.secret = await self.catalog.setting(SECRET, lambda: clock.random_bytes(32))
        await self.database_users.open()
        self._check_capacity()
        self._check_places()
        await self._note_profile()
        await self.history.open()
        await self.captures.open(lambda rid: self.catalog.get(ResourceType.CONTAINER, rid) is not None)
        for record in self.catalog.of_type(ResourceType.CONTAINER):
            await self.enter(record)
        for offer in self.catalog.of_type(ResourceType.OFFER):
            self.budgets.assign_offer(offer)
            try:
                await self.budgets.make_room(offer, self.reshaper)
            except Failure as failure:  # on a full disk, reads and deletes must go on
                log.warning(
                    "the partitions that the throughput of %s needs cannot be made: %s",
                    offer.body["resource"],
                    failure.message,
                )
        self._begin_upkeep()
        self.begin_history()

    def _begin_upkeep(self) -> None:
        self._upkeep = [asyncio.create_task(each) for each in (self._keep_up(), self._keep_partitions_up())]
        for task in self._upkeep:
            task.add_done_callback(_report)

    async def close(self, reason: Failure | None = None) -> None:
        """Stop background work. The caller closes the engine, or opens the account anew on it, in another role: then
        `reason` is what requests and cursors get that still hold objects of this one."""
        for migration in self.migrations.values():
            await migration.stop()
        tasks = [*self._upkeep, *self._restating.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.history.close()
        await self.captures.close()
        self.snapshots.close()
        await self.reshaper.close()
        await self.catalog.close()  # last: what was cancelled in the middle of a change has left it there
        await self.jail.close()
        self.function_processes.leave()
        if reason is not None:
            for container in self.containers:
                container.end(reason)

    def _note_fault(self, rule: FaultRule, container: FaultTarget) -> None:
        names = (container.database.name, container.name)
        self.events.record_again(
            ("fault", rule.id),
            limits.EVENT_AGAIN_SECONDS,
            "fault-hit",
            lambda: f"Fault rule {rule.id} hit a request to {'/'.join(names)}, its hit number {rule.hits}.",
            *names,
            rule=rule.id,
            hits=rule.hits,
        )

    def _check_capacity(self) -> None:
        """A data directory is of an account with provisioned throughput or of a serverless one: what its containers may
        spend would otherwise change unseen."""
        has_offers = bool(self.catalog.of_type(ResourceType.OFFER))
        if has_offers and self.settings.is_serverless:
            raise bad_request(
                "There is provisioned throughput in this data directory: it cannot be served as a serverless account."
            )
        if not has_offers and not self.settings.is_serverless and self.catalog.of_type(ResourceType.CONTAINER):
            raise bad_request(
                "This data directory is of a serverless account: nothing is provisioned for its containers. Serve it "
                "with --serverless."
            )

    def _check_places(self) -> None:
        """Partitions that cannot be reached would seem to be empty."""
        for record in self.catalog.of_type(ResourceType.CONTAINER):
            for store in record.stores:
                if not self.reaches(place_of_store(store)):
                    raise Failure(
                        Kind.CORRUPT,
                        f"Process {place_of_store(store)} holds a partition of the container '{record.name}', and its "
                        "data is not there. Restore the whole data directory, with all in its folder 'processes'.",
                    )

    def places_for(self, database: Record, count: int, planned: Sequence[int] = ()) -> Sequence[int]:
        """The processes that hold the partitions of a new container, in the order of their keys: in turns, from the
        process with the fewest on. Containers that share the throughput of a database have theirs in the same
        processes: what one of them spends is then known where the others spend. `planned`: of partitions that are about
        to be made."""
        loads = Counter(dict.fromkeys(range(self.place_count), 0))
        loads.update(planned)
        for container in self.containers:
            places = [place_of_store(each.store) for each in container.map.ranges]
            is_sharing = container.database.rid == database.rid and self.budgets.offer_of(container.record) is None
            if is_sharing and len(places) == count and self.budgets.offer_of(database) is not None:
                return places
            loads.update(places)
        first = min(loads, key=lambda place: (loads[place], place))
        return [(first + turn) % len(loads) for turn in range(count)]

    async def _note_profile(self) -> None:
        """Say when a data directory comes under another profile. Nothing that is stored depends on it."""
        profile = self.settings.profile
        before = await self.catalog.kept_setting(_PROFILE)
        former = before.decode() if before is not None else AccountSettings().profile
        if former == profile:
            return
        if before is not None or self.catalog.of_type(ResourceType.CONTAINER):
            log.warning(
                "the data directory was under the profile %s and comes under %s: containers keep the throughput and "
                "the partitions that they have; what is created, changed or written from now on is held to %s",
                *(former, profile, profile),
            )
        await self.catalog.keep_setting(_PROFILE, profile.encode())

    # Open containers.

    async def enter(self, record: Record) -> Container:
        """Open a container and serve it."""
        container = await self.opened(record)
        if self.catalog.get(ResourceType.CONTAINER, record.rid) is None:
            raise missing(ResourceType.CONTAINER, record.name)  # deleted meanwhile
        return self.take_in(container)

    async def opened(self, record: Record) -> Container:
        """A container that requests do not find yet. If storage fails, upkeep opens it later."""
        container = self._made(record)
        try:
            await container.open()
        except Failure:
            self._unopened[record.rid] = record
            raise
        await container.keep_versions()
        return container

    def _made(self, record: Record) -> Container:
        database = self.catalog.get(ResourceType.DATABASE, record.owner)
        if database is None:
            raise missing(ResourceType.CONTAINER, record.name)  # deleted meanwhile, with its database
        # A logical partition cannot be larger than the physical partition that stores it.
        maximum = min(self.settings.logical_partition_bytes_max, self.settings.partition_storage_bytes)
        if "partitionKey" not in record.body:
            maximum = min(maximum, limits.FIXED_CONTAINER_BYTES_MAX)
        return Container(record, database, self.engine, self.clock, maximum, self.stand_ins)

    def _serve(self, container: Container) -> None:
        """Have requests find a container."""
        self._unopened.pop(container.record.rid, None)
        self._containers[container.record.rid] = container
        self.budgets.assign(container)
        self._observe(container)
        container.events = self.events

    def take_in(self, container: Container) -> Container:
        self._serve(container)
        if container.is_restating:
            self.restate(container)
        self.reshaper.enter(container)
        return container

    async def renew(self, container: Container) -> Container:
        """Open a container again after its record was exchanged. The former object must have been retired."""
        self.reshaper.leave(container)
        self.rounds.leave(container.record.rid)
        running = self._restating.pop(container.record.rid, None)
        if running is not None:
            running.cancel()
        self.by_names.clear()
        return await self.enter(container.record)

    def leave(self, doomed: list[Record]) -> None:
        """Forget containers that the catalog no longer has."""
        self.by_names.clear()
        for record in doomed:
            self._unopened.pop(record.rid, None)
            container = self._containers.pop(record.rid, None)
            if container is not None:
                container.retire()
                self.reshaper.leave(container)
                self.catalog.left_lsn = max(self.catalog.left_lsn, container.reached_lsn)
                self.rounds.leave(record.rid)
                self.history.leave(record.rid)
                self.captures.leave(record.rid)
            task = self._restating.pop(record.rid, None)
            if task is not None:
                task.cancel()
        self.budgets.leave(doomed)

    def note_details(self, is_wanted: bool) -> None:
        """Note what each request did, for logs and traces, or stop that."""
        if self.captures.note_details(is_wanted):
            self._arm_faults()

    def _arm_faults(self) -> None:
        for container in self.containers:
            self._observe(container)

    def _observe(self, container: Container) -> None:
        container.observe(self.faults.armed, self.captures.recording_of(container.record.rid))

    def _captures_changed(self, rid: bytes) -> None:
        container = self.container_by_rid(rid)
        if container is not None:
            self._observe(container)

    @property
    def highest_lsn(self) -> int:
        """New containers start counting here: a session token that a client kept from an earlier container of the
        same name, or from another one, must not look as if it were ahead of the new one; nor one of a write that is
        still under way."""
        return max([self.catalog.left_lsn, *[container.reached_lsn for container in self.containers]])

    def _lsn_of(self, record: Record) -> int:
        container = self.container_by_rid(record.rid)
        return container.reached_lsn if container is not None else 0

    # Background work.

    def begin_history(self) -> None:
        catalog = self.catalog
        self.history.start(lambda: self.containers, lambda rid: catalog.get(ResourceType.CONTAINER, rid) is not None)

    def restate(self, container: Container) -> None:
        """Carry a change of policy through the stored items, in the background."""
        running = self._restating.pop(container.record.rid, None)
        if running is not None:
            running.cancel()
        task = self._restating[container.record.rid] = asyncio.create_task(self._restate(container))
        task.add_done_callback(_report)

    def settle_rules(self, container: Container) -> None:
        """After a restore: resume the change of policy that the record says, and forget what upkeep knew of former
        partitions."""
        rid = container.record.rid
        running = self._restating.pop(rid, None)
        if running is not None:
            running.cancel()
        self.rounds.leave(rid, but=container.partitions)
        if container.is_restating:
            self.restate(container)

    async def _restate(self, container: Container) -> None:
        while True:
            try:
                await self._restate_once(container)
                return
            except Failure as failure:
                if "index" in failure.details:
                    await self._give_up(container, failure)
                    continue
                # A full disk or the like. Until all items follow the new rules queries scan, so nothing is wrong.
                log.warning("the change of policy of %s waits: %s", container.link, failure.message)
                await self.clock.sleep(limits.SWEEP_EVERY_S)

    async def restated(self, container: Container) -> None:
        """Wait until a change of policy has reached all items."""
        while (task := self._restating.get(container.record.rid)) is not None and not task.done():
            await asyncio.wait([task])

    async def _give_up(self, container: Container, failure: Failure) -> None:
        """Documents violate a new unique index: remove the index again."""
        name = failure.details["index"]
        async with self.control:
            record = container.record
            container.failed_builds[name] = failure
            kept = tuple([index for index in container.state.indexes if index.name != name])
            if len(kept) == len(container.state.indexes):
                return
            await self.catalog.replace(
                record,
                record.body,
                state=stored_change(lambda state: replace(new_rules(state, record.body), indexes=kept)),
                on_replaced=container.adopt,
            )

    async def _restate_once(self, container: Container) -> None:
        rules_number = container.schema.rules.number
        for partition in container.partitions.values():
            await self.restate_partition(container, partition)
        async with self.control:
            # The lock keeps the container from being replaced now. If it was replaced before, the new rules have a task
            # of their own.
            if container.schema.rules.number == rules_number:

                def forget() -> None:
                    container.schema.older_rules = {}

                await self.catalog.change_container(container.record, _without_older_rules, on_changed=forget)

    async def restate_partition(self, container: Container, partition: Partition) -> None:
        """Carry a change of policy through the items of one partition."""
        if await partition.rules_number() != container.schema.rules.number:
            # Readers see what is durable. Once a transaction of ours is, so is everything that ran before it, under the
            # older rules.
            await partition.settle()
            await rules_change.apply_rules(partition, container.schema)

    async def _keep_up(self) -> None:
        while True:
            await self.clock.sleep(limits.SWEEP_EVERY_S)
            await self._open_the_rest()
            try:
                await self.reshaper.keep_up()
                await self.budgets.keep_up(self.reshaper)
            except Failure as failure:
                log.warning("upkeep of partitions stopped: %s", failure.message)

    async def _keep_partitions_up(self) -> None:
        while True:
            await self.clock.sleep(limits.SWEEP_EVERY_S)
            await self.rounds.keep_up()

    async def _open_the_rest(self) -> None:
        """Of the containers whose records are stored."""
        for record in list(self._unopened.values()):
            try:
                await self.enter(self.catalog.get(ResourceType.CONTAINER, record.rid) or record)
            except Failure as failure:
                if failure.kind is Kind.NOT_FOUND:
                    self._unopened.pop(record.rid, None)
                else:
                    log.warning("the container %s cannot be opened: %s", record.name, failure.message)


def _without_older_rules(state: ContainerState, _: NewStore) -> ContainerState:
    return replace(state, older_rules={})


def _report(task: asyncio.Task[None]) -> None:
    """Log the failure of a background task: no request waits for it."""
    if not task.cancelled() and task.exception() is not None:
        log.error("background work ended", exc_info=task.exception())
