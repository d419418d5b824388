"""The account in one of several processes that serve it together: partitions whose stores this process has are its own,
the others are asked by messages. The catalog is a replica (`catalog_replica.py`); what other processes change in it is
taken over here, in the open containers too.

The first process decides about splits, merges and changes of policy; each does the work on its own partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.allocation import place_of_store
from armillary.account.catalog.catalog import SECRET, Guard
from armillary.account.catalog.records import Record
from armillary.account.container import Container
from armillary.account.migration.migration import moved
from armillary.account.registry import AccountSettings
from armillary.account.upkeep_rounds import Rounds
from armillary.account.visits.elsewhere.partition_elsewhere import PartitionElsewhere
from armillary.clock import Clock
from armillary.errors import Failure
from armillary.model.ranges import KeyRange, PartitionMap
from armillary.model.resources import ResourceType, rid_bytes
from armillary.partition.partition import Partition
from armillary.partition.told_meter import ToldMeter
from armillary.processes.capture_shares import SharesOfOthers
from armillary.processes.catalog_owner import FIRST
from armillary.processes.divided_engine import DividedEngine, Leads, held_elsewhere
from armillary.processes.divided_reshaper import DividedReshaper
from armillary.processes.held.held_places import HeldPlaces
from armillary.processes.held.led_partitions import LedPartition
from armillary.processes.moments.others import NoOthers
from armillary.processes.partition_questions import RestatePartition
from armillary.processes.places import ProcessHere, ask_once
from armillary.processes.server_controls import Controls
from armillary.processes.told_figures import FiguresOfOthers
from armillary.processes.told_spending import SpendingOfOthers
from armillary.processes.transactions.spanning import NoSpanning, SpanningHere
from armillary.storage.engine import Engine

log = logging.getLogger(__name__)


class DividedAccount(Account):
    def __init__(self, engine: DividedEngine, clock: Clock, settings: AccountSettings, here: ProcessHere) -> None:
        self._plans = FIRST in engine.held
        super().__init__(engine, clock, settings)
        self.here = here
        self.held = engine.held  # places
        self._held_places = HeldPlaces(self, self, engine, here)
        self._leads = engine.leads
        self.place = here.number
        self.other_places = here.places.others
        self.stand_ins = self._stand_in
        here.transactions = self.transactions = SpanningHere(self, here)
        self._is_fixed = here.number in engine.held and not engine.leads  # it holds one place for good
        self.spanning = self.transactions if self._is_fixed else NoSpanning()
        if not self._is_fixed:
            self.others = NoOthers()
        self.reshaper = self.divided_reshaper = DividedReshaper(self, self.budgets, here.places)
        self.rounds = Rounds(self, self.reshaper)
        self._figures = FiguresOfOthers(self, here, self.divided_reshaper, takes_rows=self.plans)
        self.controls = Controls(self, here)
        self.spending = SpendingOfOthers(self, here)
        if self.plans:
            self.captures.shares = lambda: SharesOfOthers(here.places.others)
            self.history.refresh = self.refresh_figures
        else:
            self.history.leave_to_first()
        self._restating_parts: dict[tuple[bytes, int], asyncio.Task[None]] = {}  # by container and range
        self.control = here.lock("control")
        self.catalog.lock = here.lock("catalog")
        if not self.plans:
            self.catalog.on_setting[SECRET] = self._adopt_secret

    async def begin(self) -> None:
        if self.plans:
            await super().begin()
            if self._is_fixed:
                await self.transactions.open()
            self.spending.begin()
            return
        await self.catalog.load()
        self._adopt_secret(await self.catalog.kept_setting(SECRET))
        await self.database_users.open()
        await self.history.open()
        for record in self.catalog.of_type(ResourceType.CONTAINER):
            await self.enter(record)
        for offer in self.catalog.of_type(ResourceType.OFFER):
            self.budgets.assign_offer(offer)
        if self._is_fixed:
            await self.transactions.open()
        self.spending.begin()
        self._begin_upkeep()
        self.begin_history()

    async def close(self, reason: Failure | None = None) -> None:
        await self._held_places.close()
        await self.spending.close()
        await self.transactions.close()
        await super().close(reason)

    @property
    def plans(self) -> bool:
        return self._plans

    @property
    def place_count(self) -> int:
        return self.here.places.count

    def reaches(self, place: int) -> bool:
        return place in self.held or place < self.here.places.count

    def holds(self, store: int) -> bool:
        return place_of_store(store) in self.held

    def place_guard(self, store: int) -> Guard | None:
        return self._held_places.guard(store)

    # Places whose holders change.

    async def enter_place(self, place: int, engine: Engine, leads: Leads) -> None:
        """Hold a place, which no other process holds any more: its partitions serve when this returns. `leads`: whether
        that is still so. If it fails, the place is not held."""
        await self._held_places.enter(place, engine, leads)

    async def leave_place(self, place: int) -> None:
        """Do not hold a place any more. Requests to it that come, or have done nothing yet, are asked of its next
        holder; what its engine has accepted is answered."""
        self._held_places.leave(place)

    async def entered(self, container: Container) -> None:
        """This process has come to hold partitions of a container."""
        await container.keep_versions()
        self.reshaper.enter(container)
        self.budgets.assign(container)

    def left(self, container: Container, range_ids: Collection[int]) -> None:
        """Other processes hold these partitions of a container."""
        self.rounds.forget(container, range_ids)
        for range_id in range_ids:
            task = self._restating_parts.pop((container.record.rid, range_id), None)
            if task is not None:
                task.cancel()
        self.divided_reshaper.follow(container)
        self.budgets.assign(container)

    def _serve(self, container: Container) -> None:
        super()._serve(container)
        self._held_places.match(container)

    def _adopt_secret(self, stored: bytes | None) -> None:
        assert stored is not None, "the first process makes it before it starts others"
        self.secret = stored

    def _stand_in(self, container: Container, key_range: KeyRange) -> Partition | None:
        place = place_of_store(key_range.store)
        if place in self.held:
            return self.led_partition(container, key_range) if place in self._leads else None
        return self.stand_in(container, key_range)

    def stand_in(self, container: Container, key_range: KeyRange) -> PartitionElsewhere:
        range_id = key_range.id
        return PartitionElsewhere(
            self.here.places[place_of_store(key_range.store)],
            container.record.rid,
            key_range,
            self.clock,
            lambda: container.partitions.get(range_id),
            container.state.first_lsn,
        )

    def led_partition(self, container: Container, key_range: KeyRange) -> LedPartition:
        store, leads = self.engine.store(key_range.store), self._leads[place_of_store(key_range.store)]
        return LedPartition(store, container.schema, key_range, self.clock, container.state.first_lsn, leads)

    async def refresh_figures(self, key_count: int = 0) -> None:
        await self._figures.refresh(key_count)

    async def spread_controls(self) -> None:
        await self.controls.spread()

    def switching_lock(self, container: Container) -> AbstractAsyncContextManager[object, None]:
        return self.here.lock(f"switch {container.rid_text}")

    # Changes of the catalog that other processes have made.

    async def adopt_records(self, removed: Sequence[Record], added: Sequence[Record]) -> int:
        """Take over records in the open containers. Returns the highest lsn of the containers that left."""
        here = {(record.type, record.rid) for record in added}
        gone = [record for record in removed if (record.type, record.rid) not in here]
        leaving = [self.container_by_rid(each.rid) for each in gone if each.type is ResourceType.CONTAINER]
        self.leave(gone)
        replaced = self._replaced_by(added)
        for record in added:
            if record.type is ResourceType.DATABASE:
                for container in self.containers:
                    if container.record.owner == record.rid:
                        container.adopt_database(record)
            elif record.type is ResourceType.CONTAINER:
                present = self.container_by_rid(record.rid)
                if present is not None:
                    await self._adopt_container(present, record)
                else:
                    await self._open_container(record)
        for record in (*removed, *added):
            if record.type is ResourceType.OFFER:
                self._adopt_offer(record)
        self.forget_names()
        for container, name in replaced:
            container.retire(moved(name))
            self.transactions.run(self._renew_later(container))
        return max([each.reached_lsn for each in leaving if each is not None], default=0)

    def _replaced_by(self, added: Sequence[Record]) -> list[tuple[Container, str]]:
        """The containers whose names are taken over by those that they were migrated to, with these names."""
        found = []
        for record in added:
            former = record.container_state.former_rid if record.type is ResourceType.CONTAINER else None
            container = self.container_by_rid(bytes.fromhex(former)) if former else None
            if container is not None and (container.database.rid, container.name) == (record.owner, record.name):
                found.append((container, record.name))
        return found

    async def _renew_later(self, container: Container) -> None:
        """Requests that other processes have sent before they knew of the new container still name this one: until all
        of them have arrived, writes are refused."""
        await self.clock.sleep(limits.LINK_WAIT_SECONDS_MAX + limits.HOLD_ANSWER_SECONDS)
        if self.container_by_rid(container.record.rid) is container:
            await self.renew(container)

    async def _open_container(self, record: Record) -> None:
        container = self._made(record)
        try:
            await container.open()
        except Failure as failure:
            log.warning("the container %s cannot be opened yet: %s", record.name, failure.message)
            self._unopened[record.rid] = record
            return
        await container.keep_versions()
        self.take_in(container)

    async def _adopt_container(self, container: Container, record: Record) -> None:
        rules_number, versions_number = container.schema.rules.number, container.schema.versions_number
        container.adopt(record)
        state = record.container_state
        if state.ranges != container.map.ranges:
            new_map = PartitionMap(state.ranges)
            children = [container.new_partition(each) for each in new_map.ranges if each.id not in container.partitions]
            children = [await self._held_places.opened(container, each) for each in children]
            parents = [each for each in container.partitions.values() if new_map.get(each.range.id) is None]
            container.take_over(new_map, children)
            self._held_places.match(container)
            own = [each for each in parents if not each.is_elsewhere]
            for parent in own:
                if not parent.is_held:
                    parent.hold()
                parent.move()
            if not self.plans:
                self._forget_told(container)
            self.reshaper.adopted(container, own)
        self.divided_reshaper.follow(container)
        self.budgets.assign(container)
        if container.schema.versions_number != versions_number:
            await container.keep_versions()
        if self.plans:
            if container.schema.rules.number != rules_number:
                self.restate(container)
            self.reshaper.consider(container)

    def _forget_told(self, container: Container) -> None:
        """The first process keeps what others have counted in partitions that are gone."""
        for meter in [each for each in container.left_meters if isinstance(each, ToldMeter)]:
            container.forget(meter)

    def _adopt_offer(self, offer: Record) -> None:
        owner_rid = rid_bytes(offer.offer_state.owner)
        for container in self.containers:
            if owner_rid in (container.record.rid, container.record.owner):
                self.budgets.assign(container)

    async def collect_garbage(self) -> None:
        """Stores of processes that were not there when they were given up."""
        try:
            await self.catalog.collect_garbage()
        except Failure as failure:
            log.warning("the space of deleted containers is not freed yet: %s", failure.message)

    # Changes of policy: the first process has each carry them through its own partitions.

    def restate(self, container: Container) -> None:
        if self.plans:
            super().restate(container)

    async def restated(self, container: Container) -> None:
        if self.plans:
            await super().restated(container)
            return
        while container.is_restating and not container.is_retired:
            await self.clock.sleep(limits.RESHAPE_POLL_SECONDS)

    async def restate_partition(self, container: Container, partition: Partition) -> None:
        if not isinstance(partition, PartitionElsewhere):
            await super().restate_partition(container, partition)
            return
        question = RestatePartition(container.record.rid, partition.range.id, container.schema.rules.number)
        while not partition.is_moved and not await ask_once(partition.place, question, limits.VISIT_SECONDS_MAX):
            pass
        present = container.partitions.get(partition.range.id)
        if present is not None and present is not partition:
            await self.restate_partition(container, present)

    async def restate_part(self, container: Container, range_id: int, rules_number: int, wait_s: float) -> bool:
        """The first process asks for it. Whether it is done after the given time; it goes on otherwise."""
        ends_s = self.clock.elapsed_s() + wait_s
        # The first process has the new rules before the process that has changed them: until this one has them, too, it
        # writes items by the former ones.
        while container.schema.rules.number < rules_number:
            if self.clock.elapsed_s() >= ends_s:
                return False
            await self.clock.sleep(limits.RESHAPE_POLL_SECONDS)
        partition = container.partitions.get(range_id)
        if partition is None:
            return True
        if partition.is_elsewhere:
            raise held_elsewhere()
        part = container.record.rid, range_id
        task = self._restating_parts.get(part)
        if task is None:
            task = asyncio.create_task(super().restate_partition(container, partition))
            self._restating_parts[part] = task
        done, _ = await asyncio.wait({task}, timeout=max(0.0, ends_s - self.clock.elapsed_s()))
        if not done:
            return False
        if self._restating_parts.get(part) is task:
            del self._restating_parts[part]
        task.result()
        # It ends early if the rules are changed again meanwhile, and may have been begun for former ones.
        return await partition.rules_number() >= rules_number
