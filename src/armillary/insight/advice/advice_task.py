"""An advice as a job of the server: rows and requests come as lines, the task has the options, which were checked. The
answer is that of `armillary advise --json`, with the strips of partitions under each candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from armillary.errors import bad_request
from armillary.insight.advice import candidates as keys
from armillary.insight.advice.advice_content import advice_content
from armillary.insight.advice.advice_plan import KnownFigures, Plan
from armillary.insight.advice.advisor import Advice, advise
from armillary.insight.advice.captured_load import Records, finder, load_of_records
from armillary.insight.advice.reading.data_profile import Profile, Profiler
from armillary.insight.advice.request_load import Load, load_of_workload
from armillary.insight.advice.task_lines import TaskLines
from armillary.insight.captures import Head, read_capture
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.prices import own_prices
from armillary.insight.planning.workload import Workload, read_workload, refuse_files
from armillary.model.indexes.indexing import IndexingPolicy
from armillary.model.keys import parse_path

_READING: Final = 0.6  # of the progress
_TOLD_ROWS: Final = 1_000
_STRIPS_PARTITIONS_MAX: Final = 256  # a strip of more would not be seen
_DIGITS: Final = 6
Progress = Callable[[float], None]


def advice_of_task(task: dict[str, Any], lines: Iterable[bytes], progress: Progress) -> dict[str, Any]:
    source = TaskLines(lines)
    asked = [keys.asked_for(each) for each in task["candidates"]]
    defaults = PartitionLimits.from_json(task["limits"])
    workload = None
    if task["workload"] is not None:
        workload = read_workload(task["workload"], refuse_files, task["seed"], defaults)
    plan = _plan(task, workload, defaults)
    records, head = _captured(source) if task["capture"] is not None else (None, None)
    named = {parse_path(path) for each in asked for path in each.paths}
    named |= {parse_path(path) for path in (*plan.must, *plan.known, *task["presentKey"])}
    if workload is not None:
        named |= {parse_path(path) for each in workload.operations for path in each.filter}
    indexing = task["indexing"] and IndexingPolicy.parse(task["indexing"], key_definition=None, has_ttl=False)
    profiler = Profiler(seed=task["seed"], named=named, indexing=indexing)
    _read(source, profiler, task, progress)
    profile = profiler.profile()
    load = Load(present_key=tuple(task["presentKey"]))
    if workload is not None:
        load = load_of_workload(workload, "the workload", plan.horizon_days)
        load.present_key = tuple(task["presentKey"]) or workload.partition_key
    elif records is not None and head is not None:
        load = _captured_load(records, head, profile, task)
    advice = advise(
        profile, load, plan, asked=asked, progress=lambda share, _: progress(_READING + (1.0 - _READING) * share)
    )
    prices = own_prices()
    warning = prices.warning(datetime.now(UTC).date())
    content = advice_content(advice, prices, task["source"], [warning] if warning is not None else [])
    return {**content, "strips": _strips(advice)}


def _plan(task: dict[str, Any], workload: Workload | None, defaults: PartitionLimits) -> Plan:
    provision = workload.provision if workload is not None and task["throughputRu"] is None else None
    return Plan(
        size_bytes=task["sizeBytes"],
        items=task["items"],
        growth_bytes_day=task["growthBytesDay"],
        horizon_days=task["horizonDays"],
        throughput_ru=task["throughputRu"],
        is_autoscale=task["isAutoscale"] or (provision is not None and provision.is_autoscale),
        is_serverless=task["isServerless"],
        limits=workload.bounds if workload is not None else defaults,
        must=tuple(task["must"]),
        never=tuple(task["never"]),
        known=tuple(task["known"]),
        seed=task["seed"],
        figures=KnownFigures.of(task["figures"]) if task["figures"] is not None else None,
    )


def _captured(source: TaskLines) -> tuple[Records, Head]:
    capture = read_capture(source.capture())
    records = Records()
    records.add(capture)
    if not records.read:
        raise bad_request("The capture holds no request for items.")
    return records, capture.head


def _captured_load(records: Records, head: Head, profile: Profile, task: dict[str, Any]) -> Load:
    return load_of_records(
        records,
        origin=f"the capture {task['capture']}",
        share=head.share * records.share,
        captured=records.read,
        present_key=head.key or tuple(task["presentKey"]),
        find=finder(profile) if head.has_values else None,
    )


def _read(source: TaskLines, profiler: Profiler, task: dict[str, Any], progress: Progress) -> None:
    size_bytes = 0
    for number, (line, row) in enumerate(source.rows(), 1):
        size_bytes += len(line)
        if isinstance(row, str):
            profiler.add_bad(row)
        else:
            profiler.add(row, line)
        if number % _TOLD_ROWS == 0:
            whole = task["rows"] if task.get("rows") else task.get("sizeOfRows", 0)
            done = number if task.get("rows") else size_bytes
            progress(_READING * min(1.0, done / max(1, whole)))


def _strips(advice: Advice) -> dict[str, Any]:
    """How the bytes and the load lie on even partitions under each candidate, by its key."""
    found = {}
    for each in advice.judged:
        scores = each.scores
        if scores.judged_partitions <= _STRIPS_PARTITIONS_MAX:
            found[each.key] = {
                "byteShares": [round(share, _DIGITS) for share in scores.laid],
                "ruPerSecond": [round(ru, 2) for ru in scores.loads.demand_ru],
            }
    return found
