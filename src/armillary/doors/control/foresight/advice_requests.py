"""Advice on a partition key over the control API: a job that reads the rows of a container, or of a file that was sent
before, and the requests of a capture or of a workload. Options are checked here; what is computed is in
`insight/advice/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from armillary import limits
from armillary.account.container import Container
from armillary.account.throughput.provisioning import Throughput
from armillary.doors.control.call import Call
from armillary.doors.control.fields import Fields
from armillary.doors.control.foresight.item_samples import refuse_cluster
from armillary.doors.control.foresight.jobs import Rows
from armillary.doors.control.foresight.requests import asked_seed, asked_time_s, asked_workload
from armillary.doors.control.snapshots.snapshots import part_number
from armillary.errors import Failure, Kind, bad_request
from armillary.insight.advice.task_lines import capture_line
from armillary.insight.item_lines import exact_figures, item_lines
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.toml_tables import DAY_S, size_bytes
from armillary.insight.planning.workload import read_workload, refuse_files
from armillary.model.json_members import shown
from armillary.model.keys import parse_path
from armillary.net.http import Response

_HORIZON = "24mo"


async def begin_advice(call: Call) -> Response:
    fields = call.fields("an advice")
    name, upload_id, capture_id = fields.text("container"), fields.text("upload"), fields.text("capture")
    if (name is None) == (upload_id is None):
        raise bad_request("An advice needs rows: give 'container' (DATABASE/CONTAINER) or 'upload' (its id).")
    task = _task(fields, PartitionLimits.of(call.account.settings))
    fields.end()
    if capture_id is not None and task["workload"] is not None:
        raise bad_request("Give 'capture' or 'workload': what happened and a plan do not add up.")
    if name is None:
        assert upload_id is not None
        if capture_id is not None:
            raise bad_request("A capture is of a container: give 'container' too.")
        return _begun_on_upload(call, task, upload_id)
    await asyncio.sleep(0)  # a request is started without a task, and a job needs one
    container = _container(call, name)
    refuse_cluster(call)
    task["figures"] = await exact_figures(container)
    return _begun_on_container(call, task, container, capture_id)


def _begun_on_upload(call: Call, task: dict[str, Any], upload_id: str) -> Response:
    uploads, jobs = call.services.uploads, call.services.jobs
    upload = uploads.take(upload_id)
    task |= {"source": "the file", "sizeOfRows": upload.size_bytes}
    try:
        job = jobs.submit(
            task,
            upload.lines,
            is_of_reader=call.access.is_read_only,
            release=lambda: uploads.forget(upload_id),
        )
    except Failure:
        upload.is_in_use = False
        raise
    return call.answer({"job": job.id}, 202)


def _begun_on_container(call: Call, task: dict[str, Any], container: Container, capture_id: str | None) -> Response:
    figures = task["figures"]
    task |= {
        "source": f"{container.database.name}/{container.name}",
        "presentKey": figures["paths"],
        "indexing": container.record.body["indexingPolicy"],
        "rows": min(figures["items"], limits.ADVICE_ROWS_MAX),
        "capture": capture_id,
    }
    rows = _container_rows(call, container, capture_id, task["seed"])
    job = call.services.jobs.submit(task, rows, is_of_reader=call.access.is_read_only)
    return call.answer({"job": job.id}, 202)


def _container(call: Call, name: str) -> Container:
    database, separator, container = name.partition("/")
    if not separator:
        raise bad_request(f"'container' must be DATABASE/CONTAINER, not {shown(name)}.")
    try:
        return call.account.container(database, container)
    except Failure as failure:
        if failure.kind not in (Kind.NOT_FOUND, Kind.OWNER_NOT_FOUND):
            raise
        raise Failure(Kind.NOT_FOUND, f"There is no container '{shown(name)}'.") from None


def _container_rows(call: Call, container: Container, capture_id: str | None, seed: int) -> Rows:
    """Lines for the process: first the parts of the capture, then the items."""
    account = call.account
    names = (container.database.name, container.name)
    capture = account.captures.find(container.record.rid, capture_id) if capture_id is not None else None
    if capture is not None and capture.ended_s is None:
        raise Failure(Kind.CONFLICT, "The capture is running. Stop it first.")

    async def lines() -> AsyncIterator[bytes]:
        number = 0
        while capture is not None and (part := await account.captures.part(names, capture, number)) is not None:
            yield capture_line(part)
            number += 1
        try:
            async for line in item_lines(container, limits.ADVICE_ROWS_MAX, seed):
                yield line
        except Failure as failure:
            if failure.kind is not Kind.RANGE_GONE:
                raise
            raise Failure(Kind.CONFLICT, "A partition was split or merged while it was read. Begin again.") from None

    return lines


# What was asked for.


def _task(fields: Fields, partition_limits: PartitionLimits) -> dict[str, Any]:
    kinds = [name for name in ("throughput", "autoscale", "serverless") if fields.has(name)]
    if len(kinds) > 1:
        raise bad_request(f"Give one of {' and '.join(kinds)}.")
    manual, autoscale = fields.whole("throughput", 1, 10**9), fields.whole("autoscale", 1, 10**9)
    provisioned = None
    if manual is not None or autoscale is not None:
        offer = Throughput.manual(manual) if manual is not None else Throughput.autoscale(autoscale or 0, None)
        provisioned = offer.ru
    workload = asked_workload(fields) if fields.has("workload") else None
    seed = asked_seed(fields)
    if workload is not None:
        read_workload(workload, refuse_files, seed, partition_limits)  # refused at once if it is wrong
    return {
        "kind": "advice",
        "limits": partition_limits.to_json(),
        "candidates": [",".join(_checked(each.split(","))) for each in _texts(fields, "candidates")],
        "must": _checked(_texts(fields, "must")),
        "never": _checked(_texts(fields, "never")),
        "known": _checked(_texts(fields, "known")),
        "sizeBytes": _size(fields, "size"),
        "items": None,
        "growthBytesDay": _growth(fields),
        "horizonDays": asked_time_s(fields, "horizon", _HORIZON) / DAY_S,
        "throughputRu": provisioned,
        "isAutoscale": autoscale is not None,
        "isServerless": fields.truth("serverless"),
        "workload": workload,
        "capture": None,
        "presentKey": [],
        "figures": None,
        "indexing": None,
        "seed": seed,
    }


def _texts(fields: Fields, name: str) -> list[str]:
    found = fields.texts(name)
    if len(found) > limits.ADVICE_PATHS_MAX:
        raise bad_request(f"'{name}' has {len(found)} entries; at most {limits.ADVICE_PATHS_MAX} are taken.")
    return found


def _checked(paths: list[str]) -> list[str]:
    for path in paths:
        parse_path(path)
    return paths


def _size(fields: Fields, name: str) -> float | None:
    text = fields.text(name)
    if text is None:
        return None
    try:
        return float(size_bytes(text))
    except ValueError:
        raise bad_request(f"'{name}' must be a size such as 500GB, not {shown(text)}.") from None


def _growth(fields: Fields) -> float:
    """Bytes a day."""
    text = fields.text("growth")
    if text is None:
        return 0.0
    amount, _, period = text.partition("/")
    try:
        if period not in ("day", ""):
            raise ValueError(period)
        return float(size_bytes(amount))
    except ValueError:
        raise bad_request(f"'growth' must be a size a day such as 2GB/day, not {shown(text)}.") from None


# Uploads.


async def begin_upload(call: Call) -> Response:
    call.fields("an upload").end()
    return call.answer({"id": call.services.uploads.begin()}, 201)


async def receive_part(call: Call) -> Response:
    call.query()
    name, number = call.names[0], part_number(call.names[1])
    media_type = call.request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media_type != b"application/octet-stream":
        raise Failure(Kind.UNSUPPORTED_MEDIA, "A part is bytes: send 'Content-Type: application/octet-stream'.")
    call.services.uploads.receive(name, number, call.request.body)
    return call.answer({"received": number})


async def cancel_upload(call: Call) -> Response:
    call.query()
    name = call.names[0]
    if call.services.uploads.find(name).is_in_use:
        raise Failure(Kind.CONFLICT, "A job reads the file: cancel the job.")
    call.services.uploads.forget(name)
    return call.answer({"deleted": name})
