"""A sample of a container's items over the control API, for an advice that is computed elsewhere: what the server knows
exactly, and items drawn at random numbers, page by page. The same code gives a job of the server its rows.
"""

from __future__ import annotations

import asyncio

from armillary import limits
from armillary.doors.control.call import Call
from armillary.doors.control.snapshots.snapshots import BINARY
from armillary.errors import Failure, Kind
from armillary.insight.item_lines import Page, exact_figures, item_lines
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.net.http import BareResponse, Response

_TRIES = 3
_SEED_MAX = 10**9


async def show_figures(call: Call) -> Response:
    call.query()
    refuse_cluster(call)
    container = call.container()
    figures = await exact_figures(container)
    body = container.record.body
    policies = {name: body[name] for name in ("indexingPolicy", "uniqueKeyPolicy") if name in body}
    partition_limits = PartitionLimits.of(call.account.settings).to_json()
    names = {"database": container.database.name, "container": container.name}
    return call.answer({**names, **figures, **policies, "limits": partition_limits})


async def send_items(call: Call) -> Response:
    """A page of a sample as lines of JSON. All pages of the same `count`, `pages` and `seed` make up the sample."""
    call.query("count", "pages", "page", "seed")
    refuse_cluster(call)
    container = call.container()
    count = call.whole("count", limits.ADVICE_ROWS_MAX, 1, limits.SAMPLE_ITEMS_MAX)
    pages = call.whole("pages", 1, 1, limits.SAMPLE_ITEMS_MAX)
    page = Page(call.whole("page", 0, 0, pages - 1), pages)
    seed = call.whole("seed", 1, 0, _SEED_MAX)
    for _ in range(_TRIES):
        lines: list[bytes] = []
        size_bytes = 0
        try:
            async for line in item_lines(container, count, seed, page):
                lines.append(line)
                size_bytes += len(line)
                if size_bytes > limits.SAMPLE_PAGE_BYTES_MAX or len(lines) > limits.SAMPLE_PAGE_ITEMS_MAX:
                    raise Failure(
                        Kind.TOO_LARGE,
                        f"A page has more than {limits.SAMPLE_PAGE_ITEMS_MAX} items or "
                        f"{limits.SAMPLE_PAGE_BYTES_MAX >> 20} MB: ask for more 'pages'.",
                    )
        except Failure as failure:
            if failure.kind is not Kind.RANGE_GONE:
                raise
            await asyncio.sleep(0)
            continue
        return BareResponse(200, BINARY, b"\n".join(lines))
    raise Failure(Kind.CONFLICT, "Partitions are split or merged while they are read. Try again.")


def refuse_cluster(call: Call) -> None:
    if call.account.topology is not None:
        raise Failure(
            Kind.UNSUPPORTED,
            "Items of a cluster are not sampled: its nodes hold parts of a container. `armillary advise` reads them "
            "through the SQL API.",
        )
