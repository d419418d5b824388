"""Splits and merges over the control API: begin them, watch them, stop them at a point and let them go on, take them
back. What happens at each point is in `account/reshaping/split_and_merge.py`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from armillary.account.catalog.allocation import are_together
from armillary.account.container import Container
from armillary.account.reshaping.split_and_merge import POINTS, Reshape
from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown
from armillary.net.http import Response

_RANGE_MAX = 2**31 - 1
_BOUNDARY_CHARACTERS_MAX = 256


async def split(call: Call) -> Response:
    fields = call.fields("a split")
    range_id = fields.whole("partition", 0, _RANGE_MAX)
    boundary = _boundary(fields.text("boundary"))
    fields.end()
    container = call.container()
    if range_id is None:
        range_id = _largest(call, container)
    reshape = await call.account.reshaper.split(container, range_id, boundary)
    return call.answer(reshape_json(call, reshape), 202)


async def merge(call: Call) -> Response:
    fields = call.fields("a merge")
    given = fields.take("partitions")
    fields.end()
    container = call.container()
    low_id, high_id = _smallest(call, container) if given is None else _pair(given)
    reshape = await call.account.reshaper.merge(container, low_id, high_id)
    return call.answer(reshape_json(call, reshape), 202)


async def list_reshapes(call: Call) -> Response:
    call.query()
    return call.answer({"reshapes": of_container(call, call.container())})


async def list_all_reshapes(call: Call) -> Response:
    call.query()
    found = [reshape_json(call, each) for each in call.account.reshaper.shown()]
    return call.answer({"reshapes": found, "points": list(POINTS), "pauses": call.account.reshaper.pauses})


async def cancel_reshape(call: Call) -> Response:
    call.query()
    reshape = _find(call)
    await call.account.reshaper.cancel(reshape)
    return call.answer({"cancelled": reshape.number})


async def pause(call: Call) -> Response:
    """From now on all reshapes stop at these points; an empty list lets them run."""
    fields = call.fields("pauses")
    points = fields.texts("points")
    fields.end()
    call.account.reshaper.pause(points)
    return call.answer({"pauses": call.account.reshaper.pauses})


async def advance(call: Call) -> Response:
    """Let one that has stopped go on, or all that have."""
    call.fields("nothing").end()
    reshape = _find(call) if call.names else None
    return call.answer({"advanced": await call.account.reshaper.let_go_on(reshape)})


def of_container(call: Call, container: Container) -> list[dict[str, Any]]:
    return [reshape_json(call, each) for each in call.account.reshaper.shown(container)]


def reshape_json(call: Call, reshape: Reshape) -> dict[str, Any]:
    progress = reshape.progress
    return {
        "database": reshape.container.database.name,
        "container": reshape.container.name,
        "number": reshape.number,
        "kind": reshape.kind,
        "reason": reshape.reason,
        "partitions": list(reshape.parents),
        "children": [{"low": low.hex().upper(), "high": high.hex().upper()} for low, high in reshape.children],
        "point": reshape.point,
        "paused": call.account.reshaper.is_paused(reshape),
        "waitsFor": reshape.waits_for,
        "itemsTotal": progress.items_total,
        "itemsCopied": progress.items_copied,
        "bytesCopied": progress.bytes_copied,
        "changesApplied": progress.changes_applied,
    }


def _find(call: Call) -> Reshape:
    container, text = call.container(), call.names[2]
    for reshape in call.account.reshaper.shown(container):
        if str(reshape.number) == text:
            return reshape
    raise Failure(Kind.NOT_FOUND, f"'{container.name}' has no running split or merge with the number '{shown(text)}'.")


def _largest(call: Call, container: Container) -> int:
    busy = {parent for each in call.account.reshaper.shown(container) for parent in each.parents}
    free = [each for each in container.partitions.values() if each.range.id not in busy]
    if not free:
        raise Failure(Kind.CONFLICT, "All partitions are being split or merged already. Wait until that is done.")
    return max(free, key=lambda each: each.head.size_bytes).range.id


def _smallest(call: Call, container: Container) -> tuple[int, int]:
    """The two neighbours that hold the least together."""
    busy = {parent for each in call.account.reshaper.shown(container) for parent in each.parents}
    pairs = [
        (low.id, high.id)
        for low, high in pairwise(container.map.ranges)
        if low.id not in busy and high.id not in busy and are_together(low.store, high.store)
    ]
    if not pairs:
        raise bad_request(f"The container '{container.name}' has no two neighbouring partitions that could be merged.")
    sizes = {range_id: partition.head.size_bytes for range_id, partition in container.partitions.items()}
    return min(pairs, key=lambda pair: sizes[pair[0]] + sizes[pair[1]])


def _pair(given: Any) -> tuple[int, int]:
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= _RANGE_MAX for each in given)
    ):
        raise bad_request("'partitions' of a merge must be a list of two ids of neighbouring partitions.")
    return given[0], given[1]


def _boundary(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        if len(text) > _BOUNDARY_CHARACTERS_MAX:
            raise ValueError
        return bytes.fromhex(text)
    except ValueError:
        raise bad_request(f"'boundary' of a split must be an effective key in hex, not '{shown(text)}'.") from None
