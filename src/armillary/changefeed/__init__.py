"""A change feed processor for Python applications. Several workers share the ranges of a container through leases; each
change is delivered at least once, and the ranges of a worker that stops or dies are taken over by the others. It works
with every server that azure-cosmos works with, Azure Cosmos DB included (docs/changefeed.md).
"""

try:
    import azure.cosmos.aio  # noqa: F401 - not needed by the server: an extra
except ImportError:
    raise ImportError("armillary.changefeed needs azure-cosmos: pip install 'armillary[changefeed]'") from None

from armillary.changefeed.consumer import ALL_VERSIONS, LATEST_VERSION, Changes, Consumer, run_consumer
from armillary.changefeed.leases import RangeLag, estimate_lag

__all__ = ["ALL_VERSIONS", "LATEST_VERSION", "Changes", "Consumer", "RangeLag", "estimate_lag", "run_consumer"]
