"""Questions about the future over the control API: `estimate` is answered at once, advice and simulations are jobs.
What is computed is in `insight/`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from armillary import limits
from armillary.doors.control.call import Call
from armillary.doors.control.fields import Fields
from armillary.errors import Failure, Kind, bad_request
from armillary.insight.planning.estimate import INDEX_SHARE_CLOUD, EstimateOptions, estimate
from armillary.insight.planning.needs import UTILISATION
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.prices import own_prices
from armillary.insight.planning.toml_tables import duration_s
from armillary.insight.planning.workload import read_workload, refuse_files
from armillary.net.http import Response

_SEED_MAX = 10**9


async def make_estimate(call: Call) -> Response:
    """Computed in a thread: it takes some milliseconds, a tenth of a second for a million keys."""
    fields = call.fields("an estimate")
    document, horizon_s, seed = asked_workload(fields), asked_time_s(fields, "for", "0s"), asked_seed(fields)
    utilisation = fields.number("utilisation", 0.01, 1.0)
    is_cloud = fields.choice("as", "armillary", "cloud") == "cloud"
    is_dynamic = fields.truth("dynamic")
    fields.end()
    options = EstimateOptions(
        horizon_s,
        UTILISATION if utilisation is None else utilisation,
        INDEX_SHARE_CLOUD if is_cloud else 0.0,
        is_dynamic,
    )
    partition_limits = PartitionLimits.of(call.account.settings)
    return call.answer(await asyncio.to_thread(_estimated, document, seed, partition_limits, options))


def _estimated(
    document: dict[str, Any], seed: int, partition_limits: PartitionLimits, options: EstimateOptions
) -> dict[str, Any]:
    prices = own_prices()
    content = estimate(read_workload(document, refuse_files, seed, partition_limits), prices, options)
    warning = prices.warning(datetime.now(UTC).date())
    content["warnings"] += [warning] if warning is not None else []
    return content


async def begin_simulation(call: Call) -> Response:
    fields = call.fields("a simulation")
    task = {
        "kind": "simulation",
        "limits": PartitionLimits.of(call.account.settings).to_json(),
        "workload": asked_workload(fields),
        "horizonS": asked_time_s(fields, "for", "12mo"),
        "seed": asked_seed(fields),
        "vary": fields.texts("vary"),
        "keepsTimelines": fields.truth("timelines"),
        "isCloud": fields.choice("as", "armillary", "cloud") == "cloud",
        "isDynamic": fields.truth("dynamic"),
    }
    fields.end()
    return _begun(call, task)


def _begun(call: Call, task: dict[str, Any]) -> Response:
    job = call.services.jobs.submit(task, is_of_reader=call.access.is_read_only)
    return call.answer({"job": job.id}, 202)


async def show_job(call: Call) -> Response:
    """`wait`: for so many milliseconds at most until it has ended."""
    call.query("wait")
    job = call.services.jobs.find(call.names[0])
    wait_ms = call.whole("wait", 0, 0, limits.WATCH_WAIT_MS_MAX)

    async def pause(seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await job.ended.wait()

    await call.services.long_polls.until(job.ended.is_set, wait_ms, pause)
    return call.answer(job.to_json())


async def cancel_job(call: Call) -> Response:
    """Credentials that may only read end the jobs that such credentials have begun."""
    call.query()
    jobs, job_id = call.services.jobs, call.names[0]
    if call.access.is_read_only and not jobs.find(job_id).is_of_reader:
        raise Failure(Kind.FORBIDDEN, "These credentials may only read: they end no job of others that may do more.")
    jobs.cancel(job_id)
    return call.answer({}, 200)


def asked_workload(fields: Fields) -> dict[str, Any]:
    document = fields.take("workload")
    if not isinstance(document, dict):
        raise bad_request("'workload' must be an object: the content of a workload file (docs/foresight.md) as JSON.")
    return document


def asked_time_s(fields: Fields, name: str, default: str) -> float:
    text = fields.text(name) or default
    try:
        return duration_s(text)
    except (ValueError, Failure):
        raise bad_request(f"'{name}' must be a time such as 30d, 12mo or PT12H, not {text[:40]!r}.") from None


def asked_seed(fields: Fields) -> int:
    seed = fields.whole("seed", 0, _SEED_MAX)
    return 1 if seed is None else seed
