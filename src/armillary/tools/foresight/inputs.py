"""What the foresight commands share: reading the workload, prices and times that they are given, writing a report, and
lines that fit a terminal of 80 columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from armillary.errors import Failure, Kind, bad_request
from armillary.insight.planning.estimate import INDEX_SHARE_CLOUD
from armillary.insight.planning.partition_counts import PartitionLimits
from armillary.insight.planning.prices import Prices, own_prices, parse_prices
from armillary.insight.planning.toml_tables import duration_s, size_bytes
from armillary.insight.planning.workload import Workload
from armillary.tools.profiles import TODAY
from armillary.tools.resolve import resolve
from armillary.tools.screen import Screen, size

COLUMNS: Final = 80
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_SEED_MAX: Final = 10**9
BOUNDS: Final = ("partition_storage", "logical_partition_storage", "partition_throughput")  # options

_PACKAGES: Final = ("numpy", "datasketches")  # of the extra


@contextmanager
def extra_packages(command: str) -> Iterator[None]:
    """Around the imports of a command's modules: the packages of the extra `foresight` may be missing."""
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise Failure(
            Kind.UNSUPPORTED,
            f"armillary {command} needs {package}, which is not installed: pip install 'armillary[foresight]'.",
        ) from None


def read_text(name: str) -> str:
    """A file that an option or a workload names."""
    file = Path(name)
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            raise bad_request(f"{name} is larger than {size(_FILE_BYTES_MAX)}.")
        return file.read_text("utf-8")
    except OSError as error:
        raise bad_request(f"{name} cannot be read: {error.strerror or 'unknown reason'}.") from None
    except UnicodeDecodeError:
        raise bad_request(f"{name} is not UTF-8 text.") from None


def reader_beside(workload: str) -> Any:
    """Reads files that a workload names, from where it lies."""
    return lambda name: read_text(str(Path(workload).parent / name))


def asked_prices(arguments: dict[str, Any]) -> Prices:
    return parse_prices(read_text(arguments["prices"])) if "prices" in arguments else own_prices()


def price_warnings(prices: Prices) -> list[str]:
    warning = prices.warning(datetime.now(UTC).date())
    return [warning] if warning is not None else []


def asked_seed(arguments: dict[str, Any]) -> int:
    seed = int(arguments.get("seed", 1))
    if not 0 <= seed <= _SEED_MAX:
        raise bad_request(f"--seed is {seed}; expected a number from 0 to {_SEED_MAX}.")
    return seed


def asked_time_s(arguments: dict[str, Any], name: str, option: str, default_s: float) -> float:
    if name not in arguments:
        return default_s
    try:
        return duration_s(arguments[name])
    except ValueError:
        raise bad_request(f"{option} is {arguments[name]!r}; expected a time such as 30d, 12mo or PT12H.") from None


def asked_limits(arguments: dict[str, Any]) -> PartitionLimits:
    """Those of a server of the edition that --profile names, or today's."""
    settings = resolve({"profile": arguments.get("profile", TODAY)}, {})
    return PartitionLimits(
        settings.partition_storage_bytes,
        min(settings.logical_partition_bytes_max, settings.partition_storage_bytes),
        settings.partition_throughput_ru,
        settings.partition_headroom == "on",
        settings.partitioned_throughput_min_ru,
        settings.throughput_max_ru,
    )


def asked_bounds(arguments: dict[str, Any], known: PartitionLimits) -> PartitionLimits:
    """What options say of partitions, instead of the workload, the profile or the server."""
    storage = asked_size(arguments, "partition_storage", known.storage_bytes)
    logical = asked_size(arguments, "logical_partition_storage", known.logical_bytes)
    throughput = arguments.get("partition_throughput", known.throughput_ru)
    if throughput < 1 or not storage or not logical:
        raise bad_request("The limits of partitions are numbers from 1 on.")
    # A key lies in one partition, so that it cannot hold more than that.
    return replace(known, storage_bytes=storage, logical_bytes=min(logical, storage), throughput_ru=throughput)


def with_asked_bounds(workload: Workload, arguments: dict[str, Any]) -> Workload:
    return replace(workload, bounds=asked_bounds(arguments, workload.bounds))


def asked_size(arguments: dict[str, Any], name: str, default: int) -> int:
    try:
        return size_bytes(arguments[name]) if name in arguments else default
    except ValueError:
        option = name.replace("_", "-")
        raise bad_request(f"--{option} is {arguments[name]!r}; expected a size such as 1KB or 500GB.") from None


def asked_index_share(arguments: dict[str, Any]) -> float:
    """What the index adds to the bytes: the service counts it, this engine does not."""
    is_cloud = arguments.get("place") == "cloud"
    share = float(arguments.get("index_share", INDEX_SHARE_CLOUD if is_cloud else 0.0))
    if "index_share" in arguments and not is_cloud:
        raise bad_request("--index-share goes with --as cloud: this engine does not count the index as storage.")
    if not 0.0 <= share <= 10.0:
        raise bad_request(f"--index-share is {share:g}; expected a number from 0 to 10.")
    return share


def say_wrapped(screen: Screen, text: str, mark: str = "") -> None:
    """A paragraph of at most 80 columns; further lines are indented below the mark."""
    for line in textwrap.wrap(mark + text, COLUMNS, subsequent_indent=" " * len(mark), break_on_hyphens=False):
        screen.say(line)


def say_points(screen: Screen, heading: str, points: list[str]) -> None:
    if points:
        screen.say("")
        screen.heading(heading)
        for point in points:
            say_wrapped(screen, point, "- ")
