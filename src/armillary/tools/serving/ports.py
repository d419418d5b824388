"""The ports of a server: opened together, and closed in the opposite order. What answers on them is handed in: the
doors of a single server, or what stands before the doors of a cluster's node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from armillary import __version__
from armillary.clock import Clock
from armillary.doors.control.door import OPEN_TARGETS
from armillary.doors.sql.dedicated_gateway import DedicatedGateway
from armillary.doors.sql.door import SqlDoor
from armillary.errors import Failure, Kind
from armillary.late import Late
from armillary.net.answers import SERVER_HEADERS
from armillary.net.connection_limits import Crowd, Guest
from armillary.net.hosts import HostNames
from armillary.net.http import AnswerAtOnce, Handler, OnCrash, Patience, Refuse, Request, Response
from armillary.net.listen import Listener, Prepare, listen, listen_for_frames
from armillary.net.requests.request_watch import RequestWatch
from armillary.net.service import Roster
from armillary.portal.policy import PREFIX as PORTAL_PREFIX
from armillary.tools.control_file import Control, local_host, memory_directory, remove_control, write_control
from armillary.tools.profiles import TODAY, description
from armillary.tools.serving.doors import Doors, Kept, host_names
from armillary.tools.serving.runtime import Runtime
from armillary.tools.serving.side_ports import HealthPort, PortalPort
from armillary.tools.serving.tls import DoorTls
from armillary.tools.settings import GREMLIN_PORT, MONGO_PORT, TABLE_PORT, Settings

log = logging.getLogger("armillary")


class HttpEntrance(Protocol):
    """What answers HTTP requests on a port."""

    @property
    def answer(self) -> Handler: ...
    @property
    def refuse(self) -> Refuse: ...
    @property
    def on_crash(self) -> OnCrash: ...
    def screen(self, request: Request) -> Response | None: ...
    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool: ...


@dataclass(frozen=True, slots=True)
class Entrances:
    """What answers on the ports of a server."""

    sql: HttpEntrance
    table: HttpEntrance
    management: HttpEntrance
    mongo: Callable[[Roster, Guest], asyncio.Protocol]  # makes the protocol of a connection
    gremlin: Callable[[Roster, HostNames, Guest], asyncio.Protocol]
    sql_at_once: AnswerAtOnce | None = None
    prepare: Mapping[str, Prepare] = field(default_factory=dict)  # by door: what its first connection waits for


def entrances_of(doors: Doors, sql_port: HttpEntrance | None = None) -> Entrances:
    """Those of a single server. Its late doors are made with the first connection to their port. `sql_port`: in the
    place of the doors' own."""
    lates: dict[str, Late[Any]] = {
        "table": doors.late_table,
        "management": doors.late_management,
        "mongo": doors.late_mongo,
        "gremlin": doors.late_gremlin,
    }
    return Entrances(
        sql=sql_port or doors.sql_port,
        table=LateEntrance(doors.late_table),
        management=LateEntrance(doors.late_management),
        mongo=partial(_mongo_connection, doors),
        gremlin=partial(_gremlin_connection, doors),
        sql_at_once=doors.sql.answer_at_once,
        prepare={name: late.prepare for name, late in lates.items()},
    )


class LateEntrance:
    """A door that speaks HTTP and is made with the first connection to its port."""

    def __init__(self, late: Late[Any]) -> None:
        self._late = late

    def answer(self, request: Request) -> Coroutine[Any, Any, Response]:
        door: HttpEntrance = self._late.get()
        return door.answer(request)

    def refuse(self, status: int, message: str) -> Response:
        door: HttpEntrance = self._late.get()
        return door.refuse(status, message)

    def on_crash(self, request: Request, exception: BaseException) -> Response:
        door: HttpEntrance = self._late.get()
        return door.on_crash(request, exception)

    def screen(self, request: Request) -> Response | None:
        door: HttpEntrance = self._late.get()
        return door.screen(request)

    def allows_origin(self, method: str, headers: dict[bytes, bytes]) -> bool:
        door: HttpEntrance = self._late.get()
        return door.allows_origin(method, headers)


def _mongo_connection(doors: Doors, roster: Roster, guest: Guest) -> asyncio.Protocol:
    from armillary.doors.mongo.wire.connection import Connection

    return Connection(doors.mongo, roster, guest)


def _gremlin_connection(doors: Doors, roster: Roster, hosts: HostNames, guest: Guest) -> asyncio.Protocol:
    from armillary.doors.gremlin.connection import Connection

    return Connection(doors.gremlin, roster, hosts, guest)


