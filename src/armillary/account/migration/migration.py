"""Moving a live container to another partition key: the items are copied to a new container, every change is followed,
both are compared, and then the new one takes over the name. Applications go on meanwhile; their writes wait for the
milliseconds that the last changes and the renaming take. With a filter, only the items that it chooses get a container
of their own, which keeps its name; `moved_items.py` has how they are taken out of the source.

    copying → following → verifying → following → switched (or caught up, where the plan does not switch)
                                                → removing → moved (with a filter, where the items are to be removed)

Only the mark of the target is stored: after a crash the migration begins again, and finds what was copied. Copying
items is `item_copy.py`'s part, making the new container `target.py`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from armillary import limits
from armillary.account import containers
from armillary.account.account import Account
from armillary.account.catalog.container_state import Body, ContainerState, FormerKey, MigrationTarget, MovedItems
from armillary.account.catalog.records import Record
from armillary.account.changes.feed_positions import Stretch
from armillary.account.collections.event_visits import KeepEvents
from armillary.account.container import Container
from armillary.account.migration import moved_items
from armillary.account.migration.copy_visits import KeepVersions, RaiseLsn
from armillary.account.migration.item_copy import Copier, Sum
from armillary.account.migration.item_filter import chooser
from armillary.account.migration.pinned_partitions import PinnedPartitions
from armillary.account.migration.target import Plan as Plan
from armillary.account.migration.target import alike, definition_of, found, made, refuse_same_key, refuse_table
from armillary.account.security import permissions
from armillary.account.visits.uncounted_visits import at_all, renew_figures
from armillary.errors import Failure, Kind, bad_request
from armillary.model.items import validate_name
from armillary.model.resources import ResourceType
from armillary.partition.held_writers import hold_all

log = logging.getLogger(__name__)

COPYING, FOLLOWING, VERIFYING = "copying", "following", "verifying"
CAUGHT_UP, SWITCHED, FAILED, STOPPED = "caught up", "switched", "failed", "stopped"
REMOVING, MOVED = "removing", "moved"
_ENDED: Final = (CAUGHT_UP, SWITCHED, MOVED, FAILED, STOPPED)
_SHORT_TAIL: Final = 50  # changes that may be left when writers are held
_ROUNDS_MAX: Final = 50  # of following: writers that are faster than the copy are held a little longer in the end
_ATTEMPTS_MAX: Final = 30
_SCRIPTS: Final = (ResourceType.PROCEDURE, ResourceType.TRIGGER, ResourceType.FUNCTION)


class Migration:
    def __init__(
        self, account: Account, source: Container, target: Container, plan: Plan, mark: MigrationTarget
    ) -> None:
        self._account = account
        self._source = source
        self._target = target
        self.plan = plan
        self._adds_policy = mark.adds_policy
        self._like = mark.like  # how the source was defined when the target was made
        self._mark = mark
        chooses = chooser(plan.filter, source.query_context()) if plan.filter is not None else None
        self._copier = Copier(account, source, target, chooses)
        self.source_name = source.name
        self.target_name = target.name
        self.kept_as = plan.keep_as or f"{source.name}-before"
        self.stage = COPYING
        self.total = 0  # items to copy
        self.verified: Sum | None = None
        self.failure: Failure | None = None
        self.held_ms = 0.0  # how long writers waited at most
        self.permissions_left = 0  # that have to be granted anew
        self._task: asyncio.Task[None] | None = None

    @property
    def copied(self) -> int:
        return self._copier.copied

    @property
    def examined(self) -> int:
        return self._copier.examined

    @property
    def removed(self) -> int:
        return self._copier.removed

    @property
    def followed(self) -> int:
        return self._copier.followed

    @property
    def is_ended(self) -> bool:
        return self.stage in _ENDED

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop, and leave both containers as they are."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._move_at_last()
            if self.plan.removes:
                self.stage = MOVED
            elif not self.plan.switches:
                await self.end()
                self.stage = CAUGHT_UP
        except Failure as failure:
            await self._fail(failure)
        except asyncio.CancelledError:
            self.stage = STOPPED
            raise
        except Exception:  # a background task: its status must show the failure, whatever it is
            log.exception("the migration of %s broke", self._source.link)
            await self._fail(Failure(Kind.INTERNAL, "The migration broke. The log has the reason."))

    async def _move_at_last(self) -> None:
        """Begun again while another process of the server is being started: what was copied is found."""
        for attempt in range(_ATTEMPTS_MAX):
            try:
                await self._move()
                return
            except Failure as failure:
                can_wait = self._account.others is not None and failure.kind is Kind.UNAVAILABLE
                if not can_wait or self.stage == SWITCHED or attempt == _ATTEMPTS_MAX - 1:
                    raise
                log.warning("the migration of %s begins again: %s", self._source.link, failure.message)
            await self._account.clock.sleep(limits.MIGRATION_PAUSE_SECONDS)

    async def _fail(self, failure: Failure) -> None:
        self.failure = failure
        log.warning("the migration of %s stopped: %s", self._source.link, failure.message)
        try:
            await self.end()
        except Failure as another:
            log.warning("%s goes on keeping versions: %s", self._source.link, another.message)
        self.stage = FAILED

    async def _move(self) -> None:
        if moved_items.is_handed_over(self._source, self._target):  # before a restart
            await self._take_out()
            return
        async with self._held():
            position: tuple[Stretch, ...] = self._end()
            pinned = await PinnedPartitions.pin(self._account, self._source)
        self.total = sum(each.head.item_count for each in self._source.partitions.values())
        try:
            await renew_figures(self._target)
            is_resumed = any(each.head.item_count for each in self._target.partitions.values())
            if is_resumed:
                await self._copier.reconcile(pinned)
            await self._copier.copy(pinned, is_resumed=is_resumed)
        finally:
            pinned.release()
        position = await self._follow(position)
        position = await self._verify(position)
        position = await self._follow(position)
        if self.plan.switches:
            await self._carry_scripts()
            await self._carry_definition()
            await self._switch(position)
        elif self.plan.filter is not None:
            await self._carry_scripts()
            if self.plan.removes:
                await self._hand_over(position)
                await self._take_out()

    # With a filter.

    async def _hand_over(self, position: tuple[Stretch, ...]) -> None:
        """From here on the items are written in the target alone. The fence of the source is the one record of it: were
        there two, a crash between them would have a later attempt compare the target, which clients write to since,
        with what the source had."""
        assert self.plan.filter is not None
        moved = MovedItems(self.plan.filter, self.target_name, self._target.rid_text)
        async with self._account.control, self._held():
            await self._copier.follow(position)
            await moved_items.fence(self._account, self._source, moved)

    async def _take_out(self) -> None:
        self.stage = REMOVING
        await self.end()  # versions of what is removed are not needed
        pinned = await PinnedPartitions.pin(self._account, self._source)
        try:
            await self._copier.remove(pinned)
        finally:
            pinned.release()
        await self._account.catalog.change_container(
            self._target.record, lambda state, _: replace(state, migration=None)
        )
        source, target = self.source_name, self.target_name
        text = f"{self._copier.removed} items of {source} were moved to {target}."
        self._account.events.record("migrated", text, self._source.database.name, source, target=target)

    # Holding the source's writers.

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """Nothing is written to the source, and all that was is durable."""
        account, rids = self._account, [each.record.rid for each in (self._source, self._target)]
        async with AsyncExitStack() as stilled:
            for container in (self._source, self._target):
                if container.is_retired:
                    raise Failure(Kind.NOT_FOUND, f"The container '{container.name}' was deleted meanwhile.")
                stilled.enter_context(await account.reshaper.hold_still(container))
            if account.others is not None:
                await stilled.enter_async_context(account.others.still(rids))
            begun_s = account.clock.elapsed_s()
            held = [each for each in self._source.partitions.values() if not each.is_elsewhere]
            await hold_all(held)
            try:
                await asyncio.gather(*[partition.store.write(lambda txn: None) for partition in held])
                if account.others is None:
                    yield
                else:
                    async with account.others.held(rids[:1]):
                        yield
            finally:
                for partition in held:
                    if partition.is_held:
                        partition.release()
                self.held_ms = max(self.held_ms, 1000 * (account.clock.elapsed_s() - begun_s))

    def _end(self) -> tuple[Stretch, ...]:
        """Behind everything that was done so far."""
        return tuple([Stretch(each.range.low, each.range.high, each.lsn) for each in self._source.partitions.values()])

    # The stages.

    async def _follow(self, position: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
        self.stage = FOLLOWING
        for _ in range(_ROUNDS_MAX):
            position, count = await self._copier.follow(position)
            if count <= _SHORT_TAIL:
                break
        return position

    async def _verify(self, position: tuple[Stretch, ...]) -> tuple[Stretch, ...]:
        """Compare both as they are at one moment, while clients go on."""
        pinned: list[PinnedPartitions] = []
        try:
            async with self._held():
                position, _ = await self._copier.follow(position)
                for container in (self._source, self._target):
                    pinned.append(await PinnedPartitions.pin(self._account, container))
            self.stage = VERIFYING
            now_s = self._account.clock.now_s()
            wanted = await self._copier.sum(self._source, pinned[0], now_s)
            found = await self._copier.sum(self._target, pinned[1], now_s)
        finally:
            for each in pinned:
                each.release()
        if wanted.items != found.items:
            raise Failure(
                Kind.CONFLICT,
                f"'{self._source.name}' has {wanted.items} items, '{self._target.name}' {found.items}: items that "
                "share an id and the new partition key cannot both be kept, or another client writes to the new one.",
            )
        if wanted.digest != found.digest:
            raise Failure(
                Kind.CONFLICT,
                f"The items of '{self._source.name}' and '{self._target.name}' differ, though there are as many: items "
                "share an id and the new partition key, or another client writes to the new one.",
            )
        self.verified = found
        return position

    async def _carry_scripts(self) -> None:
        catalog = self._account.catalog
        for kind in _SCRIPTS:
            present = {each.name: each for each in catalog.children(kind, self._target.record.rid)}
            for script in catalog.children(kind, self._source.record.rid):
                if script.name not in present:
                    await catalog.create(kind, self._target.record, script.name, dict(script.body))
                elif present[script.name].body != script.body:
                    await catalog.replace(present[script.name], dict(script.body))

    async def _carry_definition(self) -> None:
        """Policies and indexes that were changed since the new container was made after them."""
        from armillary.account.collections import indexes  # only collections have any

        account, source, target = self._account, self._source, self._target
        now = definition_of(source)
        if self._like is None or now == self._like:
            return
        wanted, present = indexes.all_definitions(source), indexes.all_definitions(target)
        await indexes.drop_indexes(account, target, [each["name"] for each in present if each not in wanted])
        await indexes.create_indexes(account, target, [each for each in wanted if each not in present])
        await containers.replace_container(account, target, alike(source, target.record.body, target.key), None)
        await account.restated(target)
        self._like = now

    async def _switch(self, position: tuple[Stretch, ...]) -> None:
        account, source, target = self._account, self._source, self._target
        async with account.control:
            etag, ts = await account.catalog.reserve(lambda reservation: reservation.stamp())
            async with self._held():
                await self._copier.follow(position)
                await self._compare_counts()
                if self._like not in (None, definition_of(source)):
                    raise Failure(Kind.CONFLICT, f"The definition of '{source.name}' was changed at the last moment.")
                # Session tokens of the old container must not be ahead of the new one.
                highest = max(each.lsn for each in source.partitions.values())
                await at_all(target, RaiseLsn(highest))
                old = _renamed(source.record, self.kept_as, etag, ts)
                if self._adds_policy:
                    old.body.pop("changeFeedPolicy", None)
                new = _renamed(target.record, self.source_name, etag, ts)
                former_key = FormerKey(source.record.body.get("partitionKey"))
                state = target.state
                state = replace(state, migration=None, former_key=former_key, former_rid=source.record.rid.hex())
                state = replace(state, moved=source.state.moved)
                granted = permissions.moved_permissions(account, source.record, target.record, self.kept_as)
                self.permissions_left = granted.left
                changed = [replace(each, etag=etag, ts=ts) for each in granted.changed]
                removed = [source.record, target.record, *granted.present]
                try:
                    new.state = (await self._begin_keeping(new.body, state)).to_json()
                    await account.catalog.rewrite(removed, [old, new, *changed])
                except Failure:
                    target.adopt(target.record)  # a later attempt is to keep nothing of what it copies
                    raise
                target.adopt(new)
                account.forget_names()
                # Requests that have found the old container go to the new one: their clients read the name again.
                source.retire(moved(self.source_name))
                source.record = old
                self.stage = SWITCHED
            text = f"The container {self.source_name} has another partition key; the former one is {self.kept_as}."
            account.events.record("migrated", text, source.database.name, self.source_name, keptAs=self.kept_as)
            await account.renew(source)

    async def _begin_keeping(self, body: Body, state: ContainerState) -> ContainerState:
        """Have the target keep events and versions as the source does, from the switch on, and take over the answers of
        retryable writes. Returns the target's state."""
        source, target = self._source, self._target
        await self._copier.carry_records()
        if source.schema.keeps_events:
            state = replace(state, is_watched=True)
            target.schema.keeps_events = True
            await at_all(target, KeepEvents())
        if not self._adds_policy and "changeFeedPolicy" not in target.record.body:
            body["changeFeedPolicy"] = source.record.body["changeFeedPolicy"]
            state = replace(state, versions_number=state.versions_number + 1)
            target.schema.versions_number = state.versions_number
            target.schema.versions_seconds = source.schema.versions_seconds
            await target.keep_versions()
        return state

    async def _compare_counts(self) -> None:
        """Compare the numbers of items again. With a TTL they may differ, as each container sweeps at its own time."""
        await renew_figures(self._target)
        counts = [sum(each.head.item_count for each in one.partitions.values()) for one in (self._source, self._target)]
        if counts[0] != counts[1] and self._source.schema.rules.default_ttl is None:
            raise Failure(
                Kind.CONFLICT, f"'{self._source.name}' has {counts[0]} items now, '{self._target.name}' {counts[1]}."
            )

    async def end(self) -> None:
        """Of a migration that did not switch: the source is as it was before."""
        is_added = self._adds_policy and "changeFeedPolicy" in self._source.record.body
        if is_added and self.stage != SWITCHED and not self._source.is_retired:
            body = {name: value for name, value in self._source.record.body.items() if name != "changeFeedPolicy"}
            await containers.replace_container(self._account, self._source, body, None)


