"""Every setting of the server, in one table: the fields of `Settings`.

The command line, the ARMILLARY_* variables, the configuration file and docs/settings.md are all made from it, so they
cannot differ. Settings are only found, checked and named here; other modules act on them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from armillary import limits
from armillary.tools import parsing
from armillary.tools.exposure import WELL_KNOWN_KEY, Exposure
from armillary.tools.options import (
    HOST_AND_PORT,
    PEM_FILE,
    PORT,
    TRUTH,
    Option,
    choice,
    document,
    file_option,
    setting,
    size,
    size_or_zero,
    whole_number,
)
from armillary.tools.profiles import PROFILES, TODAY
from armillary.tools.serving.operating_settings import OperatingSettings

if TYPE_CHECKING:  # imported for annotations only, so that `armillary version` starts fast
    from armillary.doors.control.access.log_ins import PortalMode
    from armillary.doors.sql.merging_clients import QueryMode
    from armillary.scripts.jail import Confinement
    from armillary.storage.private import Permissions

TABLE_PORT: Final = 8902
MONGO_PORT: Final = 10255
GREMLIN_PORT: Final = 8901
CLUSTER_PORT: Final = 8903

_CONSISTENCY: Final = ("Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual")
_KEY: Final[dict[str, Any]] = {
    "parse": parsing.key,
    "expected": f"base64 of at least {limits.ACCOUNT_KEY_BYTES_MIN} bytes",
    "is_secret": True,
    "default_text": "none",
}


@dataclass(frozen=True, slots=True)
class Settings(OperatingSettings, Exposure):
    directory: Path = setting(
        "data", Path("armillary-data"), parsing.path, "the path of a directory", "The data directory."
    )
    data_permissions: Permissions = setting(
        "data-permissions",
        "private",
        **choice("private", "inherited"),
        meaning="private: only its owner may open the data directory (0700, files 0600). The server narrows wider "
        "permissions at the start, and refuses a directory of another user. inherited: the server leaves permissions "
        "as they are, for volumes that it cannot change.",
    )
    host: str = setting(
        "host", "127.0.0.1", parsing.host, "an IP address or host name", "The address that the doors listen on."
    )
    advertise: str | None = setting(
        "advertise",
        None,
        **HOST_AND_PORT,
        meaning="The address at which clients on other machines reach the server, if it is not the address that the "
        "server listens on. It is named in the account document and in the development certificate, and accepted in "
        "the Host header. The port is the SQL door's (default: the port that it listens on).",
        default_text="the address that the client used",
    )
    sql_port: int = setting("sql-port", 8081, **PORT, meaning="The port of the SQL door; 0 picks a free one.")
    gateway_port: int | None = setting(
        "gateway-port",
        None,
        **PORT,
        meaning="A second port of the SQL door, for clients that are configured with the address of a dedicated "
        "gateway (8903 in the emulator); 0 picks a free one. There is no cache behind it.",
        default_text="none",
    )
    table_port: int | None = setting(
        "table-port",
        None,
        **PORT,
        meaning="The port of the Table door; 0 picks a free one. If --sql-port is 0, so is the default.",
        default_text=str(TABLE_PORT),
    )
    table_flavor: str = setting(
        "table-flavor",
        "cosmos",
        **choice("cosmos", "storage"),
        meaning="The service whose limits, names and error codes the Table door has: Cosmos DB or Azure Storage.",
    )
    table_throughput_ru: int = setting(
        "table-throughput",
        limits.THROUGHPUT_MIN_RU,
        **whole_number(limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_MAX_RU, limits.THROUGHPUT_STEP_RU),
        meaning="Request units a second of a table that is created without a throughput (TableThroughput).",
    )
    mongo_port: int | None = setting(
        "mongo-port",
        None,
        **PORT,
        meaning="The port of the MongoDB door; 0 picks a free one. If --sql-port is 0, so is the default.",
        default_text=str(MONGO_PORT),
    )
    mongo_auth: str = setting(
        "mongo-auth",
        "on",
        **choice("on", "off"),
        meaning="off: clients of the MongoDB door need no credentials; on loopback only.",
    )
    mongo_version: str = setting(
        "mongo-server-version",
        "7.0",
        **choice("4.2", "4.4", "5.0", "6.0", "7.0", "8.0"),
        meaning="The MongoDB release that the MongoDB door reports. Current drivers require at least 4.4.",
    )
    mongo_advertised_host: str | None = setting(
        "mongo-advertised-host",
        None,
        **HOST_AND_PORT,
        meaning="The address that the MongoDB door names to its clients, if it is not the one that they connected to: "
        "behind a mapped port, for example.",
        default_text="the host of --advertise, else the address that the client used",
    )
    mongo_idle_s: int = setting(
        "mongo-idle-timeout",
        0,
        **whole_number(0, 86_400, unit="seconds"),
        meaning="The time after which the MongoDB door closes an idle connection (240 in the service); 0: never.",
    )
    mongo_throughput_ru: int = setting(
        "mongo-throughput",
        limits.THROUGHPUT_MIN_RU,
        **whole_number(limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_MAX_RU),
        meaning="Request units a second of a collection that is created without a throughput.",
    )
    mongo_transaction_s: int = setting(
        "mongo-transaction-limit",
        int(limits.MONGO_TRANSACTION_SECONDS),
        **whole_number(1, 3600, unit="seconds"),
        meaning="How long a transaction of the MongoDB door may stay open (5 in the service).",
    )
    has_mongo_test_commands: bool = setting(
        "mongo-test-commands",
        False,
        **TRUTH,
        meaning="Offer configureFailPoint, which makes commands fail: for tests of drivers.",
    )
    gremlin_port: int | None = setting(
        "gremlin-port",
        None,
        **PORT,
        meaning="The port of the Gremlin door; 0 picks a free one. If --sql-port is 0, so is the default.",
        default_text=str(GREMLIN_PORT),
    )
    gremlin_create: str | None = setting(
        "gremlin-create",
        None,
        parsing.key_path_or_none,
        "a path such as /region, or none",
        "Create graphs at their first use, with this partition key; none: without a partition key.",
        default_text="graphs are not created",
    )
    management_port: int | None = setting(
        "management-port",
        None,
        **PORT | {"default_text": "there is none"},
        meaning="The port of Azure's management API, for the management SDKs; 0 picks a free one.",
    )
    health_port: int | None = setting(
        "health-port",
        None,
        **PORT | {"default_text": "there is none"},
        meaning="A port for health checks by http and https: /alive, /ready, /status (8080 in the emulator's image).",
    )
    portal_port: int | None = setting(
        "portal-port",
        None,
        **PORT | {"default_text": "that of the SQL door alone"},
        meaning="A port of the portal without the SQL door (1234 in the emulator's image). With --portal off it has a "
        "page that says how to connect.",
    )
    account: str = setting(
        "account",
        "localhost",
        parsing.account_name,
        "3 to 44 lower-case letters, digits and hyphens",
        "The name of the account.",
    )
    region: str = setting(
        "region",
        limits.REGION,
        parsing.region,
        "1 to 64 printable ASCII characters without quotes",
        "The region of this server, as the account document names it to clients. Clients with preferred locations "
        "compare names without case and spaces.",
    )
    key: str = setting(
        "key",
        WELL_KNOWN_KEY,
        **_KEY | {"default_text": "the emulator's well-known key"},
        meaning="The primary key. All users of the machine can read a command line: prefer --key-file or the variable.",
    )
    secondary_key: str | None = setting(
        "secondary-key", None, **_KEY, meaning="A second key, so that keys can be changed without an interruption."
    )
    read_only_key: str | None = setting("read-only-key", None, **_KEY, meaning="A key that allows reads only.")
    secondary_read_only_key: str | None = setting(
        "secondary-read-only-key", None, **_KEY, meaning="A second key that allows reads only."
    )
    control_key: str | None = setting(
        "control-key",
        None,
        **_KEY
        | {"default_text": "made at the first start and kept in the data directory; with --memory at each start"},
        meaning="The key of the control API, of the commands that use it and of the portal.",
    )
    control_read_only_key: str | None = setting(
        "control-read-only-key",
        None,
        **_KEY,
        meaning="A second key of the control API that allows GET only: for Prometheus, and for people who look.",
    )
    portal: PortalMode = setting(
        "portal",
        "login",
        **choice("login", "read-only", "open", "off"),
        meaning="The portal at /_armillary/portal/. login: with the control key or `armillary portal`. read-only: it "
        "changes nothing, whatever key is used. open: without a key; on loopback only. off: a page "
        "without log-in says how to connect.",
    )
    allows_well_known_key: bool = setting(
        "allow-well-known-key",
        False,
        **TRUTH,
        meaning="Serve other machines with the emulator's well-known key, which is no secret: for containers whose "
        "ports are published to one machine only.",
    )
    tls_certificate: Path | None = setting(
        "tls-certificate",
        None,
        **PEM_FILE | {"default_text": "a development certificate, generated and kept in the data directory"},
        meaning="The server's certificate, followed in the same file by the chain that leads to its authority. SIGHUP "
        "reloads it.",
    )
    tls_key: Path | None = setting(
        "tls-key", None, **PEM_FILE, meaning="The private key of --tls-certificate, without a password."
    )
    tls_client_ca: Path | None = setting(
        "tls-client-ca",
        None,
        **PEM_FILE | {"default_text": "none: the control key is enough"},
        meaning="The authority of client certificates. The control API then requires TLS and a client certificate of "
        "this authority besides the control key. Health and readiness are answered without them.",
    )
    require_tls: bool | None = setting(
        "require-tls",
        None,
        **TRUTH | {"default_text": "true if --host can be reached from other machines, unless --allow-well-known-key"},
        meaning="Refuse connections without TLS at all doors. Health and readiness are answered over plain HTTP too.",
        is_flag=True,
    )
    aad: str = setting(
        "aad",
        "auto",
        **choice("auto", "on", "off"),
        meaning="Accept the emulator's form of Azure AD tokens; auto: on loopback with the well-known key only.",
    )
    consistency: str = setting(
        "consistency", "Session", **choice(*_CONSISTENCY), meaning="The account's default consistency level."
    )
    staleness_transactions: int = setting(
        "staleness-transactions",
        limits.STALENESS_TRANSACTIONS,
        **whole_number(limits.STALENESS_TRANSACTIONS_MIN, limits.STALENESS_TRANSACTIONS_MAX),
        meaning="How many transactions of the account a read at BoundedStaleness may be behind (K). A single server "
        "is never behind.",
    )
    staleness_s: int = setting(
        "staleness-seconds",
        limits.STALENESS_SECONDS,
        **whole_number(limits.STALENESS_SECONDS_MIN, limits.STALENESS_SECONDS_MAX, unit="seconds"),
        meaning="How old the state that a read at BoundedStaleness sees may be (T).",
    )
    durability: str = setting(
        "durability",
        "full",
        **choice("full", "relaxed"),
        meaning="full: acknowledged writes survive power loss. relaxed: they survive a crash of the process; power "
        "loss may lose the last tenth of a second.",
    )
    profile: str = setting(
        "profile",
        TODAY,
        **choice(*PROFILES),
        meaning="The edition of Microsoft's articles on partitioning whose figures are the defaults of --throughput, "
        "--partition-storage and other settings (docs/partitioning.md). Settings that are given come first.",
    )
    throughput: str = setting(
        "throughput",
        "observe",
        **choice("enforce", "observe", "off"),
        meaning="enforce: requests beyond the provisioned throughput are refused with 429. observe: all requests are "
        "served, and those that would have been refused are counted. off: there are no budgets; requests are charged "
        "and counted. The control API can set it for a container.",
    )
    queries: QueryMode = setting(
        "queries",
        "auto",
        **choice("auto", "strict", "merge"),
        meaning="Who merges the rows of a SQL query with ORDER BY, TOP, OFFSET, DISTINCT, GROUP BY or aggregates over "
        "several partitions. auto: the SDKs that can, as with the service; for other clients (Go's azcosmos, plain "
        "REST) the server. strict: always the client, so that what fails in the service fails here. merge: always the "
        "server, also what the SDKs refuse, such as GROUP BY in Python's.",
    )
    is_serverless: bool = setting(
        "serverless",
        False,
        **TRUTH,
        meaning="A serverless account: no throughput is provisioned, and each physical partition has "
        f"{limits.SERVERLESS_PARTITION_RU} request units a second.",
    )
    has_burst: bool = setting(
        "burst",
        False,
        **TRUTH,
        meaning=f"A partition with less than {limits.BURST_THROUGHPUT_RU} request units a second saves the units that "
        f"it does not use, for up to {limits.BURST_SECONDS_MAX} seconds, and may spend them at that rate.",
    )
    partition_throughput_ru: int = setting(
        "partition-throughput",
        limits.PARTITION_THROUGHPUT_RU,
        **whole_number(1, limits.THROUGHPUT_MAX_RU),
        meaning="The most request units a second that one physical partition may have.",
    )
    partition_headroom: str = setting(
        "partition-headroom",
        "on",
        **choice("on", "off"),
        meaning="How many partitions a new container with manual throughput T gets, where one carries t. on: "
        f"T / {limits.INITIAL_PARTITION_SHARE} t, as in the service. off: T / t, as Microsoft's articles say.",
    )
    partitioned_throughput_min_ru: int = setting(
        "partitioned-throughput-min",
        limits.THROUGHPUT_MIN_RU,
        **whole_number(limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_MAX_RU, limits.THROUGHPUT_STEP_RU),
        meaning="The least request units a second of a container with a partition key, and what it gets if it names "
        "none. Tables and containers that share the throughput of their database are exempt.",
    )
    throughput_max_ru: int = setting(
        "throughput-max",
        limits.THROUGHPUT_MAX_RU,
        **whole_number(limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_MAX_RU, limits.THROUGHPUT_STEP_RU),
        meaning="The most request units a second of a container or database.",
    )
    partition_storage_bytes: int = setting(
        "partition-storage",
        limits.PARTITION_STORAGE_BYTES,
        **size("50GB"),
        meaning="The size at which a physical partition is split.",
    )
    logical_partition_bytes_max: int = setting(
        "logical-partition-storage",
        limits.LOGICAL_PARTITION_BYTES_MAX,
        **size("20GB"),
        meaning="The most that the items of one partition key may take (formerly 10GB); never more than "
        "--partition-storage.",
    )
    merge_policy: str = setting(
        "merge-policy",
        "off",
        **choice("off", "on"),
        meaning="on: neighbouring partitions are merged when they are small together and each has less than "
        f"{limits.MERGE_PARTITION_RU_MAX} RU/s. off: only on request.",
    )
    history_memory_bytes: int = setting(
        "history-memory",
        limits.HISTORY_MEMORY_BYTES,
        **size_or_zero("32MB"),
        meaning="The most memory that the history of load may take, of which heat maps and verdicts on partition keys "
        "are made. 0: none is kept.",
    )
    is_in_memory: bool = setting(
        "memory", False, **TRUTH, meaning="Keep all data in memory; nothing is written to disk."
    )
    cluster: str | None = setting(
        "cluster",
        None,
        parsing.postgres_url,
        "a URL such as postgresql://user@host1,host2/database",
        "Be a node of the cluster whose replicated log this PostgreSQL database holds (docs/cluster.md). The URL may "
        "hold a password: prefer --cluster-file, the variable, or a password file of PostgreSQL.",
        default_text="a single server",
        is_secret=True,
    )
    allows_single_postgres: bool = setting(
        "cluster-single-postgres",
        False,
        **TRUTH,
        meaning="Accept a PostgreSQL server without a synchronous standby: what is acknowledged is lost with its disk.",
    )
    node: str | None = setting(
        "node",
        None,
        parsing.node_name,
        "1 to 63 lower-case letters, digits, hyphens and dots",
        "The name of this node of the cluster. It stays with the data directory.",
        default_text="made at the first start and kept in the data directory",
    )
    cluster_log_bytes: int = setting(
        "cluster-log-size",
        limits.LOG_BYTES_MAX,
        **size("64GB"),
        meaning="The size of the log at which it is kept no more for the replica that is furthest behind; its node "
        "builds it anew.",
    )
    cluster_log_hours: int = setting(
        "cluster-log-hours",
        int(limits.LOG_SECONDS_MAX // 3600),
        **whole_number(1, 8760, unit="hours"),
        meaning="The same for a replica that has flushed nothing of the log for so long.",
    )
    cluster_silence_s: int = setting(
        "cluster-silence-seconds",
        int(limits.FOLLOWER_SILENT_SECONDS),
        **whole_number(5, 86_400, unit="seconds"),
        meaning="How long a node of a cluster that hears nothing of the others answers reads. Then it answers 503: "
        "keys may have been revoked.",
    )
    cluster_port: int = setting(
        "cluster-port",
        CLUSTER_PORT,
        **PORT,
        meaning="The port on which a node of a cluster listens to the other nodes; 0 picks a free one.",
    )
    stops_with_stdin: bool = setting(
        "stop-with-stdin",
        False,
        **TRUTH,
        meaning="Stop when standard input ends. A program that starts the server with a pipe there takes it along, "
        "however the program ends.",
    )
    clock: str = setting(
        "clock",
        "system",
        **choice("system", "movable"),
        meaning="movable: the control API can stop and advance the clock, for tests of TTL, budgets and the expiry of "
        "resource tokens.",
    )
    script_confinement: Confinement = setting(
        "script-confinement",
        "filter",
        **choice("filter", "limits"),
        meaning="filter: scripts run only under a system-call filter (seccomp), and are refused on machines without "
        "one. limits: on such machines scripts run without the filter; for trusted scripts only.",
    )
    config: Path | None = setting(
        "config",
        None,
        parsing.path,
        "the path of a TOML file",
        "A file with any of the other settings.",
        default_text="none",
    )
    # Where values come from that are not defaults, by the names of their options.
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    warnings: tuple[str, ...] = field(default=(), repr=False, compare=False)  # for the log of a server
    has_secret_files: bool = field(default=False, repr=False, compare=False)  # that SIGHUP reads again


_INHERITED: Final = frozenset(each.name for each in fields(OperatingSettings))  # documented after the others
OPTIONS: Final[Mapping[str, Option]] = {
    each.metadata["option"].name: each.metadata["option"]._replace(attribute=each.name)
    for each in sorted(fields(Settings), key=lambda each: each.name in _INHERITED)
    if each.metadata
}
# Every name that the command line, the variables and the configuration file may have: the settings, and behind each
# secret one the file that may hold it.
ACCEPTED: Final[Mapping[str, Option]] = {
    each.name: each
    for option in OPTIONS.values()
    for each in ((option, file_option(option)) if option.is_secret else (option,))
}


if __name__ == "__main__":
    sys.stdout.write(document(ACCEPTED.values()))