class Shared(NamedTuple):
    """What all ports of a server share."""

    settings: Settings
    machine: Clock
    crowd: Crowd
    tls: DoorTls
    watch: RequestWatch
    prepare: Mapping[str, Prepare]
    bound: Mapping[str, list[socket.socket]] | None = None  # None: ports are opened; else those of the first process

    def sockets(self, door: str) -> list[socket.socket] | None:
        return self.bound[door] if self.bound is not None else None

    def has(self, door: str) -> bool:
        return self.bound is None or door in self.bound


async def open_ports(
    opened: AsyncExitStack,
    settings: Settings,
    machine: Clock,
    crowd: Crowd,
    entrances: Entrances,
    kept: Kept,
    bound: Mapping[str, list[socket.socket]] | None = None,
    certificate: tuple[bytes, bytes] | None = None,
) -> dict[str, Listener]:
    """All ports, by the names of their doors; they are closed with `opened`. `bound`: listening sockets by door, which
    the first process of the server has opened. `certificate`: with its key, of a server in memory."""
    tls = DoorTls(settings, machine, certificate)
    await tls.check()
    kept.facts.certificate = tls.public_certificate
    shared = Shared(settings, machine, crowd, tls, kept.runtime.watch, entrances.prepare, bound)
    listeners: dict[str, Listener] = {}
    opened.push_async_callback(_close_ports, listeners, kept.runtime)
    listeners["sql"] = await _open_sql_port(
        shared, "sql", settings.sql_port, entrances.sql, at_once=entrances.sql_at_once
    )
    if bound is None:
        _keep_control(opened, settings, listeners["sql"].port, kept.control_key, tls)
    if settings.gateway_port is not None and shared.has("gateway"):
        gateway = DedicatedGateway(entrances.sql)
        listeners["gateway"] = await _open_sql_port(shared, "gateway", settings.gateway_port, gateway)
    for name, opening in (
        ("table", partial(_open_table_port, shared, entrances.table)),
        ("mongo", partial(_open_mongo_port, shared, entrances)),
        ("gremlin", partial(_open_gremlin_port, shared, entrances)),
        ("management", partial(_open_management_port, shared, entrances.management)),
    ):
        if not shared.has(name):
            continue
        listener = await opening()
        if listener is not None:
            listeners[name] = listener
    for name, port, side in (
        ("health", settings.health_port, HealthPort(entrances.sql)),
        ("portal", settings.portal_port, PortalPort(entrances.sql)),
    ):
        if port is not None and shared.has(name):
            targets = OPEN_TARGETS | side.open_targets
            listeners[name] = await _open_sql_port(shared, name, port, side, targets)
    kept.facts.connections_max = crowd.connections_max
    kept.runtime.serves(tls, listeners)
    opened.push_async_callback(kept.jobs.close)
    opened.callback(kept.long_polls.close)  # first: ports are closed when their requests are answered
    return listeners


async def _close_ports(listeners: Mapping[str, Listener], runtime: Runtime) -> None:
    """All at once: no port takes connections while another waits for its requests."""
    await asyncio.gather(*[listener.close(runtime.drain_s) for listener in listeners.values()])


async def _open_sql_port(
    shared: Shared,
    door: str,
    port: int,
    entrance: HttpEntrance,
    open_targets: frozenset[bytes] = OPEN_TARGETS,
    at_once: AnswerAtOnce | None = None,
) -> Listener:
    """`open_targets`: what is answered under any host name, and without TLS where that is required."""
    settings = shared.settings
    try:
        return await listen(
            settings.host,
            port,
            entrance.answer,
            tls=shared.tls.of(door),
            requires_tls=settings.requires_tls,
            refuse=entrance.refuse,
            on_crash=entrance.on_crash,
            constant_headers=SqlDoor.constant_headers,
            hosts=host_names(settings),
            open_targets=open_targets,
            screen=entrance.screen,
            at_once=at_once,
            crowd=shared.crowd,
            clock=shared.machine,
            watch=shared.watch,
            door=door,
            sockets=shared.sockets(door),
        )
    except Failure as failure:
        failure.message += f" --{door}-port names it; 0 takes any free one."
        raise


def _keep_control(opened: AsyncExitStack, settings: Settings, port: int, control_key: str, tls: DoorTls) -> None:
    """Write down where the server is and what its control key is, for commands on this machine. What a server in memory
    writes ends with it."""
    scheme = "https" if settings.requires_tls or settings.tls_client_ca is not None else "http"
    url = f"{scheme}://{in_url(local_host(settings.host))}:{port}"
    kept = Control(url, None if settings.control_key is not None else control_key, tls.certificate_file)
    directory = memory_directory(port) if settings.is_in_memory else settings.directory
    try:
        if directory is None:
            raise Failure(Kind.UNAVAILABLE, "The control key cannot be kept: this user has no home directory.")
        write_control(directory, kept)
        if settings.is_in_memory:
            opened.callback(remove_control, directory, kept)
    except Failure as failure:  # a full disk must not prevent reads and deletes
        log.warning("%s Commands such as `armillary partitions` will not find this server.", failure.message)