class _Beginning:
    """Placeholder of a migration that is about to begin."""

    async def stop(self) -> None:
        """There is nothing to stop yet."""


async def begin(account: Account, source: Container, plan: Plan) -> Migration:
    """Make the new container, unless an earlier attempt has, and have all versions of the source's items kept."""
    account.catalog.check_changeable()
    names = source.database.name, source.name
    running = account.migrations.get(names)
    if running is not None and not (isinstance(running, Migration) and running.is_ended):
        if isinstance(running, Migration) and running.plan == plan:
            return running  # the client was disconnected, and asks again
        raise Failure(Kind.CONFLICT, f"'{source.name}' is being migrated already, in another way.")
    account.migrations[names] = _Beginning()
    try:
        migration = account.migrations[names] = await _begin(account, source, plan)
    except BaseException:
        del account.migrations[names]
        raise
    migration.start()
    return migration


async def _begin(account: Account, source: Container, plan: Plan) -> Migration:
    kept_as = validate_name(plan.keep_as or f"{source.name}-before")
    names = [each.name for each in account.catalog.children(ResourceType.CONTAINER, source.database.rid)]
    refuse_table(source)
    if plan.filter is not None:
        chooser(plan.filter, source.query_context())  # before anything is made
        moved_items.check_room(source, plan.filter)
    elif plan.target not in names:
        refuse_same_key(source, plan)
    if plan.switches and kept_as in names:
        raise Failure(
            Kind.CONFLICT,
            f"There is a container '{kept_as}' already. Give the old one another name with 'keepAs' (--keep-as).",
        )
    if plan.target in (source.name, kept_as):
        raise bad_request("The new container needs a name of its own until it takes over.")
    is_new = plan.target not in names
    like = definition_of(source) if is_new and plan.filter is None else None
    if not is_new:
        await renew_figures(account.container(source.database.name, plan.target))
    target = await made(account, source, plan) if is_new else found(account, source, plan)
    mark = target.state.migration
    if mark is None:
        adds_policy = "changeFeedPolicy" not in source.record.body
        own = mark = MigrationTarget(source.rid_text, adds_policy, like, plan.filter)
        await account.catalog.change_container(target.record, lambda state, _: replace(state, migration=own))
    is_handed_over = moved_items.is_handed_over(source, target)
    moved_items.check_mark(mark, plan, is_handed_over=is_handed_over)
    if is_handed_over:
        return Migration(account, source, target, plan, mark)
    if "changeFeedPolicy" not in source.record.body:
        policy = {"retentionDuration": limits.MIGRATION_VERSION_MINUTES}
        await containers.replace_container(account, source, {**source.record.body, "changeFeedPolicy": policy}, None)
    await _begun(source)
    return Migration(account, source, target, plan, mark)


async def _begun(source: Container) -> None:
    """Wait until every partition keeps versions."""
    while True:
        kept = await at_all(source, KeepVersions())
        if all(each.number == source.schema.versions_number for each in kept):
            return


def _renamed(record: Record, name: str, etag: str, ts: int) -> Record:
    return replace(record, name=name, body={**record.body, "id": name}, etag=etag, ts=ts)


def moved(name: str) -> Failure:
    """For requests that have found the container before it was."""
    return Failure(
        Kind.STALE_CONTAINER,
        f"The container '{name}' has been moved to another partition key meanwhile. Read it again, and try again.",
    )
