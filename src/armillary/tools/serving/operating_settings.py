"""Settings of how a server is operated: its processes, the number of a cluster's logs, logging, traces, the reserve of
the disk, read-only mode, its stop.

They are part of the table in `settings.py`. Those in `RELOADED` take effect on SIGHUP, without a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from armillary.cluster_limits import CLUSTER_LOGS_MAX, PROCESSES_MAX
from armillary.tools import parsing
from armillary.tools.options import TRUTH, choice, setting, size_or_zero, whole_number


@dataclass(frozen=True, slots=True)
class OperatingSettings:
    processes: int = setting(
        "processes",
        1,
        parsing.process_count,
        f"a whole number from 1 to {PROCESSES_MAX}, or auto",
        "How many processes serve the account, each with a part of the partitions: one uses one core. auto: as many as "
        "there are cores. What differs then: docs/processes.md.",
    )
    cluster_logs: int = setting(
        "cluster-logs",
        1,
        **whole_number(1, CLUSTER_LOGS_MAX),
        meaning="Into how many replicated logs the cluster divides its partitions, each led by another node: the same "
        "on all nodes, from the first start on (docs/cluster.md). It cannot be changed later.",
    )
    is_read_only: bool = setting(
        "read-only",
        False,
        **TRUTH,
        meaning="Refuse writes of clients at all doors; reads are answered. The control API switches it at run time. "
        "In a cluster set it on each node.",
    )
    disk_reserve_bytes: int = setting(
        "disk-reserve",
        0,
        **size_or_zero("512MB") | {"default_text": "0"},
        meaning="Space kept free on the disk of the data directory; 0: 2 % of the disk, within 64MB and 512MB. Below "
        "it writes are refused, except those that drop containers; below twice as much the server warns.",
    )
    has_storage_statistics: bool = setting(
        "storage-statistics",
        False,
        **TRUTH,
        meaning="Count hits and misses of the storage engine's block cache, for the metrics. Costs about a tenth of a "
        "read from storage.",
    )
    drain_s: int = setting(
        "drain-seconds",
        5,
        **whole_number(0, 3600, unit="seconds"),
        meaning="How long a stop (SIGTERM) waits for running requests before it cuts them off.",
    )
    log_level: str = setting(
        "log-level",
        "info",
        **choice("debug", "info", "warning", "error"),
        meaning="The least severity that is logged to standard error.",
    )
    log_format: str = setting(
        "log-format",
        "text",
        **choice("text", "json"),
        meaning="The form of the log, including the security log: lines of text, or one JSON object a line.",
    )
    log_requests: str = setting(
        "log-requests",
        "off",
        parsing.off_errors_share_or_all,
        "one of off, errors, all, or a share from 0 to 1 such as 0.01",
        "Requests that are logged, one line each, without values of documents. off: none; failures of the server are "
        "logged in any case. errors: those that were refused. A share: so many of all, and those that were refused.",
        words=("off", "errors", "all"),
        is_number=True,
    )
    log_slow_ms: int = setting(
        "log-slow",
        0,
        **whole_number(0, 3_600_000, unit="milliseconds"),
        meaning="Log each request that takes at least so long, with its charge, the partitions that it visited and the "
        "paths that it searched by; 0: none.",
    )
    tracing: str | None = setting(
        "tracing",
        None,
        parsing.http_url,
        "the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318/v1/traces",
        "Send a span for each request to this receiver (OpenTelemetry). Needs the packages of the extra `tracing`.",
        default_text="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, else none",
    )
    tracing_share: float = setting(
        "tracing-share",
        1.0,
        parsing.share,
        "a number from 0 to 1",
        "The share of requests without a sampled trace context that get a span.",
        is_number=True,
    )

    def reserve_bytes(self) -> int | None:
        """None: the engine's default."""
        return self.disk_reserve_bytes or None


# Settings that SIGHUP applies, by the names of their options.
RELOADED: Final = frozenset(
    ("read-only", "disk-reserve", "log-level", "log-requests", "log-slow", "tracing-share", "drain-seconds")
)