async def _open_table_port(shared: Shared, entrance: HttpEntrance) -> Listener | None:
    """None: the default port is taken, and no port was configured."""
    settings = shared.settings
    return await _usual_port(
        settings,
        "Table",
        settings.table_port,
        TABLE_PORT,
        lambda port: _open_http_port(shared, port, "table", entrance),
    )


async def _open_http_port(shared: Shared, port: int, door: str, entrance: HttpEntrance) -> Listener:
    settings = shared.settings
    return await listen(
        settings.host,
        port,
        entrance.answer,
        tls=shared.tls.of(door),
        requires_tls=settings.requires_tls,
        refuse=entrance.refuse,
        on_crash=entrance.on_crash,
        constant_headers=SERVER_HEADERS,
        hosts=host_names(settings),
        allows_origin=entrance.allows_origin,
        screen=entrance.screen,
        crowd=shared.crowd,
        clock=shared.machine,
        watch=shared.watch,
        door=door,
        prepare=shared.prepare.get(door),
        sockets=shared.sockets(door),
    )


async def _open_management_port(shared: Shared, entrance: HttpEntrance) -> Listener | None:
    """None: no port was configured, and there is no usual one."""
    port = shared.settings.management_port
    return None if port is None else await _open_http_port(shared, port, "management", entrance)


async def _open_mongo_port(shared: Shared, entrances: Entrances) -> Listener | None:
    """The same of the MongoDB door."""
    settings = shared.settings
    roster = _roster(shared, Patience(idle_s=float(settings.mongo_idle_s)))
    tls = shared.tls.of("mongo")
    return await _usual_port(
        settings,
        "MongoDB",
        settings.mongo_port,
        MONGO_PORT,
        lambda port: listen_for_frames(
            settings.host,
            port,
            roster,
            lambda guest: entrances.mongo(roster, guest),
            tls=tls,
            prepare=shared.prepare.get("mongo"),
            sockets=shared.sockets("mongo"),
        ),
    )


async def _open_gremlin_port(shared: Shared, entrances: Entrances) -> Listener | None:
    """The same of the Gremlin door."""
    settings = shared.settings
    roster = _roster(shared)
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
            lambda guest: entrances.gremlin(roster, hosts, guest),
            tls=shared.tls.of("gremlin"),
            plain_refusal=_gremlin_refusal() if roster.requires_tls else b"",
            prepare=shared.prepare.get("gremlin"),
            sockets=shared.sockets("gremlin"),
        ),
    )


def _gremlin_refusal() -> bytes:
    from armillary.doors.gremlin.connection import PLAIN_REFUSAL

    return PLAIN_REFUSAL


def _roster(shared: Shared, patience: Patience | None = None) -> Roster:
    return Roster(
        patience=patience,
        crowd=shared.crowd,
        requires_tls=shared.settings.requires_tls,
        clock=shared.machine,
        watch=shared.watch,
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


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def announce(settings: Settings, listeners: Mapping[str, Listener]) -> None:
    """The one line on standard output: the program that started the server waits for it."""
    if settings.has_exposed_key:
        log.warning(
            "ANYBODY WHO REACHES %s OWNS THIS DATABASE: it is served to other machines with the emulator's well-known "
            "key (--allow-well-known-key). Publish its ports to one machine only, or set ARMILLARY_KEY.",
            settings.host,
        )
    if settings.is_public and not settings.requires_tls:
        log.warning("TLS is not required: keys and data may cross the network in plain text (--require-tls)")
    if settings.cluster is not None:
        where = f"{settings.directory}, a replica of its cluster"
    else:
        where = "memory" if settings.is_in_memory else f"{settings.directory}, durability {settings.durability}"
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        log.warning("running as root: a defect would reach all of this machine. Run the server as a user of its own.")
    log.info("armillary %s serves from %s; throughput: %s", __version__, where, settings.throughput)
    if settings.profile != TODAY:
        log.info("%s", description(settings.profile, settings.sources))
    host = in_url(settings.host)
    portal_port = listeners.get("portal", listeners["sql"]).port
    portal = f"{settings.scheme('sql')}://{host}:{portal_port}{PORTAL_PREFIX.decode()}/"
    addresses = (
        f"{name}={settings.scheme(name)}://{host}:{each.port}" for name, each in listeners.items() if name != "portal"
    )
    try:
        print("ready", *addresses, *([f"portal={portal}"] if settings.portal != "off" else []), flush=True)
    except OSError as error:  # the program that started the server has closed its end: the server serves all the same
        log.warning("the line that says that the server is ready could not be written: %s", error.strerror)
