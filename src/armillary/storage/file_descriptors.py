"""Shares of file descriptors: connections and the files of storage share one limited number, and storage has priority.

A write fails if RocksDB cannot open a file for lack of descriptors. So the soft limit is raised when the server starts,
storage has a share of its own, and connections get the rest.
"""

from __future__ import annotations

from armillary import limits

try:
    import resource

    HAS_LIMITS = True
except ImportError:  # Windows, which has no such limit
    HAS_LIMITS = False


def raise_limit() -> int:
    """Raise the soft limit as far as is allowed and useful. Returns how many descriptors this process may have."""
    if not HAS_LIMITS:
        return allowed()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, limits.DESCRIPTORS_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # some systems grant less than their hard limit
            pass
    return allowed()


def allowed() -> int:
    if not HAS_LIMITS:
        return limits.DESCRIPTORS_WANTED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limits.DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft


def for_tables() -> int:
    """How many table files storage keeps open; -1: all of them, if there are enough descriptors."""
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
