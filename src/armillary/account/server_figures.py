"""Figures of the server below the account, for metrics and readiness: storage, background work that is due, and the
caches of compiled queries. Figures of containers and partitions are in `overview.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from armillary.account.account import Account
from armillary.query.compiled_cache import CacheFigures, CompiledCache, cache_figures
from armillary.storage.operating.storage_figures import Level, StorageFigures

__all__ = ["CacheFigures", "CompiledCache", "Level", "StorageFigures", "cache_figures"]


class Backlog(NamedTuple):
    """Background work."""

    splits: int  # that run
    merges: int
    upkeep: dict[str, int]  # partitions whose upkeep is due, by its kind


def backlog_of(account: Account) -> Backlog:
    running = Counter(len(each.parents) > 1 for each in account.reshaper.running())
    return Backlog(running[False], running[True], account.rounds.backlog())


def storage_of(account: Account) -> StorageFigures | None:
    """None: everything is in memory."""
    return account.engine.figures()


def read_cache_of(figures: StorageFigures) -> list[CacheFigures]:
    """The cache of point reads, if the engine has one."""
    return [CacheFigures("point reads", *figures.reads)] if figures.reads is not None else []


def readiness(account: Account) -> dict[str, str | bool]:
    """What an account that can be read is not ready for: writes, or writes for long. Empty: it is ready for all. A full
    disk is no reason to send no reads to a server."""
    figures = storage_of(account)
    found: dict[str, str | bool] = {}
    if account.is_read_only:
        found["readOnly"] = True
    if figures is not None and figures.is_nearly_full:
        found["disk"] = "full" if figures.is_full else "nearly full"
    return found


def disk_warning(figures: StorageFigures | None) -> str | None:
    """What an operator is told about a disk that is full or about to be."""
    if figures is None or not figures.is_nearly_full:
        return None
    free_mb, reserve_mb = figures.disk_free_bytes // 1_000_000, figures.reserve_bytes // 1_000_000
    if figures.is_full:
        return (
            f"The disk of the data directory is full: {free_mb} MB are free, and {reserve_mb} MB are kept free "
            "(--disk-reserve). Writes are refused, except those that drop containers. Free some room; no restart is "
            "needed."
        )
    return (
        f"The disk of the data directory is nearly full: {free_mb} MB are free. Below {reserve_mb} MB writes are "
        "refused (--disk-reserve). Free some room, or move the data directory to a larger disk."
    )
