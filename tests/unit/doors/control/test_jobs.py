"""Long computations in processes of their own: one at a time, and ended when they take too much."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
from support.limits import WithLimits
from support.waiting import until

from armillary import limits
from armillary.doors.control.foresight.jobs import Job, Jobs
from armillary.errors import Failure, Kind

# Does what its task says, in the form of `insight/job_process.py`.
PROGRAM = """
import json, sys, time
task = json.loads(sys.stdin.readline())
print(json.dumps({"share": 0.5}), flush=True)
match task["kind"]:
    case "rows": print(json.dumps({"result": sum(1 for _ in sys.stdin)}), flush=True)
    case "refused": print(json.dumps({"refused": "no such thing"}), flush=True)
    case "endless": time.sleep(3600)
    case "large": print(json.dumps({"result": "x" * task["size"]}), flush=True)
    case "crash": sys.exit(1)
"""


@pytest.fixture
async def jobs() -> AsyncIterator[Jobs]:
    jobs = Jobs((sys.executable, "-c", PROGRAM))
    yield jobs
    await jobs.close()


async def ended(job: Job) -> Job:
    await until(lambda: job.state in ("done", "failed"), "it has ended")
    return job


async def test_rows_go_to_the_process_and_its_result_comes_back(jobs: Jobs) -> None:
    async def rows() -> AsyncIterator[bytes]:
        for number in range(5_000):
            yield b'{"n": %d, "text": "%s"}' % (number, b"x" * 500)

    job = await ended(jobs.submit({"kind": "rows"}, rows))
    assert job.to_json() == {"job": "1", "kind": "rows", "state": "done", "share": 1.0, "result": 5_000}
    assert jobs.find("1") is job


async def test_refusals_crashes_and_large_results_are_told(jobs: Jobs, with_limits: WithLimits) -> None:
    with_limits(JOB_RESULT_BYTES_MAX=10_000)
    refused, crashed, large = (
        jobs.submit(task) for task in ({"kind": "refused"}, {"kind": "crash"}, {"kind": "large", "size": 50_000})
    )
    assert (await ended(refused)).error == "no such thing"
    assert "ended without a result" in str((await ended(crashed)).error)
    assert "too large" in str((await ended(large)).error)
    assert large.to_json()["state"] == "failed"


async def test_one_runs_and_some_wait(jobs: Jobs) -> None:
    endless = jobs.submit({"kind": "endless"})
    await until(lambda: endless.share == 0.5, "it has begun")
    waiting = [jobs.submit({"kind": "rows"}) for _ in range(limits.JOBS_WAITING_MAX)]
    with pytest.raises(Failure, match="8 computations wait already"):
        jobs.submit({"kind": "rows"})
    assert {each.state for each in waiting} == {"waiting"}
    jobs.cancel(waiting[0].id)
    jobs.cancel(endless.id)
    for job in waiting[1:]:
        assert (await ended(job)).result == 0
    with pytest.raises(Failure, match="no job '1'"):
        jobs.find("1")


async def test_a_job_that_is_cancelled_while_its_process_starts_is_ended(jobs: Jobs) -> None:
    endless = jobs.submit({"kind": "endless"})
    await asyncio.sleep(0)
    assert endless.state == "running" and endless.process is None
    jobs.cancel(endless.id)
    assert (await ended(jobs.submit({"kind": "rows"}))).result == 0


async def test_what_takes_too_long_is_ended(jobs: Jobs, with_limits: WithLimits) -> None:
    with_limits(JOB_SECONDS_MAX=0)
    job = await ended(jobs.submit({"kind": "endless"}))
    assert "was ended" in str(job.error)
    assert job.process is None


async def test_results_are_kept_for_a_while(jobs: Jobs, with_limits: WithLimits) -> None:
    with_limits(JOBS_KEPT_MAX=2)
    for _ in range(4):
        await ended(jobs.submit({"kind": "refused"}))
    assert [each for each in "1234" if each in jobs._jobs] == ["2", "3", "4"]


async def test_rows_that_cannot_be_read_end_the_job_and_are_released(jobs: Jobs) -> None:
    released: list[str] = []

    async def rows() -> AsyncIterator[bytes]:
        yield b"{}"
        raise Failure(Kind.CONFLICT, "A partition was split while it was read.")

    failed = await ended(jobs.submit({"kind": "rows"}, rows, release=lambda: released.append("failed")))
    assert failed.error == "A partition was split while it was read."
    assert failed.rows is None and released == ["failed"]
    endless = jobs.submit({"kind": "endless"}, release=lambda: released.append("cancelled"))
    await until(lambda: endless.share > 0, "it runs")
    jobs.cancel(endless.id)
    assert released == ["failed", "cancelled"]
