"""`armillary serve`: opens the storage engine, the account and the doors, announces them, and closes them.

They are closed in the opposite order: no door answers without an account, and every acknowledged write is durable when
the process ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvloop

from armillary import __version__
from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.security.credentials import Credentials
from armillary.clock import Clock, MovableClock, SystemClock
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
from armillary.storage import file_descriptors
from armillary.storage.engine import Engine
from armillary.storage.memory import MemoryEngine
from armillary.storage.rocks import RocksEngine
from armillary.tools import logs
from armillary.tools.control_file import Control, local_host, read_control, write_control
from armillary.tools.control_file import control_key as made_key
from armillary.tools.settings import GREMLIN_PORT, MONGO_PORT, TABLE_PORT, WELL_KNOWN_KEY, Settings
from armillary.tools.tls import DoorTls

log = logging.getLogger("armillary")

_GRACE_S = 5.0  # for requests that run when the server is told to stop


def run(settings: Settings) -> int:
    """Serve until told to stop. A refusal to start is a Failure."""
    settings.check_exposure()
    secrets = {*_keys(settings), settings.control_key}
    logs.set_up(settings.log_level, settings.log_format, lambda: secrets)
    file_descriptors.raise_limit()
    uvloop.run(serve(settings, secrets))
    return 0


async def serve(settings: Settings, secrets: set[str | None] | None = None) -> None:
    """`secrets`: what the log must not hold; keys that are made later are added."""
    # The machine's own time for storage, sockets, certificates and signatures; the account may have one of its own.
    machine = SystemClock()
    clock = MovableClock() if settings.clock == "movable" else machine
    stopping = _stop_signal()
    async with AsyncExitStack() as opened:
        engine = await _open_engine(settings, machine)
        opened.push_async_callback(engine.close)
        crowd = Crowd(file_descriptors.for_connections(), clock=machine)
        account = await Account.open(engine, clock, _account_settings(settings))
        opened.push_async_callback(account.close)
        credentials = await Credentials.open(account, _keys(settings))
        hidden = secrets if secrets is not None else set()
        hidden.update(credentials.keys.values())
        credentials.on_change.append(lambda: hidden.update(credentials.keys.values()))
        tls = DoorTls(settings, machine)
        await tls.check()
        addresses: dict[str, str] = {}
        sql = await _open_doors(settings, account, machine, credentials, tls, crowd, addresses)
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
        _announce(
            settings,
            **{name: f"{settings.scheme(name)}://{_in_url(settings.host)}:{door.port}" for name, door in doors.items()},
        )
        # What was made until now stays: the collector need not look at it again in every full pass.
        gc.collect()
        gc.freeze()
        # Requests make and drop many small objects and hardly any cycles: looking for those less often is measurable.
        gc.set_threshold(20_000, 20, 50)
        await stopping.wait()
        log.info("stopping")
    log.info("stopped")


def _stop_signal() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. A second signal ends the process at once, which loses nothing acknowledged."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        stopping.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


async def _open_engine(settings: Settings, clock: Clock) -> Engine:
    if settings.is_in_memory:
        return MemoryEngine()
    return await RocksEngine.open(
        settings.directory,
        durability="relaxed" if settings.durability == "relaxed" else "full",
        clock=clock,
        permissions=settings.data_permissions,
    )


def _account_settings(settings: Settings) -> AccountSettings:
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


async def _open_doors(
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
        url = f"{scheme}://{_in_url(local_host(settings.host))}:{listener.port}"
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


def _keys(settings: Settings) -> tuple[str | None, ...]:
    """Those that may do everything, and those that may only read."""
    return settings.key, settings.secondary_key, settings.read_only_key, settings.secondary_read_only_key


def _account_keys(credentials: Credentials) -> AccountKeys:
    return AccountKeys(*credentials.owners, *credentials.readers)


def host_names(settings: Settings) -> HostNames:
    """The names that requests may be for, at every door."""
    return HostNames(settings.named_hosts, is_public=settings.is_public, is_key_known=WELL_KNOWN_KEY in _keys(settings))


def _announce(settings: Settings, **doors: str) -> None:
    """The one line on standard output: the program that started the server waits for it."""
    if settings.has_exposed_key:
        log.warning(
            "ANYBODY WHO REACHES %s OWNS THIS DATABASE: it is served to other machines with the emulator's well-known "
            "key (--allow-well-known-key). Publish its ports to one machine only, or set ARMILLARY_KEY.",
            settings.host,
        )
    if settings.is_public and not settings.requires_tls:
        log.warning("TLS is not required: keys and data may cross the network in plain text (--require-tls)")
    where = "memory" if settings.is_in_memory else f"{settings.directory}, durability {settings.durability}"
    if os.geteuid() == 0:
        log.warning("running as root: a defect would reach all of this machine. Run the server as a user of its own.")
    log.info("armillary %s serves from %s; throughput: %s", __version__, where, settings.throughput)
    print("ready", *(f"{name}={address}" for name, address in doors.items()), flush=True)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
