"""The doors of an account, as the settings want them. A single server has them for as long as it runs; a node of a
cluster makes them anew for each account that it opens in another role. Their ports are opened by `ports.py`.

All but the SQL and the control door are made, and their modules imported, with the first connection to their port.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from armillary.account.account import Account
from armillary.account.collections.new_collections import PENDING
from armillary.account.registry import AccountSettings
from armillary.account.security.credentials import Credentials
from armillary.clock import Clock, MovableClock
from armillary.doors.control.access.log_ins import LogIns
from armillary.doors.control.call import ServerFacts
from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.doors.control.door import ControlDoor
from armillary.doors.control.foresight.jobs import Jobs
from armillary.doors.control.live.long_polls import LongPolls
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.sql.door import SqlDoor
from armillary.late import Late
from armillary.net.control_keys import ControlKeys
from armillary.net.hosts import HostNames
from armillary.net.http import DoorsByPrefix
from armillary.net.listen import Listener
from armillary.portal.bridges import Bridges
from armillary.portal.door import PortalDoor
from armillary.portal.entrance_pages import CERTIFICATE_PATH
from armillary.portal.policy import PREFIX as PORTAL_PREFIX
from armillary.portal.policy import redirect_browser
from armillary.portal.static_files import StaticFiles
from armillary.tools.control_file import control_key as made_key
from armillary.tools.control_file import new_control_key
from armillary.tools.exposure import PUBLIC_KEYS, keys_of
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.server_facts import facts_of, instance_of, tell_ports
from armillary.tools.settings import Settings

if TYPE_CHECKING:
    from armillary.doors.gremlin.door import GremlinDoor
    from armillary.doors.management.door import ManagementDoor
    from armillary.doors.mongo.door import MongoDoor
    from armillary.doors.table.door import TableDoor
    from armillary.portal.language_bridges import LanguageBridges

log = logging.getLogger("armillary")

HISTORY_FILE: Final = "history"  # of load, beside the engine's files in the data directory
CAPTURES_DIRECTORY: Final = "captures"  # of requests, likewise


@dataclass(frozen=True, slots=True)
class Doors:
    """Made by `make_doors`."""

    credentials: Credentials
    sql: SqlDoor
    control: ControlDoor
    late_table: Late[TableDoor]
    late_mongo: Late[MongoDoor]
    late_gremlin: Late[GremlinDoor]
    late_management: Late[ManagementDoor]
    sql_port: (
        DoorsByPrefix  # the SQL door, and on the same port under prefixes of their own the portal and the control door
    )

    @property
    def table(self) -> TableDoor:
        return self.late_table.get()

    @property
    def mongo(self) -> MongoDoor:
        return self.late_mongo.get()

    @property
    def gremlin(self) -> GremlinDoor:
        return self.late_gremlin.get()

    @property
    def management(self) -> ManagementDoor:
        return self.late_management.get()

    async def load(self) -> None:
        """Make all of them now, for a node of a cluster, whose fronts hold doors rather than connections."""
        await self.late_table.load()
        await self.late_mongo.load()
        await self.late_gremlin.load()
        await self.late_management.load()

    def use(self, settings: Settings, listeners: Mapping[str, Listener]) -> None:
        """The ports are open: what doors tell of their addresses, and background work of those that are reached."""
        sql = listeners["sql"]
        self.sql.advertised = settings.advertised_address(sql.port)
        self.control.connection_count = lambda: sql.service.connection_count
        self.control.addresses = addresses = {
            name: settings.client_url(name, each.port) for name, each in listeners.items()
        }
        self.late_management.when_made(lambda door: setattr(door, "addresses", addresses))
        tell_ports(self.control.facts, settings, listeners)
        if "mongo" in listeners:
            self.late_mongo.when_made(lambda door: door.start())
            if any(each.name.startswith(PENDING) for each in self.sql.account.containers):
                self.late_mongo.get()  # it deletes the collections of transactions that the last stop interrupted

    async def close(self) -> None:
        """After the last connection."""
        if self.late_mongo.made is not None:
            await self.late_mongo.made.close()


class Kept(NamedTuple):
    """What stays when a node of a cluster makes its doors anew."""

    control_key: str
    log_ins: LogIns
    facts: ServerFacts
    files: StaticFiles
    long_polls: LongPolls
    jobs: Jobs
    runtime: Runtime

    @classmethod
    def made(cls, settings: Settings, machine: Clock, control_key: str, runtime: Runtime) -> Kept:
        """`control_key`: see `control_key_of`."""
        instance = instance_of(settings, control_key, machine)
        log_ins = LogIns(machine, instance, settings.portal)
        facts = facts_of(settings, machine, runtime)
        return cls(control_key, log_ins, facts, StaticFiles(), LongPolls(machine), Jobs(), runtime)


async def make_doors(
    settings: Settings, account: Account, machine: Clock, kept: Kept, hidden: set[str | None]
) -> Doors:
    """Keys that must not be logged are added to `hidden`."""
    kept.runtime.adopt(account)
    credentials = await Credentials.open(account, keys_of(settings))
    kept.runtime.credentials = credentials
    hidden.update(credentials.keys.values())
    credentials.on_change.append(lambda: hidden.update(credentials.keys.values()))
    hidden.add(kept.control_key)
    sql = SqlDoor(
        account,
        _account_keys(credentials),
        accepts_aad=settings.accepts_aad,
        signing_clock=machine,
        queries=settings.queries,
    )
    credentials.on_change.append(lambda: sql.use_keys(_account_keys(credentials)))
    control = ControlDoor(
        account,
        kept.control_key,
        hosts=host_names(settings),
        needs_certificate=settings.tls_client_ca is not None,
        clock=account.clock if isinstance(account.clock, MovableClock) else None,
        credentials=credentials,
        read_only_key=settings.control_read_only_key,
        log_ins=kept.log_ins,
        facts=kept.facts,
        long_polls=kept.long_polls,
        jobs=kept.jobs,
    )
    table = _table_door(settings, account, machine, credentials)
    mongo = _mongo_door(settings, account, machine, credentials)
    gremlin = _gremlin_door(settings, account, credentials)
    management = _management_door(settings, account, credentials, kept)
    sql.throttle = control.throttle = credentials.sign_in_throttle

    def add_throttle(door: Any) -> None:
        door.throttle = credentials.sign_in_throttle

    def add_watch(door: Any) -> None:
        door.watch = kept.runtime.watch

    lates: tuple[Late[Any], ...] = (table, mongo, gremlin, management)
    for late in lates:
        late.when_made(add_throttle)
    mongo.when_made(add_watch)
    gremlin.when_made(add_watch)
    if settings.gremlin_create not in (None, "none"):
        gremlin.get()  # refuses a path that cannot be a partition key
    bridges = Bridges(sql, _language_bridges(mongo, gremlin))
    portal = PortalDoor(control, kept.files, bridges)
    sql_port = DoorsByPrefix(
        sql, ((PORTAL_PREFIX, portal), (CERTIFICATE_PATH, portal), (CONTROL_PREFIX, control)), redirect_browser
    )
    return Doors(credentials, sql, control, table, mongo, gremlin, management, sql_port)


def _table_door(settings: Settings, account: Account, machine: Clock, credentials: Credentials) -> Late[TableDoor]:
    def make() -> TableDoor:
        from armillary.doors.table.access.authentication import Keys
        from armillary.doors.table.call import TableSettings
        from armillary.doors.table.door import TableDoor

        keys = Keys(credentials.owners, credentials.readers)
        credentials.on_change.append(lambda: keys.use(credentials.owners, credentials.readers))
        options = TableSettings(settings.table_flavor, settings.table_throughput_ru)
        return TableDoor(account, keys, options, signing_clock=machine)

    return Late(make, "armillary.doors.table.door")


def _mongo_door(settings: Settings, account: Account, machine: Clock, credentials: Credentials) -> Late[MongoDoor]:
    begun_s = machine.monotonic_s()

    def make() -> MongoDoor:
        from armillary.doors.mongo.door import MongoDoor
        from armillary.doors.mongo.settings import MongoSettings

        options = MongoSettings(
            version=settings.mongo_version,
            needs_authentication=settings.mongo_auth == "on",
            advertised_host=settings.mongo_address,
            has_test_commands=settings.has_mongo_test_commands,
            transaction_s=float(settings.mongo_transaction_s),
            throughput_ru=settings.mongo_throughput_ru,
        )
        owners, readers = credentials.owners, credentials.readers
        door = MongoDoor(account, owners, readers, options, machine=machine, begun_s=begun_s)
        credentials.on_change.append(lambda: door.use_keys(credentials.owners, credentials.readers))
        return door

    return Late(make, "armillary.doors.mongo.door", "armillary.doors.mongo.wire.connection")


def _gremlin_door(settings: Settings, account: Account, credentials: Credentials) -> Late[GremlinDoor]:
    def make() -> GremlinDoor:
        from armillary.doors.gremlin.authentication import Keys
        from armillary.doors.gremlin.door import GremlinDoor, GremlinSettings

        keys = Keys(credentials.owners, credentials.readers)
        tokens = TokenAuthority(account.settings.name, _account_keys(credentials).token_secret(), account.clock)

        def use_keys() -> None:
            present = _account_keys(credentials)
            keys.use(credentials.owners, credentials.readers)
            tokens.use(present.token_secret(), present.secondary_token_secret())

        use_keys()
        credentials.on_change.append(use_keys)
        return GremlinDoor(account, keys, GremlinSettings(creates=settings.gremlin_create), tokens)

    return Late(make, "armillary.doors.gremlin.door", "armillary.doors.gremlin.connection")


def _management_door(
    settings: Settings, account: Account, credentials: Credentials, kept: Kept
) -> Late[ManagementDoor]:
    def make() -> ManagementDoor:
        from armillary.doors.management.call import ManagementSettings
        from armillary.doors.management.door import ManagementDoor

        keys = ControlKeys(
            "management",
            kept.control_key,
            settings.control_read_only_key,
            hosts=host_names(settings),
            needs_certificate=settings.tls_client_ca is not None,
        )
        options = ManagementSettings(settings.mongo_throughput_ru, settings.table_throughput_ru)
        return ManagementDoor(account, keys, credentials, options)

    return Late(make, "armillary.doors.management.door")


def _language_bridges(mongo: Late[MongoDoor], gremlin: Late[GremlinDoor]) -> Late[LanguageBridges]:
    def make() -> LanguageBridges:
        from armillary.portal.language_bridges import LanguageBridges

        return LanguageBridges(mongo.get(), gremlin.get())

    return Late(make, "armillary.portal.language_bridges")


def control_key_of(settings: Settings, clock: Clock) -> str:
    """The key of the settings, the one that is kept in the data directory, or a new one."""
    if settings.control_key is not None:
        return settings.control_key
    return new_control_key(clock) if settings.is_in_memory else made_key(settings.directory, clock)


def _account_keys(credentials: Credentials) -> AccountKeys:
    return AccountKeys(*credentials.owners, *credentials.readers)


def host_names(settings: Settings) -> HostNames:
    """The names that requests may be for, at every door."""
    return HostNames(
        settings.named_hosts, is_public=settings.is_public, is_key_known=not PUBLIC_KEYS.isdisjoint(keys_of(settings))
    )


def account_settings(settings: Settings) -> AccountSettings:
    return AccountSettings(
        name=settings.account,
        region=settings.region,
        consistency=settings.consistency,
        staleness_transactions=settings.staleness_transactions,
        staleness_s=settings.staleness_s,
        profile=settings.profile,
        partition_throughput_ru=settings.partition_throughput_ru,
        has_partition_headroom=settings.partition_headroom == "on",
        partitioned_throughput_min_ru=settings.partitioned_throughput_min_ru,
        throughput_max_ru=settings.throughput_max_ru,
        throughput_mode=settings.throughput,
        is_serverless=settings.is_serverless,
        has_burst=settings.has_burst,
        partition_storage_bytes=settings.partition_storage_bytes,
        logical_partition_bytes_max=settings.logical_partition_bytes_max,
        merges_by_policy=settings.merge_policy == "on",
        script_confinement=settings.script_confinement,
        history_memory_bytes=settings.history_memory_bytes,
        history_path=None if settings.is_in_memory else settings.directory / HISTORY_FILE,
        captures_path=None if settings.is_in_memory else settings.directory / CAPTURES_DIRECTORY,
    )
