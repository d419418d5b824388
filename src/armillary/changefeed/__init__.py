"""A consumer of change feeds for Python applications, with leases: several workers share the ranges of a container,
each change is handed over at least once, and where one stops or dies another goes on. It works with any server that
azure-cosmos works with, the cloud's included (docs/changefeed.md).
"""

try:
    import azure.cosmos.aio  # noqa: F401 - not needed by the server: an extra
except ImportError:
    raise ImportError("armillary.changefeed needs azure-cosmos: pip install 'armillary[changefeed]'") from None

from armillary.changefeed.consumer import ALL_VERSIONS, LATEST_VERSION, Changes, Consumer, run_consumer
from armillary.changefeed.lag import RangeLag, estimate_lag

__all__ = ["ALL_VERSIONS", "LATEST_VERSION", "Changes", "Consumer", "RangeLag", "estimate_lag", "run_consumer"]
