"""Running the transaction functions that wait for a group commit: one after the other, each on an overlay of its own
over the writes of those before it. A function that raises leaves nothing. Engines write the group and answer.

The commonest writes also bring a *quick* form, which needs no overlay: it only reads, and returns what it would write,
or None, and then the function runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from greenlet import GreenletExit

from armillary import limits, work
from armillary.errors import Failure
from armillary.storage.disk_errors import Answer, refuse
from armillary.storage.engine import Quick, Receiver, Txn
from armillary.storage.overlay import Get, Layer, OverlayTxn, Scan

_ABSENT: Final = b"absent\0from this group"  # compared by identity only


class Waiting(NamedTuple):
    fn: Callable[[Txn], Any]
    prefix: bytes
    future: Receiver[Any]
    is_freeing: bool  # allowed on a full disk
    quick: Quick[Any] | None  # the same, tried first


_new = tuple.__new__  # makes a named tuple in less than half of the time that its class takes


def waiting_for(
    fn: Callable[[Txn], Any], prefix: bytes, future: Receiver[Any], is_freeing: bool, quick: Quick[Any] | None
) -> Waiting:
    return _new(Waiting, (fn, prefix, future, is_freeing, quick))


def refuse_waiting(waiting: deque[Waiting], failure: Failure, but_freeing: bool = False) -> None:
    kept = [entry for entry in waiting if but_freeing and entry.is_freeing]
    refused = [Answer(entry.future, None, None) for entry in waiting if entry not in kept]
    waiting.clear()
    waiting.extend(kept)
    refuse(refused, failure)


class Gathering:
    """The group that is being gathered: its writes, and the answers that are due when they are durable."""

    __slots__ = ("answers", "layer", "size_bytes")

    def __init__(self) -> None:
        self.layer = Layer(has_deletes=False)
        self.answers: list[Answer] = []
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= limits.GROUP_BYTES_MAX

    def run(
        self, waiting: deque[Waiting], get: Get, scan: Scan, monotonic_s: Callable[[], float], deadline_s: float
    ) -> None:
        """Run waiting functions until the time is up or the group is full. A function that spends more work than a
        slice gives way to the event loop, and no other function runs before it is done."""
        run_now = work.current()
        answers = self.answers

        def newest(key: bytes) -> bytes | None:
            under = self.layer
            value = under.writes.get(key, _ABSENT)
            if value is not _ABSENT:
                return value
            return None if under.cleared and under.is_cleared(key) else get(key)

        while waiting:
            fn, prefix, future, _, quick = waiting.popleft()
            if future.done():  # the caller was cancelled before its function ran
                continue
            if quick is not None and self._run_quick(quick, newest, prefix, future):
                if self.size_bytes >= limits.GROUP_BYTES_MAX or monotonic_s() >= deadline_s:
                    return
                continue
            layer = Layer(has_deletes=False)
            try:
                result = fn(OverlayTxn(layer, self.layer, get, scan, prefix))
            except GreenletExit:  # the event loop was closed while the function had given way
                raise
            except BaseException as error:
                answers.append(Answer(future, None, error))
                if not isinstance(error, Exception):
                    return  # the interpreter is shutting down: keep what was done, run no more
                continue
            if self.layer.is_empty():
                # Nothing to join it with. A large one is a group of its own.
                self.layer = layer
                is_large = len(layer.writes) > limits.GROUP_WRITES_MAX
                self.size_bytes = limits.GROUP_BYTES_MAX if is_large else layer.size_bytes()
            else:
                self.size_bytes += self.layer.absorb(layer)
            answers.append(_new(Answer, (future, result, None)))
            if run_now.made_bytes or run_now.derived:
                work.end_item(run_now, 0)
            if self.size_bytes >= limits.GROUP_BYTES_MAX or monotonic_s() >= deadline_s:
                return

    def _run_quick(self, quick: Quick[Any], newest: Get, prefix: bytes, future: Receiver[Any]) -> bool:
        """Returns whether it has run, or failed."""
        try:
            made = quick(newest, prefix)
        except Exception as error:
            self.answers.append(Answer(future, None, error))
            return True
        if made is None:
            return False
        result, writes, size_bytes, has_deletes = made
        layer = self.layer
        layer.writes.update(writes)
        layer.has_deletes = layer.has_deletes or has_deletes
        self.size_bytes += size_bytes
        self.answers.append(_new(Answer, (future, result, None)))
        return True
