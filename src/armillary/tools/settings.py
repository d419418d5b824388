"""Every setting of the server, in one table: the fields of `Settings`.

The command line, the ARMILLARY_* variables, the configuration file and docs/settings.md are all made from it, so they
cannot differ. Settings are only found, checked and named here; other modules act on them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from armillary import limits
from armillary.errors import bad_request
from armillary.tools import parsing
from armillary.tools.options import (
    HOST_AND_PORT,
    PEM_FILE,
    PORT,
    TRUTH,
    Given,
    Option,
    choice,
    of_environment,
    of_file,
    setting,
    size,
    value_of,
    whole_number,
)

if TYPE_CHECKING:  # imported for annotations only, so that `armillary version` starts fast
    from armillary.scripts.jail import Confinement
    from armillary.storage.private import Permissions

# The key that Microsoft publishes for its emulator, and the default of many clients. It is no secret, so it is for
# loopback only.
WELL_KNOWN_KEY: Final = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

TABLE_PORT: Final = 8902
MONGO_PORT: Final = 10255
GREMLIN_PORT: Final = 8901

_CONSISTENCY: Final = ("Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual")
_KEY: Final[dict[str, Any]] = {
    "parse": parsing.key,
    "expected": f"base64 of at least {limits.ACCOUNT_KEY_BYTES_MIN} bytes",
    "is_secret": True,
    "default_text": "none",
}


@dataclass(frozen=True, slots=True)
class Settings:
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
    account: str = setting(
        "account",
        "localhost",
        parsing.account_name,
        "3 to 44 lower-case letters, digits and hyphens",
        "The name of the account.",
    )
    key: str = setting(
        "key",
        WELL_KNOWN_KEY,
        **_KEY | {"default_text": "the emulator's well-known key"},
        meaning="The primary key. All users of the machine can read a command line: prefer the variable.",
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
        **_KEY | {"default_text": "generated at the first start and kept in the data directory; with --memory none"},
        meaning="The key of the control API and of the commands that use it. A server with --memory has a control API "
        "only if this is set.",
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
    durability: str = setting(
        "durability",
        "full",
        **choice("full", "relaxed"),
        meaning="full: acknowledged writes survive power loss. relaxed: they survive a crash of the process; power "
        "loss may lose the last tenth of a second.",
    )
    throughput: str = setting(
        "throughput",
        "observe",
        **choice("enforce", "observe", "off"),
        meaning="enforce: requests beyond the provisioned throughput are refused with 429. observe: all requests are "
        "served, and those that would have been refused are counted. off: there are no budgets; requests are charged "
        "and counted. The control API can set it for a container.",
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
    is_in_memory: bool = setting(
        "memory", False, **TRUTH, meaning="Keep all data in memory; nothing is written to disk."
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
    config: Path | None = setting(
        "config",
        None,
        parsing.path,
        "the path of a TOML file",
        "A file with any of the other settings.",
        default_text="none",
    )

    @property
    def is_public(self) -> bool:
        """Whether other machines may reach the doors."""
        return not parsing.is_loopback(self.host)

    @property
    def has_exposed_key(self) -> bool:
        """Whether other machines may reach the doors with the well-known key."""
        keys = (self.key, self.secondary_key, self.read_only_key, self.secondary_read_only_key)
        return self.is_public and WELL_KNOWN_KEY in keys

    @property
    def requires_tls(self) -> bool:
        if self.require_tls is not None:
            return self.require_tls
        return self.is_public and not self.allows_well_known_key

    @property
    def advertised_host(self) -> str | None:
        """The host of --advertise, without port and brackets."""
        return parsing.split_port(self.advertise)[0] if self.advertise is not None else None

    def advertised_address(self, port: int) -> str | None:
        """HOST:PORT as clients are to use it, with this port where --advertise names none."""
        if self.advertise is None:
            return None
        host, given = parsing.split_port(self.advertise)
        return f"{f'[{host}]' if ':' in host else host}:{given or port}"

    @property
    def mongo_address(self) -> str | None:
        """What clients of the MongoDB door are told to reach it at: HOST, or HOST:PORT if the port is not its own."""
        given = self.mongo_advertised_host or self.advertised_host
        return f"[{given}]" if given is not None and given.count(":") > 1 and "[" not in given else given

    def client_url(self, door: str, port: int) -> str:
        """Where clients reach a door that listens on this port."""
        host = self.advertised_host or {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
        if door == "sql":
            address = self.advertised_address(port) or address
        elif door == "mongo" and self.mongo_address is not None:
            has_port = ":" in self.mongo_address.rpartition("]")[2]
            address = self.mongo_address if has_port else f"{self.mongo_address}:{port}"
        return f"{self.scheme(door)}://{address}"

    def scheme(self, door: str) -> str:
        """Of a door's addresses: with TLS where that is required, or has a certificate that was made for it. MongoDB's
        say by an option whether they have it, not by their scheme."""
        secure = self.requires_tls or self.tls_certificate is not None
        return {"mongo": "mongodb", "gremlin": "wss" if secure else "ws"}.get(door, "https" if secure else "http")

    @property
    def named_hosts(self) -> list[str]:
        """The names besides loopback under which clients reach the server: of --host and --advertise."""
        names = [self.host] if not parsing.is_unspecified(self.host) else []
        names += [self.advertised_host] if self.advertised_host is not None else []
        return [name for name in dict.fromkeys(names) if name.lower() not in ("localhost", "127.0.0.1", "::1")]

    def check_exposure(self) -> None:
        """Refuse to open doors to other machines with the well-known key."""
        if self.has_exposed_key and not self.allows_well_known_key:
            raise bad_request(
                f"The host {self.host} can be reached from other machines, and the emulator's well-known key is known "
                "publicly. Set ARMILLARY_KEY to a key of your own (openssl rand -base64 64 makes one), or use "
                "--host 127.0.0.1. In a container whose ports are published to one machine only, "
                "--allow-well-known-key allows it."
            )
        if self.is_public and self.mongo_auth == "off":
            raise bad_request(
                f"The host {self.host} can be reached from other machines: with --mongo-auth off they would need "
                "no credentials. Use --host 127.0.0.1, or --mongo-auth on."
            )

    @property
    def accepts_aad(self) -> bool:
        return self.aad == "on" or (self.aad == "auto" and not self.is_public and self.key == WELL_KNOWN_KEY)


OPTIONS: Final[Mapping[str, Option]] = {
    each.metadata["option"].name: each.metadata["option"]._replace(attribute=each.name) for each in fields(Settings)
}


def resolve(command_line: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """The settings in force: command line, then environment, then file, then default. Refuses what it does not know."""
    typed = {name: Given(f"--{name}", "command line", value) for name, value in command_line.items()}
    found = of_environment(OPTIONS, environment) | typed
    if "config" in found:
        path: Path = value_of(OPTIONS["config"], found["config"])
        found = of_file(OPTIONS, path) | found
    values = {OPTIONS[name].attribute: value_of(OPTIONS[name], given) for name, given in found.items()}
    settings = Settings(**values)
    _check_together(settings, found)
    return settings


def _check_together(settings: Settings, found: Mapping[str, Given]) -> None:
    keys = (settings.key, settings.secondary_key, settings.read_only_key, settings.secondary_read_only_key)
    if settings.control_key is not None and settings.control_key in keys:
        raise bad_request("--control-key is the same as a key of the account. Set a different one.")
    if {settings.key, settings.secondary_key} & {settings.read_only_key, settings.secondary_read_only_key} - {None}:
        raise bad_request("A read-only key is the same as a key that allows writes. Set a different one.")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        missing, given = ("key", "certificate") if settings.tls_key is None else ("certificate", "key")
        raise bad_request(f"{found[f'tls-{given}'].source} needs --tls-{missing} as well. Set both.")
    for name in ("data", "durability"):
        if settings.is_in_memory and name in found and found[name].origin == found["memory"].origin:
            raise bad_request(
                f"{found['memory'].source} keeps nothing on disk, so {found[name].source} has no effect. Give "
                "only one of them."
            )


def document() -> str:
    """The text of docs/settings.md."""
    lines = [
        "# Settings of `armillary serve`",
        "",
        "Made from the code by `make docs`; do not edit. A setting is looked for on the command line, then in the",
        "environment, then in the TOML file that `--config` names (there without the leading dashes), and then has its",
        "default. Anything unknown is refused by name, in the file and among the `ARMILLARY_` variables.",
        "",
        "| Option | Variable | Value | Default | Meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `--{each.name}` | `{each.variable}` | {each.expected} | {each.default_text} | {each.meaning} |"
        for each in OPTIONS.values()
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
