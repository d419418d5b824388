"""Files of rows that clients send for an advice, part by part: lines of JSON, kept in memory until the job that reads
them has ended. Their ids are secret, so that only the client that sent a file can use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request

_ID_BYTES = 16


@dataclass(slots=True)
class Upload:
    heard_s: float
    parts: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    is_in_use: bool = False  # by a job

    async def lines(self) -> AsyncIterator[bytes]:
        rest = b""
        for part in self.parts:
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest


class Uploads:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uploads: dict[str, Upload] = {}

    def begin(self) -> str:
        """The id of a new one. Those that went silent are forgotten first."""
        now_s = self._clock.elapsed_s()
        for name, each in list(self._uploads.items()):
            if not each.is_in_use and now_s - each.heard_s > limits.UPLOAD_IDLE_SECONDS:
                del self._uploads[name]
        if len(self._uploads) >= limits.UPLOADS_MAX:
            raise Failure(
                Kind.CONFLICT,
                f"{limits.UPLOADS_MAX} files are being sent or wait for their advice, which is the most. Try again "
                "when one has ended.",
            )
        name = self._clock.random_bytes(_ID_BYTES).hex()
        self._uploads[name] = Upload(now_s)
        return name

    def find(self, name: str) -> Upload:
        found = self._uploads.get(name)
        if found is None:
            raise Failure(Kind.NOT_FOUND, "There is no such upload: it was used, or nothing was sent for too long.")
        return found

    def receive(self, name: str, number: int, part: bytes) -> None:
        """Take the next part. The last one may come again: its answer may have been lost."""
        upload = self.find(name)
        if upload.is_in_use:
            raise Failure(Kind.CONFLICT, "The file is being read: it takes no more parts.")
        upload.heard_s = self._clock.elapsed_s()
        due = len(upload.parts)
        if number == due - 1:
            return
        if number != due:
            raise bad_request(f"Send the parts in order: {due} is next, not {number}.")
        if upload.size_bytes + len(part) > limits.JOB_UPLOAD_BYTES_MAX:
            del self._uploads[name]
            raise Failure(
                Kind.TOO_LARGE,
                f"The file is larger than {limits.JOB_UPLOAD_BYTES_MAX >> 20} MB. Use `armillary advise` for it.",
            )
        upload.parts.append(part)
        upload.size_bytes += len(part)

    def take(self, name: str) -> Upload:
        """For a job, which calls `forget` in the end."""
        upload = self.find(name)
        if upload.is_in_use or not upload.size_bytes:
            said = "read already" if upload.is_in_use else "empty"
            raise bad_request(f"The upload is {said}.")
        upload.is_in_use = True
        return upload

    def forget(self, name: str) -> None:
        self._uploads.pop(name, None)
