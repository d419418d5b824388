"""The doors of an account: opened together on their ports, and closed in the opposite order. What they serve, for how
long, and what is announced is left to `serve.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.security.credentials import Credentials
from armillary.clock import Clock, MovableClock
from armillary.doors.control.door import OPEN_TARGETS, ControlDoor
from armillary.doors.control.door import PREFIX as CONTROL_PREFIX
from armillary.doors.gremlin.authentication import Keys as GremlinKeys
from armillary.doors.gremlin.connection import PLAIN_REFUSAL
from armillary.doors.gremlin.connection import Connection as GremlinConnection
from armillary.doors.gremlin.door import GremlinDoor, GremlinSettings
from armillary.doors.mongo.door import MongoDoor
from armillary.doors.mongo.settings import MongoSettings
from armillary.doors.mongo.wire.connection import Connection as MongoConnection
from armillary.doors.sql.access.authentication import AccountKeys
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.sql.door import SqlDoor
from armillary.doors.table.access.authentication import Keys as TableKeys
from armillary.doors.table.call import TableSettings
from armillary.doors.table.door import TableDoor
from armillary.errors import Failure
from armillary.net.connection_limits import Crowd
from armillary.net.hosts import HostNames
from armillary.net.http import DoorsByPrefix, Patience
from armillary.net.listen import Listener, listen, listen_for_frames
from armillary.net.service import Roster
from armillary.tools.control_file import Control, local_host, read_control, write_control
from armillary.tools.control_file import control_key as made_key
from armillary.tools.settings import GREMLIN_PORT, MONGO_PORT, TABLE_PORT, WELL_KNOWN_KEY, Settings
from armillary.tools.tls import DoorTls

log = logging.getLogger("armillary")

_GRACE_S = 5.0  # for requests that run when the doors are closed


async def open_doors(
    opened: AsyncExitStack,
    settings: Settings,
    account: Account,
    machine: Clock,
    crowd: Crowd,
    hidden: set[str | None],
) -> dict[str, Listener]:
    """All doors of an account, by name; they are closed with `opened`. Keys that must not be logged are added to
    `hidden`."""
    credentials = await Credentials.open(account, keys_of(settings))
    hidden.update(credentials.keys.values())
    credentials.on_change.append(lambda: hidden.update(credentials.keys.values()))
    tls = DoorTls(settings, machine)
    await tls.check()
    addresses: dict[str, str] = {}
    sql = await _open_sql_door(settings, account, machine, credentials, tls, crowd, addresses)
    opened.push_async_callback(sql.close, _GRACE_S)
    hidden.add(read_control(settings.directory).key)
    doors = {"sql": sql}
    table = await _open_table_door(settings, account, machine, credentials, tls, crowd)
    if table is not None:
        opened.push_async_callback(table.close, _GRACE_S)
        doors["table"] = table
    mongo = await _open_mongo_door(settings, account, machine, opened, credentials, tls, crowd)
    if mongo is not None:
        doors["mongo"] = mongo
    gremlin = await _open_gremlin_door(settings, account, machine, credentials, tls, crowd)
    if gremlin is not None:
        opened.push_async_callback(gremlin.close, _GRACE_S)
        doors["gremlin"] = gremlin
    tls.reload_on_hangup(doors)
    addresses.update({name: settings.client_url(name, door.port) for name, door in doors.items()})
    return doors


async def _open_sql_door(
    settings: Settings,
    account: Account,
    machine: Clock,
    credentials: Credentials,
    tls: DoorTls,
    crowd: Crowd,
    addresses: dict[str, str],
) -> Listener:
    """The SQL door, and under a prefix of its own on the same port the control door."""
    sql = SqlDoor(account, _account_keys(credentials), accepts_aad=settings.accepts_aad, signing_clock=machine)
    credentials.on_change.append(lambda: sql.use_keys(_account_keys(credentials)))
    hosts = host_names(settings)
    control_key = settings.control_key
    if control_key is None and not settings.is_in_memory:
        control_key = made_key(settings.directory, machine)
    control = ControlDoor(
        account,
        control_key,
        hosts=hosts,
        needs_certificate=settings.tls_client_ca is not None,
        clock=account.clock if isinstance(account.clock, MovableClock) else None,
        credentials=credentials,
        addresses=addresses,
    )
    sql.throttle = control.throttle = credentials.sign_in_throttle
    reception = DoorsByPrefix(sql, CONTROL_PREFIX, control)
    listener = await listen(
        settings.host,
        settings.sql_port,
        reception.answer,
        tls=tls.of("sql"),
        requires_tls=settings.requires_tls,
        refuse=sql.refuse,
        on_crash=reception.on_crash,
        constant_headers=sql.constant_headers,
        hosts=hosts,
        open_targets=OPEN_TARGETS,
        screen=reception.screen,
        crowd=crowd,
        clock=machine,
    )
    sql.advertised = settings.advertised_address(listener.port)
    control.connection_count = lambda: listener.service.connection_count
    if not settings.is_in_memory:
        scheme = "https" if settings.requires_tls or settings.tls_client_ca is not None else "http"
        url = f"{scheme}://{in_url(local_host(settings.host))}:{listener.port}"
        kept = Control(url, None if settings.control_key is not None else control_key, tls.certificate_file)
        try:
            write_control(settings.directory, kept)
        except Failure as failure:  # a full disk must not prevent reads and deletes
            log.warning("%s Commands such as `armillary partitions` will not find this server.", failure.message)
    return listener


async def _open_table_door(
    settings: Settings, account: Account, machine: Clock, credentials: Credentials, tls: DoorTls, crowd: Crowd
) -> Listener | None:
    """None: the default port is taken, and no port was configured."""
    keys = TableKeys(credentials.owners, credentials.readers)
    credentials.on_change.append(lambda: keys.use(credentials.owners, credentials.readers))
    options = TableSettings(settings.table_flavor, settings.table_throughput_ru)
    door = TableDoor(account, keys, options, signing_clock=machine)
    door.throttle = credentials.sign_in_throttle
    return await _usual_port(
        settings,
        "Table",
        settings.table_port,
        TABLE_PORT,
        lambda port: listen(
            settings.host,
            port,
            door.answer,
            tls=tls.of("table"),
            requires_tls=settings.requires_tls,
            refuse=door.refuse,
            on_crash=door.on_crash,
            constant_headers=door.constant_headers,
            hosts=host_names(settings),
            allows_origin=door.allows_origin,
            screen=door.screen,
            crowd=crowd,
            clock=machine,
        ),
    )


async def _open_mongo_door(
    settings: Settings,
    account: Account,
    machine: Clock,
    opened: AsyncExitStack,
    credentials: Credentials,
    tls: DoorTls,
    crowd: Crowd,
) -> Listener | None:
    """The same of the MongoDB door."""
    options = MongoSettings(
        version=settings.mongo_version,
        needs_authentication=settings.mongo_auth == "on",
        advertised_host=settings.mongo_address,
        has_test_commands=settings.has_mongo_test_commands,
        transaction_s=float(settings.mongo_transaction_s),
        throughput_ru=settings.mongo_throughput_ru,
    )
    door = MongoDoor(account, credentials.owners, credentials.readers, options, machine=machine)
    door.throttle = credentials.sign_in_throttle
    credentials.on_change.append(lambda: door.use_keys(credentials.owners, credentials.readers))
    patience = Patience(idle_s=float(settings.mongo_idle_s))
    roster = Roster(patience=patience, crowd=crowd, requires_tls=settings.requires_tls, clock=machine)
    listener = await _usual_port(
        settings,
        "MongoDB",
        settings.mongo_port,
        MONGO_PORT,
        lambda port: listen_for_frames(
            settings.host, port, roster, lambda guest: MongoConnection(door, roster, guest), tls=tls.of("mongo")
        ),
    )
    if listener is not None:
        door.start()
        opened.push_async_callback(door.close)
        opened.push_async_callback(listener.close, _GRACE_S)
    return listener


async def _open_gremlin_door(
    settings: Settings, account: Account, machine: Clock, credentials: Credentials, tls: DoorTls, crowd: Crowd
) -> Listener | None:
    """The same of the Gremlin door."""
    keys = GremlinKeys(credentials.owners, credentials.readers)
    tokens = TokenAuthority(account.settings.name, _account_keys(credentials).token_secret(), account.clock)

    def use_keys() -> None:
        present = _account_keys(credentials)
        keys.use(credentials.owners, credentials.readers)
        tokens.use(present.token_secret(), present.secondary_token_secret())

    use_keys()
    credentials.on_change.append(use_keys)
    options = GremlinSettings(creates=settings.gremlin_create)
    door = GremlinDoor(account, keys, options, tokens)
    door.throttle = credentials.sign_in_throttle
    roster = Roster(crowd=crowd, requires_tls=settings.requires_tls, clock=machine)
    hosts = host_names(settings)
    return await _usual_port(
        settings,
        "Gremlin",
        settings.gremlin_port,
        GREMLIN_PORT,
        lambda port: listen_for_frames(
            settings.host,
            port,
            roster,
            lambda guest: GremlinConnection(door, roster, hosts, guest),
            tls=tls.of("gremlin"),
            plain_refusal=PLAIN_REFUSAL,
        ),
    )


async def _usual_port(
    settings: Settings, name: str, wanted: int | None, usual: int, opening: Callable[[int], Awaitable[Listener]]
) -> Listener | None:
    """A door at the port that was asked for, or at its usual one unless that is taken."""
    try:
        return await opening(wanted if wanted is not None else usual if settings.sql_port else 0)
    except Failure as failure:
        if wanted is not None:
            raise
        option = f"--{name.lower().removesuffix('db')}-port"
        log.warning("The %s door stays closed: %s %s gives it another port.", name, failure.message, option)
        return None


def _account_keys(credentials: Credentials) -> AccountKeys:
    return AccountKeys(*credentials.owners, *credentials.readers)


def host_names(settings: Settings) -> HostNames:
    """The names that requests may be for, at every door."""
    return HostNames(
        settings.named_hosts, is_public=settings.is_public, is_key_known=WELL_KNOWN_KEY in keys_of(settings)
    )


def keys_of(settings: Settings) -> tuple[str | None, ...]:
    """Those that may do everything, and those that may only read."""
    return settings.key, settings.secondary_key, settings.read_only_key, settings.secondary_read_only_key


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def account_settings(settings: Settings) -> AccountSettings:
    return AccountSettings(
        name=settings.account,
        consistency=settings.consistency,
        partition_throughput_ru=settings.partition_throughput_ru,
        throughput_mode=settings.throughput,
        is_serverless=settings.is_serverless,
        has_burst=settings.has_burst,
        partition_storage_bytes=settings.partition_storage_bytes,
        logical_partition_bytes_max=settings.logical_partition_bytes_max,
        merges_by_policy=settings.merge_policy == "on",
        script_confinement=settings.script_confinement,
    )
