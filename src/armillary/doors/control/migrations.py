"""Migrations over the control API: begin one, see how far it is, stop it. They are named by what is moved, under the
name that it had when it began."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.account.migration import migration, moved_items
from armillary.account.migration.migration import Migration, Plan
from armillary.doors.control.call import Call
from armillary.doors.control.resources import read_throughput
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown
from armillary.net.http import Response


async def begin(call: Call) -> Response:
    fields = call.fields("a migration")
    if fields.truth("liftFence"):
        target = fields.required_text("target")
        fields.end()
        lifted = await moved_items.lift_fence(call.account, call.container(), target)
        return call.answer({"target": target, "lifted": [each.filter for each in lifted]})
    paths, is_fixed = fields.texts("partitionKey"), fields.truth("fixed")
    if paths and is_fixed:
        raise bad_request("Give either 'partitionKey' (--partition-key) or 'fixed' (--fixed), not both.")
    target, keep_as = fields.required_text("target"), fields.text("keepAs")
    plan = Plan(
        target=target,
        paths=tuple(paths) if paths else None,
        throughput=read_throughput(fields),
        keep_as=keep_as,
        switches=not fields.truth("noSwitch"),
        filter=fields.text("filter"),
        removes=fields.truth("remove"),
    )
    fields.end()
    source = call.container()
    names = [each.name for each in call.account.containers if each.database.rid == source.database.rid]
    if plan.filter is not None:
        if keep_as is not None or not plan.switches:
            raise bad_request("With 'filter' (--filter) both containers keep their names: no 'keepAs', no 'noSwitch'.")
        plan = replace(plan, switches=False)
        if not paths and not is_fixed and source.key is not None and target not in names:
            paths = list(source.key.paths)
            plan = replace(plan, paths=source.key.paths)
    elif plan.removes:
        raise bad_request("'remove' (--remove) goes with 'filter' (--filter).")
    if not paths and not is_fixed and target not in names:
        raise bad_request(
            f"The container '{shown(target)}' does not exist yet. Give its 'partitionKey' (--partition-key), such as "
            "/customerId, or 'fixed' (--fixed) for a container without one."
        )
    return call.answer(_shown(await migration.begin(call.account, source, plan)), 202)


async def show(call: Call) -> Response:
    call.query()
    return call.answer(_shown(_find(call)))


async def stop(call: Call) -> Response:
    call.query()
    found = _find(call)
    await found.stop()
    await found.end()
    return call.answer(_shown(found))


def _find(call: Call) -> Migration:
    found = call.account.migrations.get((call.names[0], call.names[1]))
    if not isinstance(found, Migration):
        raise Failure(
            Kind.NOT_FOUND,
            f"'{call.names[1]}' has not been migrated since the server started. `armillary migrate` begins one.",
        )
    return found


def _shown(found: Migration) -> dict[str, Any]:
    return {
        "source": found.source_name,
        "target": found.target_name,
        "keepAs": found.kept_as,
        "stage": found.stage,
        "ended": found.is_ended,
        "itemsTotal": found.total,
        "itemsExamined": found.examined,
        "itemsCopied": found.copied,
        "itemsRemoved": found.removed,
        "changesFollowed": found.followed,
        "verifiedItems": found.verified.items if found.verified is not None else None,
        "digest": f"{found.verified.digest:032x}" if found.verified is not None else None,
        "heldMs": round(found.held_ms, 1),
        "permissionsLeft": found.permissions_left,
        "failure": found.failure.message if found.failure is not None else None,
    }
