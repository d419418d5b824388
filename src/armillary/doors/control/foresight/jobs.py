"""Computations that take long, each in a process of its own with less priority, limited memory and time: the event loop
never computes. One runs at a time, some wait; results are kept for a while in memory.

What a process does is `insight/job_process.py`: it reads its task and rows from standard input, and writes lines of
JSON: how far it is, and at last its result or a refusal.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from armillary import limits
from armillary.errors import Failure, Kind, bad_request
from armillary.model.json_members import shown

log = logging.getLogger(__name__)

Rows = Callable[[], AsyncIterator[bytes]]  # lines of JSON, made when the job begins


@dataclass(slots=True)
class Job:
    id: str
    task: dict[str, Any]  # what the process is told
    rows: Rows | None
    is_of_reader: bool = False  # begun with credentials that may only read
    release: Callable[[], None] | None = None  # called when its rows are not needed any more
    state: str = "waiting"  # running, done, failed
    share: float = 0.0  # of the work that is done
    result: Any = None
    error: str | None = None
    process: Process | None = field(default=None, repr=False)
    ended: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def end(self, state: str) -> None:
        self.state, self.rows = state, None
        if self.release is not None:
            self.release()
            self.release = None
        self.ended.set()

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"job": self.id, "kind": self.task["kind"], "state": self.state, "share": self.share}
        if self.state == "done":
            content["result"] = self.result
        if self.state == "failed":
            content["error"] = self.error
        return content


class Jobs:
    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "armillary.insight.job_process")) -> None:
        self._command = command
        self._jobs: dict[str, Job] = {}  # in the order in which they came
        self._number = 0
        self._working: asyncio.Task[None] | None = None

    def submit(
        self,
        task: dict[str, Any],
        rows: Rows | None = None,
        *,
        is_of_reader: bool = False,
        release: Callable[[], None] | None = None,
    ) -> Job:
        """`release` is called when the job has ended, or was cancelled; not if it is refused here."""
        waiting = sum(each.state == "waiting" for each in self._jobs.values())
        if waiting >= limits.JOBS_WAITING_MAX:
            raise Failure(
                Kind.UNAVAILABLE,
                f"{waiting} computations wait already, the most there may be. Try again when one has ended.",
                retry_after_ms=5_000,
            )
        self._number += 1
        job = self._jobs[str(self._number)] = Job(str(self._number), task, rows, is_of_reader, release)
        ended = [each for each in self._jobs.values() if each.state in ("done", "failed")]
        for each in ended[: max(0, len(ended) - limits.JOBS_KEPT_MAX)]:
            del self._jobs[each.id]
        if self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work())
        return job

    def find(self, job_id: str) -> Job:
        try:
            return self._jobs[job_id]
        except KeyError:
            raise Failure(Kind.NOT_FOUND, f"There is no job '{shown(job_id)}'.") from None

    def cancel(self, job_id: str) -> None:
        """Forget a job; one that runs is ended."""
        job = self.find(job_id)
        del self._jobs[job_id]
        job.end("failed")
        if job.process is not None:
            _kill(job.process)

    async def close(self) -> None:
        for job_id in list(self._jobs):
            self.cancel(job_id)
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self) -> None:
        while job := next((each for each in self._jobs.values() if each.state == "waiting"), None):
            job.state = "running"
            try:
                async with asyncio.timeout(limits.JOB_SECONDS_MAX):
                    await self._run(job)
            except TimeoutError:
                job.error = f"It was not done after {limits.JOB_SECONDS_MAX // 60} minutes, and was ended."
            except Failure as failure:
                job.error = failure.message
            except OSError as error:
                job.error = f"No process could be started for it: {error.strerror}."
            job.end("done" if job.error is None else "failed")

    async def _run(self, job: Job) -> None:
        job.process = process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=limits.JOB_RESULT_BYTES_MAX
        )
        if job.ended.is_set():
            _kill(process)  # cancelled while it was started
        feeding = asyncio.ensure_future(self._feed(process, job))
        try:
            assert process.stdout is not None
            is_answered = False
            async for line in process.stdout:
                is_answered = self._hear(job, orjson.loads(line)) or is_answered
            if not is_answered:
                _raise_failed(feeding)
                raise Failure(
                    Kind.UNAVAILABLE,
                    f"The computation ended without a result. It may have needed more memory than "
                    f"{limits.JOB_MEMORY_BYTES >> 20} MB.",
                )
        except ValueError:
            raise Failure(Kind.TOO_LARGE, "The result of the computation is too large.") from None
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            _kill(process)
            await process.wait()
            job.process = None

    async def _feed(self, process: Process, job: Job) -> None:
        assert process.stdin is not None
        try:
            process.stdin.write(orjson.dumps(job.task) + b"\n")
            if job.rows is not None:
                async for row in job.rows():
                    process.stdin.write(row + b"\n")
                    await process.stdin.drain()
            await process.stdin.drain()
            process.stdin.close()
        except ConnectionError:
            pass  # it has ended, and said why
        except BaseException:
            _kill(process)  # it would wait for the other rows
            raise

    def _hear(self, job: Job, said: dict[str, Any]) -> bool:
        """Take a line of the process. Whether it was the last."""
        if "share" in said:
            job.share = said["share"]
            return False
        if "refused" in said:
            raise bad_request(said["refused"])
        job.share, job.result = 1.0, said["result"]
        return True


def _raise_failed(feeding: asyncio.Future[None]) -> None:
    """If the rows of a job could not be read, the reason."""
    if not feeding.done() or feeding.cancelled() or (reason := feeding.exception()) is None:
        return
    if isinstance(reason, Failure):
        raise reason
    log.error("the rows of a job could not be read", exc_info=reason)
    raise Failure(Kind.INTERNAL, "The rows could not be read. The log of the server has the reason.")


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
