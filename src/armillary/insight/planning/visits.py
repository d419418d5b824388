"""How many partitions a query visits, and what visiting more than one costs: the fan-out of a workload under a
partition key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from armillary.insight.planning.distributions import KeyShares
from armillary.model import charges
from armillary.model.charges import QueryWork

_ROUNDING = 1e-9  # of a product of a share and a number that should be whole


def of_list(values: int, partitions: int) -> float:
    """Partitions that an IN of so many different values of the key visits, on average."""
    return partitions * (1.0 - (1.0 - 1.0 / partitions) ** values)


def of_prefix(share: float, partitions: int) -> int:
    """Partitions that a query by the first levels of a hierarchical key visits, where these have such a share of the
    bytes. It is one until the share is that of a partition; exact numbers need the map."""
    spanned = share * partitions
    if spanned <= 1.0 + _ROUNDING:
        return 1
    return min(partitions, math.ceil(spanned - _ROUNDING) + 1)


def of_prefixes(shares: KeyShares, partitions: int) -> float:
    """The mean of the same over values of the first level that are asked for as often as they have bytes."""
    several = [share for _, share in shares.named if share * partitions > 1.0]
    rest = 1.0 - math.fsum(several)
    return rest + math.fsum(share * of_prefix(share, partitions) for share in several)


def fan_out(visited: Iterable[tuple[float, float]]) -> float:
    """The mean number of partitions that a query visits, from (rate, partitions) of each kind of query."""
    known = list(visited)
    rate = math.fsum(each for each, _ in known)
    return math.fsum(each * partitions for each, partitions in known) / rate if rate else 0.0


def visit_ru(seeks: int = 1) -> float:
    """What one partition charges for being visited, before any row."""
    return charges.query_page_ru(QueryWork(partitions_begun=1, seeks=seeks))


def extra_ru(partitions: float, seeks: int = 1) -> float:
    """What a query costs more because it visits so many partitions instead of one."""
    return (partitions - 1.0) * visit_ru(seeks)


def single_partition_share(requests: Iterable[tuple[float, float]]) -> float:
    """The share of requests, or of request units, that visit one partition: from (weight, partitions)."""
    known = list(requests)
    whole = math.fsum(weight for weight, _ in known)
    single = math.fsum(weight for weight, partitions in known if partitions <= 1.0 + _ROUNDING)
    return single / whole if whole else 1.0
