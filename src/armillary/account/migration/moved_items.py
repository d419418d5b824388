"""Items that were moved to a container of their own: the fence that refuses to write them in the container that they
left, and lifting it. The fence is stored with that container, so it holds after a restart, in splits and in a cluster.
"""

from __future__ import annotations

from dataclasses import replace

from armillary import limits
from armillary.account.account import Account
from armillary.account.catalog.container_state import ContainerState, MigrationTarget, MovedItems
from armillary.account.container import Container
from armillary.account.migration.target import Plan
from armillary.errors import Failure, Kind, bad_request
from armillary.model.resources import ResourceType


def check_room(source: Container, wanted: str) -> None:
    """Refuse one filter too many: each write is compared with all of them."""
    present = {each.filter for each in source.state.moved}
    if wanted not in present and len(present) >= limits.MOVED_FILTERS_MAX:
        raise bad_request(
            f"Items were moved out of '{source.name}' by {len(present)} filters already. Lift the fences of those that "
            "are no longer written here (armillary migrate … --lift-fence)."
        )


def is_handed_over(source: Container, target: Container) -> bool:
    """Whether items are written in the target alone since an earlier attempt. The target has all of them, the source
    perhaps a part."""
    return any(each.target_rid == target.rid_text for each in source.state.moved)


def check_mark(mark: MigrationTarget, plan: Plan, *, is_handed_over: bool) -> None:
    """Refuse to go on with a migration in another way than it was begun."""
    if mark.filter != plan.filter:
        begun = f"the filter {mark.filter!r}" if mark.filter is not None else "no filter"
        raise Failure(Kind.CONFLICT, f"The container '{plan.target}' was begun with {begun}. Give the same.")
    if is_handed_over and not plan.removes:
        raise Failure(
            Kind.CONFLICT,
            f"Since an earlier attempt the items are written in '{plan.target}' alone, and are being removed here. "
            "Give 'remove' (--remove) to complete that.",
        )


async def fence(account: Account, source: Container, moved: MovedItems) -> None:
    """Refuse to write these items in the source from now on. Its writers must be held."""

    def change(state: ContainerState) -> ContainerState:
        return state if moved in state.moved else replace(state, moved=(*state.moved, moved))

    await account.catalog.change_container(source.record, lambda state, _: change(state), on_changed=source.adopt_moved)


async def lift_fence(account: Account, source: Container, target: str) -> list[MovedItems]:
    """Allow writes again of items that were moved to a container. What was lifted."""
    async with account.control:
        lifted = [each for each in source.state.moved if each.target == target]
        if not lifted:
            raise Failure(Kind.NOT_FOUND, f"No items of '{source.name}' were moved to '{target}'.")
        if (source.database.name, source.name) in account.migrations and not _is_ended(account, source):
            raise Failure(Kind.CONFLICT, f"Items of '{source.name}' are being moved. Wait until that is done.")
        if _is_unfinished(account, source, lifted):
            raise Failure(
                Kind.CONFLICT,
                f"Some of the items that were moved to '{target}' are still here. Begin the migration again "
                "(--filter … --remove), which removes them; then lift the fence.",
            )
        await account.catalog.change_container(
            source.record,
            lambda state, _: replace(state, moved=tuple([each for each in state.moved if each.target != target])),
            on_changed=source.adopt_moved,
        )
        return lifted


def _is_unfinished(account: Account, source: Container, moved: list[MovedItems]) -> bool:
    """Whether an attempt was interrupted while it removed items here. Its target has the mark until they are gone."""
    children = account.catalog.children(ResourceType.CONTAINER, source.database.rid)
    rids = {each.target_rid for each in moved}
    targets = [account.container(source.database.name, each.name) for each in children if each.rid_text in rids]
    return any(each.state.migration is not None for each in targets)


def _is_ended(account: Account, source: Container) -> bool:
    return bool(getattr(account.migrations[source.database.name, source.name], "is_ended", False))
