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
from armillary.tools.options import Given, Option, of_environment, of_file, value_of
from armillary.tools.options import choice as _choice
from armillary.tools.options import setting as _setting

if TYPE_CHECKING:  # nothing is imported for a setting: `armillary version` is not to wait for it
    from armillary.scripts.jail import Confinement
    from armillary.storage.private import Permissions

# Published by Microsoft for its emulator, and the default of many clients: good on loopback, no secret at all.
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
    directory: Path = _setting(
        "data", Path("armillary-data"), parsing.path, "the path of a directory", "Where everything is kept."
    )
    data_permissions: Permissions = _setting(
        "data-permissions",
        "private",
        **_choice("private", "inherited"),
        meaning="private: the data directory is for its owner alone (0700, files 0600); one that is open to others is "
        "narrowed at the start, another user's is refused. inherited: it is taken as it is, for volumes of containers "
        "that cannot be changed.",
    )
    host: str = _setting(
        "host", "127.0.0.1", parsing.host, "an IP address or host name", "The address that the doors listen on."
    )
    advertise: str | None = _setting(
        "advertise",
        None,
        parsing.host_and_port,
        "a host name or address, perhaps with a port",
        "Where clients on other machines reach the server, if that is not the address that it listens on: the name in "
        "the account document and in the development certificate, and a Host that requests may be for. The port is the "
        "SQL door's; without one it is the port that it listens on.",
        default_text="the address that the client used",
    )
    sql_port: int = _setting(
        "sql-port",
        8081,
        parsing.whole_number(0, 65535),
        "a port from 0 to 65535",
        "The port of the SQL door; 0 picks a free one.",
        is_number=True,
    )
    table_port: int | None = _setting(
        "table-port",
        None,
        parsing.whole_number(0, 65535),
        "a port from 0 to 65535",
        "The port of the Table door; 0 picks a free one, as it does without this setting where the SQL door's is 0.",
        default_text=str(TABLE_PORT),
        is_number=True,
    )
    table_flavor: str = _setting(
        "table-flavor",
        "cosmos",
        **_choice("cosmos", "storage"),
        meaning="Whose limits, names and error codes the Table door has: those of Cosmos DB or of Azure Storage.",
    )
    table_throughput_ru: int = _setting(
        "table-throughput",
        limits.THROUGHPUT_MIN_RU,
        parsing.whole_number(limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_MAX_RU, limits.THROUGHPUT_STEP_RU),
        f"a multiple of {limits.THROUGHPUT_STEP_RU} from {limits.THROUGHPUT_MIN_RU} to {limits.THROUGHPUT_MAX_RU}",
        "Request units a second of tables that are made without saying how many (TableThroughput).",
        is_number=True,
    )
    mongo_port: int | None = _setting(
        "mongo-port",
        None,
        parsing.whole_number(0, 65535),
        "a port from 0 to 65535",
        "The port of the MongoDB door; 0 picks a free one, as it does without this setting where the SQL door's is 0.",
        default_text=str(MONGO_PORT),
        is_number=True,
    )
    mongo_auth: str = _setting(
        "mongo-auth",
        "on",
        **_choice("on", "off"),
        meaning="off: clients of the MongoDB door need no credentials; on loopback only.",
    )
    mongo_version: str = _setting(
        "mongo-server-version",
        "7.0",
        **_choice("4.2", "4.4", "5.0", "6.0", "7.0", "8.0"),
        meaning="The MongoDB release that the MongoDB door answers for. Current drivers want at least 4.4.",
    )
    mongo_advertised_host: str | None = _setting(
        "mongo-advertised-host",
        None,
        parsing.host_and_port,
        "a host name or address, perhaps with a port",
        "What clients of the MongoDB door are told to reach it at, where that is not the address they came to, as "
        "behind a mapped port.",
        default_text="the host of --advertise, else the address that was reached",
    )
    mongo_idle_s: int = _setting(
        "mongo-idle-timeout",
        0,
        parsing.whole_number(0, 86_400),
        "a whole number of seconds from 0 to 86400",
        "After how long a silent connection of the MongoDB door is closed (240 in the service); 0: never.",
        is_number=True,
    )
    mongo_throughput_ru: int = _setting(
        "mongo-throughput",
        limits.THROUGHPUT_MIN_RU,
        parsing.whole_number(limits.THROUGHPUT_MIN_RU, limits.THROUGHPUT_MAX_RU),
        f"a whole number from {limits.THROUGHPUT_MIN_RU} to {limits.THROUGHPUT_MAX_RU}",
        "Request units a second of collections that are made without saying how many.",
        is_number=True,
    )
    mongo_transaction_s: int = _setting(
        "mongo-transaction-limit",
        int(limits.MONGO_TRANSACTION_SECONDS),
        parsing.whole_number(1, 3600),
        "a whole number of seconds from 1 to 3600",
        "How long a transaction of the MongoDB door may stay open (5 in the service).",
        is_number=True,
    )
    has_mongo_test_commands: bool = _setting(
        "mongo-test-commands",
        False,
        parsing.truth,
        "true or false",
        "Offer configureFailPoint, which makes commands fail: for tests of drivers.",
        default_text="false",
    )
    gremlin_port: int | None = _setting(
        "gremlin-port",
        None,
        parsing.whole_number(0, 65535),
        "a port from 0 to 65535",
        "The port of the Gremlin door; 0 picks a free one, as it does without this setting where the SQL door's is 0.",
        default_text=str(GREMLIN_PORT),
        is_number=True,
    )
    gremlin_create: str | None = _setting(
        "gremlin-create",
        None,
        parsing.key_path_or_none,
        "a path such as /region, or none",
        "Make graphs when they are first used, partitioned by this property; none: without a partition key.",
        default_text="graphs must be there",
    )
    account: str = _setting(
        "account",
        "localhost",
        parsing.account_name,
        "3 to 44 lower-case letters, digits and hyphens",
        "The name of the account.",
    )
    key: str = _setting(
        "key",
        WELL_KNOWN_KEY,
        **_KEY | {"default_text": "the emulator's well-known key"},
        meaning="The primary key. Every user of the machine sees a command line: prefer the variable.",
    )
    secondary_key: str | None = _setting("secondary-key", None, **_KEY, meaning="A second key, for changing keys.")
    read_only_key: str | None = _setting("read-only-key", None, **_KEY, meaning="A key that may only read.")
    secondary_read_only_key: str | None = _setting(
        "secondary-read-only-key", None, **_KEY, meaning="A second key that may only read."
    )
    control_key: str | None = _setting(
        "control-key",
        None,
        **_KEY | {"default_text": "made at the first start and kept with the data; in memory none"},
        meaning="The key of the control API and of the commands that use it. Without one a server in memory has no "
        "control API.",
    )
    allows_well_known_key: bool = _setting(
        "allow-well-known-key",
        False,
        parsing.truth,
        "true or false",
        "Serve other machines with the emulator's well-known key, which is no secret: for containers whose ports are "
        "published to one machine only.",
        default_text="false",
    )
    tls_certificate: Path | None = _setting(
        "tls-certificate",
        None,
        parsing.path,
        "the path of a PEM file",
        "The server's certificate, followed in the same file by the chain that leads to its authority. Read again on "
        "SIGHUP.",
        default_text="a development certificate that is made and kept with the data",
    )
    tls_key: Path | None = _setting(
        "tls-key",
        None,
        parsing.path,
        "the path of a PEM file",
        "The private key of --tls-certificate, without a password.",
        default_text="none",
    )
    tls_client_ca: Path | None = _setting(
        "tls-client-ca",
        None,
        parsing.path,
        "the path of a PEM file",
        "The authority of client certificates: with it, the control API answers only over TLS to clients that show a "
        "certificate of this authority, and need the control key as well. Health and readiness are told to all.",
        default_text="none: the control key is enough",
    )
    require_tls: bool | None = _setting(
        "require-tls",
        None,
        parsing.truth,
        "true or false",
        "Refuse connections without TLS at all doors; health and readiness are told over plain HTTP all the same.",
        default_text="true where the host can be reached from other machines, unless --allow-well-known-key is given",
        is_flag=True,
    )
    aad: str = _setting(
        "aad",
        "auto",
        **_choice("auto", "on", "off"),
        meaning="Accept the emulator's form of Azure AD tokens; auto: on loopback with the well-known key only.",
    )
    consistency: str = _setting(
        "consistency", "Session", **_choice(*_CONSISTENCY), meaning="The account's default consistency level."
    )
    durability: str = _setting(
        "durability",
        "full",
        **_choice("full", "relaxed"),
        meaning="full: acknowledged writes survive power loss. relaxed: they survive the end of the process, but power "
        "loss may cost the last tenth of a second.",
    )
    throughput: str = _setting(
        "throughput",
        "observe",
        **_choice("enforce", "observe", "off"),
        meaning="enforce: refuse what is beyond the provisioned throughput, with 429. observe: serve everything, and "
        "count what would have been refused. off: no budgets; charges are answered and counted all the same. The "
        "control API can set it for a container.",
    )
    is_serverless: bool = _setting(
        "serverless",
        False,
        parsing.truth,
        "true or false",
        "A serverless account: no throughput is provisioned, and each physical partition has "
        f"{limits.SERVERLESS_PARTITION_RU} request units a second.",
        default_text="false",
    )
    has_burst: bool = _setting(
        "burst",
        False,
        parsing.truth,
        "true or false",
        f"Partitions with less than {limits.BURST_THROUGHPUT_RU} request units a second save up what they do not use, "
        f"for up to {limits.BURST_SECONDS_MAX} seconds, and may spend it at that rate.",
        default_text="false",
    )
    partition_throughput_ru: int = _setting(
        "partition-throughput",
        limits.PARTITION_THROUGHPUT_RU,
        parsing.whole_number(1, limits.THROUGHPUT_MAX_RU),
        f"a whole number from 1 to {limits.THROUGHPUT_MAX_RU}",
        "Request units a second that one physical partition carries.",
        is_number=True,
    )
    partition_storage_bytes: int = _setting(
        "partition-storage",
        limits.PARTITION_STORAGE_BYTES,
        parsing.size_bytes,
        "a size of at least 1KB such as 50GB, 2MB or a number of bytes",
        "How much one physical partition stores; with more in it, it is split.",
        default_text="50GB",
        is_number=True,
    )
    logical_partition_bytes_max: int = _setting(
        "logical-partition-storage",
        limits.LOGICAL_PARTITION_BYTES_MAX,
        parsing.size_bytes,
        "a size of at least 1KB such as 20GB, 2MB or a number of bytes",
        "How much the items of one partition key may take (10GB once); never more than a physical partition stores.",
        default_text="20GB",
        is_number=True,
    )
    merge_policy: str = _setting(
        "merge-policy",
        "off",
        **_choice("off", "on"),
        meaning="on: neighbouring partitions are merged when they hold little together and each carries less than "
        f"{limits.MERGE_PARTITION_RU_MAX} RU/s. off: only on request.",
    )
    is_in_memory: bool = _setting(
        "memory", False, parsing.truth, "true or false", "Keep nothing on disk.", default_text="false"
    )
    clock: str = _setting(
        "clock",
        "system",
        **_choice("system", "movable"),
        meaning="movable: the control API can stop the time and move it on, for tests of what depends on it: time to "
        "live, budgets, the ends of resource tokens.",
    )
    script_confinement: Confinement = _setting(
        "script-confinement",
        "filter",
        **_choice("filter", "limits"),
        meaning="filter: JavaScript runs only in processes that a filter of system calls (seccomp) confines, and is "
        "refused where the kernel or the architecture has none. limits: there it runs without the filter, for scripts "
        "that are trusted.",
    )
    log_level: str = _setting(
        "log-level",
        "info",
        **_choice("debug", "info", "warning", "error"),
        meaning="How much is logged to standard error.",
    )
    log_format: str = _setting(
        "log-format",
        "text",
        **_choice("text", "json"),
        meaning="The form of the log, the security log included: lines of text, or a JSON object a line.",
    )
    config: Path | None = _setting(
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
                "to everybody. Set ARMILLARY_KEY to a key of your own (openssl rand -base64 64 makes one), or use the "
                "host 127.0.0.1. In a container whose ports are published to one machine only, "
                "--allow-well-known-key allows it."
            )
        if self.is_public and self.mongo_auth == "off":
            raise bad_request(
                f"The host {self.host} can be reached from other machines: --mongo-auth off would let everybody in. "
                "Use the host 127.0.0.1, or leave it on."
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
        raise bad_request("The control key is also a key of the account. Set different ones.")
    if {settings.key, settings.secondary_key} & {settings.read_only_key, settings.secondary_read_only_key} - {None}:
        raise bad_request("A read-only key is the same as a key that may write. Set different ones.")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        missing, given = ("key", "certificate") if settings.tls_key is None else ("certificate", "key")
        raise bad_request(f"{found[f'tls-{given}'].source} has no meaning without --tls-{missing}.")
    for name in ("data", "durability"):
        if settings.is_in_memory and name in found and found[name].origin == found["memory"].origin:
            raise bad_request(
                f"{found['memory'].source} keeps nothing on disk, so {found[name].source} has no meaning."
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
