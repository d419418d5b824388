"""File descriptors: connections and the files of storage are taken from one small number, and storage comes first.

A write that cannot open a file for want of descriptors fails, whoever holds them. So the soft limit is raised when the
server starts, storage has a share of its own, and connections have what is left.
"""

from __future__ import annotations

import resource

from armillary import limits


def raise_limit() -> int:
    """As far as is allowed and useful. Returns how many descriptors this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, limits.DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # a system whose hard limit is higher than what it grants
            pass
    return allowed()


def allowed() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft


def for_tables() -> int:
    """How many table files storage keeps open; -1: all of them, where there are descriptors enough."""
    present = allowed()
    if present >= limits.DESCRIPTORS_PLENTY:
        return -1
    return max(limits.TABLE_FILES_MIN, present // 4)


def for_connections() -> int:
    """How many connections all doors may have together."""
    tables = for_tables()
    present = allowed()
    kept = limits.DESCRIPTORS_PLENTY // 2 if tables < 0 else tables + limits.DESCRIPTORS_RESERVED
    return max(limits.CONNECTIONS_MIN, min(limits.CONNECTIONS_MAX, present - kept))
