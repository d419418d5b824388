"""Every metric of the server: name, kind, labels and meaning, in the order in which they are written. The page of
documentation and the Grafana dashboard are checked against this table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from armillary.net.requests.request_watch import BOUNDS_S, Observed

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = tuple[tuple[str, str], ...]
Samples = Iterable[tuple[Labels, float]]


SUM, MOST, FIRST = "sum", "most", "first"

# What the first of several processes of a server says for all of them: it is told the figures of all partitions, and
# shares its disk with the others. Of further metrics the server's value is the sum, unless it is the largest.
_OF_FIRST: Final = frozenset(
    "info uptime_seconds partitions requests_total charge_request_units_total refused_total would_be_refused_total "
    "key_full_total partition_items partition_bytes partition_budget_request_units partition_spent_request_units "
    "fault_hits_total reshapes_running disk_free_bytes disk_size_bytes disk_reserve_bytes max_fds "
    "start_time_seconds".split()
)
_LARGEST: Final = frozenset(
    "read_only event_loop_lag_worst_seconds disk_full storage_failed storage_write_stopped".split()
)


class Metric(NamedTuple):
    name: str
    kind: str  # counter, gauge or histogram
    labels: tuple[str, ...]
    meaning: str
    over: str = SUM  # several processes


def _rows(prefix: str, *rows: tuple[str, str, str, str]) -> Iterator[Metric]:
    for name, kind, labels, meaning in rows:
        over = FIRST if name in _OF_FIRST else MOST if name in _LARGEST else SUM
        yield Metric(prefix + name, kind, tuple(labels.split()), meaning, over)


METRICS: Final[Sequence[Metric]] = (
    *_rows(
        "armillary_",
        ("info", "gauge", "version", "The server's version."),
        ("uptime_seconds", "gauge", "", "Since the server began to serve."),
        ("read_only", "gauge", "", "Whether the server refuses writes of clients (read-only mode)."),
        ("connections", "gauge", "door", "Open connections."),
        ("connections_max", "gauge", "", "Connections that the server accepts, over all doors."),
        ("request_duration_seconds", "histogram", "door operation", "From the whole request to its answer."),
        ("responses_total", "counter", "door operation status", "Answers by the status of the door's protocol."),
        ("errors_total", "counter", "door kind", "Refused requests by the kind of failure."),
        ("event_loop_lag_seconds", "histogram", "", "How late the event loop runs a timer."),
        ("event_loop_lag_worst_seconds", "gauge", "", "The longest delay of a timer since the last scrape."),
        ("metadata_requests_total", "counter", "", "Requests about databases, containers and other definitions."),
        (
            "metadata_charge_request_units_total",
            "counter",
            "",
            "Charged for requests about databases, containers and other definitions.",
        ),
        ("partitions", "gauge", "database container", "Physical partitions."),
        ("requests_total", "counter", "database container", "Requests about items, refused ones included."),
        ("charge_request_units_total", "counter", "database container", "Request units charged."),
        ("refused_total", "counter", "database container", "Requests beyond the budget, refused with 429."),
        (
            "would_be_refused_total",
            "counter",
            "database container",
            "Requests beyond the budget, served because budgets are only observed.",
        ),
        (
            "key_full_total",
            "counter",
            "database container",
            "Writes refused because their partition key is full (403/1014).",
        ),
        ("partition_items", "gauge", "database container partition", "Items in a physical partition."),
        ("partition_bytes", "gauge", "database container partition", "Bytes of items in a physical partition."),
        (
            "partition_budget_request_units",
            "gauge",
            "database container partition",
            "What a partition may spend in a second.",
        ),
        (
            "partition_spent_request_units",
            "gauge",
            "database container partition",
            "What a partition spent in the last second.",
        ),
        ("fault_hits_total", "counter", "rule", "Requests that a fault rule has hit."),
        ("reshapes_running", "gauge", "what", "Splits and merges that run."),
        (
            "upkeep_backlog",
            "gauge",
            "kind",
            "Partitions whose background work is due: TTL sweeps, old log entries, scans.",
        ),
        ("cache_hits_total", "counter", "cache", "Look-ups that a cache answered."),
        ("cache_misses_total", "counter", "cache", "Look-ups that a cache did not answer."),
        ("cache_entries", "gauge", "cache", "Entries of a cache."),
        ("disk_free_bytes", "gauge", "", "Free on the disk of the data directory."),
        ("disk_size_bytes", "gauge", "", "Size of that disk."),
        ("disk_reserve_bytes", "gauge", "", "Below it writes are refused (--disk-reserve)."),
        ("disk_full", "gauge", "", "Whether writes are refused because the disk is full."),
        ("storage_failed", "gauge", "", "Whether storage cannot be used for another reason."),
        ("storage_waiting_writes", "gauge", "", "Transactions that wait to be run."),
        ("storage_stalls_total", "counter", "", "Groups of writes that waited for RocksDB's compaction."),
        ("storage_level_files", "gauge", "level", "Table files of a level of RocksDB."),
        ("storage_level_bytes", "gauge", "level", "Bytes of a level of RocksDB."),
        ("storage_memtable_bytes", "gauge", "", "Written and not flushed to tables."),
        ("storage_block_cache_used_bytes", "gauge", "", "In RocksDB's block cache."),
        ("storage_block_cache_capacity_bytes", "gauge", "", "What the block cache may hold."),
        ("storage_table_readers_bytes", "gauge", "", "Memory of open table files."),
        ("storage_pending_compaction_bytes", "gauge", "", "That compaction has yet to rewrite (estimate)."),
        ("storage_running_compactions", "gauge", "", "Compactions that run."),
        ("storage_running_flushes", "gauge", "", "Flushes that run."),
        ("storage_write_stopped", "gauge", "", "Whether RocksDB refuses writes until compaction catches up."),
        ("cluster_leads", "gauge", "", "Whether this node leads."),
        ("cluster_epoch", "gauge", "", "Grows with every take-over."),
        ("cluster_drained", "gauge", "", "Whether this node is drained."),
        ("cluster_nodes", "gauge", "", "Nodes of the cluster."),
        ("cluster_live_nodes", "gauge", "", "Nodes that announce themselves."),
        ("cluster_forwards_total", "counter", "", "Requests sent to the leader."),
        ("cluster_lag_rows", "gauge", "", "Rows of the log not applied here."),
        ("cluster_lag_transactions", "gauge", "", "Transactions in those rows."),
        ("cluster_lag_seconds", "gauge", "", "Between the newest row and the last that is applied here."),
        ("cluster_log_readable", "gauge", "", "Whether PostgreSQL answers."),
        ("cluster_slowest_replica_rows", "gauge", "node", "Rows that the log keeps for the slowest replica."),
        ("cluster_log_bytes", "gauge", "", "Of the log in PostgreSQL."),
        ("cluster_log_dead_rows", "gauge", "", "Not vacuumed yet by PostgreSQL."),
        (
            "cluster_synchronous_standby_missing",
            "gauge",
            "",
            "Whether PostgreSQL waits for a synchronous standby and none is connected.",
        ),
    ),
    # The names that Prometheus gives these in all programs.
    *_rows(
        "process_",
        ("resident_memory_bytes", "gauge", "", "Memory of the server process (RSS)."),
        ("cpu_seconds_total", "counter", "", "Processor time of the server process, all its threads."),
        ("open_fds", "gauge", "", "Open file descriptors."),
        ("max_fds", "gauge", "", "File descriptors that the process may open."),
        ("start_time_seconds", "gauge", "", "When the server began, since 1970."),
    ),
)
_BY_NAME: Final = {metric.name: metric for metric in METRICS}


Sample = tuple[str, Labels]  # of a metric: the end of the name, which parts of a histogram have, and the labels
Told = list[tuple[str, str, Labels, float]]  # samples of another process, each behind its metric's name


class Page:
    """The text that Prometheus reads: metrics with samples, in the order of the table."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[Sample, float]] = {}

    @classmethod
    def of(cls, told: Told) -> Page:
        """Of another process alone."""
        page = cls()
        for name, end, labels, value in told:
            page._samples.setdefault(name, {})[end, labels] = value
        return page

    def add(self, name: str, samples: Samples) -> None:
        """`name`: of the table, without the prefix armillary_."""
        self._samples.setdefault(_metric(name).name, {}).update({("", labels): value for labels, value in samples})

    def add_one(self, name: str, value: float | None) -> None:
        """A metric without labels. None: it is not known."""
        if value is not None:
            self.add(name, [((), value)])

    def add_times(self, name: str, observed: Iterable[tuple[Labels, Observed]]) -> None:
        """A histogram."""
        samples = self._samples.setdefault(_metric(name).name, {})
        for labels, times in observed:
            total = 0
            for bound, count in zip((*map(repr, BOUNDS_S), "+Inf"), times.buckets, strict=True):
                total += count
                samples["_bucket", (*labels, ("le", bound))] = total
            samples["_sum", labels] = times.sum_s
            samples["_count", labels] = total

    def told(self) -> Told:
        """To another process."""
        return [
            (name, end, labels, value)
            for name, samples in self._samples.items()
            for (end, labels), value in samples.items()
        ]

    def adopt(self, told: Told) -> None:
        """Add what another process of the same server has counted."""
        for name, end, labels, value in told:
            over = _BY_NAME[name].over
            if over == FIRST:
                continue
            samples = self._samples.setdefault(name, {})
            before = samples.get((end, labels), 0)
            samples[end, labels] = max(before, value) if over == MOST else before + value

    def text(self, *, is_node: bool) -> str:
        """`is_node`: of a cluster. Metrics without a sample are named too."""
        made = []
        for metric in METRICS:
            if is_node or not metric.name.startswith("armillary_cluster_"):
                made.append(f"# HELP {metric.name} {metric.meaning}\n# TYPE {metric.name} {metric.kind}\n")
                for (end, labels), value in self._samples.get(metric.name, {}).items():
                    made.append(f"{metric.name}{end}{_braces(labels)} {value!r}\n")
        return "".join(made)


def _metric(name: str) -> Metric:
    return _BY_NAME.get(f"armillary_{name}") or _BY_NAME[name]


def _braces(labels: Labels) -> str:
    inside = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    return f"{{{inside}}}" if inside else ""
