"""Who takes which lease: all workers come to about as many each, without talking to each other. Pure; what becomes of
the wish is decided by whose write comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import ceil

from armillary.changefeed.leases import Lease


def leases_to_take(leases: Sequence[Lease], worker: str, free_ids: Collection[str]) -> list[Lease]:
    """Free ones up to one's share; if there are none, one of whoever has at least two more."""
    owners = Counter(lease.owner for lease in leases if lease.id not in free_ids and lease.owner is not None)
    own_count = owners[worker]
    share = ceil(len(leases) / len(owners.keys() | {worker}))
    free = [lease for lease in leases if lease.id in free_ids]
    if free:
        return free[: max(0, share - own_count)]
    richest = max(sorted(owners.keys() - {worker}), key=lambda owner: owners[owner], default=None)
    if richest is None or owners[richest] - own_count < 2:
        return []
    return [next(lease for lease in leases if lease.owner == richest)]
