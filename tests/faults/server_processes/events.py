"""Events of a nemesis on a server with several processes: they die, stand still and come back, alone and together, and
operators split, merge, scale, create, delete, back up and restore meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from faults.client import Client, ConnectionLost, connected
from faults.elastic.soak import CONTROL_KEY
from faults.server_processes.divided_server import FIRST
from faults.server_processes.lean import LeanPort
from faults.server_processes.nemesis import DATABASE, THROUGHPUT_RU, Event, Nemesis
from faults.test_backup import finished
from faults.workload import key_header
from support.forked import Forked
from support.process import ServerProcess, clean_environment, run_armillary
from support.waiting import until

LOOKS = 6  # connections, which several processes accept


# Processes.


def _further(nemesis: Nemesis) -> int:
    return nemesis.dice.randrange(1, nemesis.server.processes)


async def kill_first(nemesis: Nemesis) -> None:
    async with nemesis.trouble():
        await nemesis.server.kill_processes(FIRST)


async def kill_further(nemesis: Nemesis) -> None:
    async with nemesis.trouble():
        await nemesis.server.kill_processes(_further(nemesis))


async def kill_two(nemesis: Nemesis) -> None:
    async with nemesis.trouble():
        await nemesis.server.kill_processes(*nemesis.dice.sample(range(nemesis.server.processes), 2))


async def kill_again(nemesis: Nemesis) -> None:
    """A process dies while another one is coming back."""
    one, other = nemesis.dice.sample(range(nemesis.server.processes), 2)
    async with nemesis.trouble():
        coming = asyncio.create_task(nemesis.server.kill_processes(one))
        await asyncio.sleep(nemesis.dice.uniform(0.05, 0.6))
        await nemesis.server.kill_processes(other)
        await coming


async def kill_server(nemesis: Nemesis) -> None:
    """The supervisor is killed, all processes end with it, and the server is started again."""
    async with nemesis.trouble():
        await nemesis.server.kill()
        await nemesis.server.start()


async def stop_server(nemesis: Nemesis) -> None:
    """As an operator does."""
    async with nemesis.trouble():
        code = await nemesis.server.stop()
        assert code == 0, f"the server ended with {code}\n{nemesis.server.log_text}"
        await nemesis.server.start()


async def pause(nemesis: Nemesis, *, is_first: bool) -> None:
    number = FIRST if is_first else _further(nemesis)
    pid = nemesis.server.process_id(number)
    async with nemesis.trouble():
        with nemesis.server.stopped(number):
            await asyncio.sleep(nemesis.dice.uniform(0.1, 1.5))
    assert nemesis.server.process_id(number) == pid, "a process that stood still for a moment was started anew"


async def pause_all(nemesis: Nemesis) -> None:
    """As a machine that stands still, but not at one moment."""
    async with nemesis.trouble():
        with nemesis.server.stopped(FIRST):
            await asyncio.sleep(nemesis.dice.uniform(0, 0.3))
            with nemesis.server.stopped(*range(1, nemesis.server.processes)):
                await asyncio.sleep(nemesis.dice.uniform(0, 0.3))


async def hang(nemesis: Nemesis) -> None:
    """Until the supervisor starts the process anew."""
    number = nemesis.dice.randrange(nemesis.server.processes)
    count = nemesis.server.served_again(number)
    async with nemesis.trouble():
        with nemesis.server.stopped(number):
            await until(lambda: nemesis.server.served_again(number) > count, f"process {number} is started anew")


async def pause_supervisor(nemesis: Nemesis) -> None:
    """While it stands still nothing else does; a process that dies then is started when it goes on."""
    with nemesis.server.unsupervised():
        await nemesis.progress()
    async with nemesis.trouble():
        with nemesis.server.unsupervised():
            killing = asyncio.create_task(nemesis.server.kill_processes(_further(nemesis)))
            await asyncio.sleep(nemesis.dice.uniform(0.1, 0.5))
        await killing


# What operators do.


async def split(nemesis: Nemesis) -> None:
    """Clients notice nothing."""
    await nemesis.granted("POST", f"{nemesis.container}/split", {})
    await nemesis.reshaped()


async def merge(nemesis: Nemesis) -> None:
    await nemesis.granted("PUT", f"{nemesis.container}/throughput", {"throughput": 10_000})
    await nemesis.control("POST", f"{nemesis.container}/merge", {})
    await nemesis.reshaped()


async def scale(nemesis: Nemesis) -> None:
    throughput_ru = 1000 * nemesis.dice.randrange(THROUGHPUT_RU // 1000, 2 * THROUGHPUT_RU // 1000)
    await nemesis.granted("PUT", f"{nemesis.container}/throughput", {"throughput": throughput_ru})
    await nemesis.reshaped()


def _killed_in(event: Event, victim: Callable[[Nemesis], int]) -> Event:
    """A process dies at some moment of what an operator does."""

    async def happen(nemesis: Nemesis) -> None:
        async with nemesis.trouble():
            working = asyncio.create_task(_awaited(event(nemesis)))
            await asyncio.sleep(nemesis.dice.uniform(0, 0.4))
            await nemesis.server.kill_processes(victim(nemesis))
            await working

    return happen


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def create_and_delete(nemesis: Nemesis) -> None:
    """A container is known to every process as soon as it was created, and to none after it was deleted."""
    name = f"short-lived-{nemesis.dice.getrandbits(32)}"
    definition = {"name": name, "partitionKey": ["/key"], "throughput": THROUGHPUT_RU}
    await nemesis.granted("POST", f"databases/{DATABASE}/containers", definition)
    await _look(nemesis, name, (200, 201), is_write=True)
    await nemesis.granted("DELETE", f"databases/{DATABASE}/containers/{name}")
    await _look(nemesis, name, (404,), is_write=False)


async def _look(nemesis: Nemesis, name: str, wanted: tuple[int, ...], *, is_write: bool) -> None:
    docs = f"dbs/{DATABASE}/colls/{name}/docs"
    for number in range(LOOKS):
        begun = nemesis.history.moment()
        answer = None
        while answer is None or (answer.status == 503 and nemesis.history.was_dead(begun)):
            key = f"k{number}"
            try:
                async with connected(nemesis.server.port) as client:
                    if is_write:
                        headers = {"x-ms-documentdb-is-upsert": "True"} | key_header(key)
                        answer = await client.request("POST", docs, {"id": key, "key": key}, headers, is_feed=True)
                    else:
                        answer = await client.request("GET", f"{docs}/{key}", None, key_header(key))
            except ConnectionLost:
                await asyncio.sleep(0.05)
        assert answer.status in wanted, f"a process answers {answer.status} {answer.body!r} in {name}"


async def back_up(nemesis: Nemesis) -> None:
    """A backup of the running server holds all that was acknowledged before it began, and batches whole. It is restored
    and served to see that."""
    backups = nemesis.scratch / f"backups-{sum(nemesis.events.values())}"
    history = nemesis.history
    wanted = {name for name, (_, ended) in history.grown.items() if ended <= history.moment()}
    command = ("armillary", "backup", "create", str(backups), "--data", str(nemesis.server.directory))
    environment = clean_environment() | {"ARMILLARY_CONTROL_KEY": CONTROL_KEY}
    said = await finished(Forked.start(*command, environment=environment))
    assert "Backup" in said, said
    restored = nemesis.scratch / f"{backups.name}-restored"
    run = partial(run_armillary, "backup", "restore", str(backups), "--to", str(restored))
    outcome = await asyncio.to_thread(run)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    await asyncio.to_thread(ServerProcess.check, restored)
    count = str(nemesis.server.processes)
    server = await asyncio.to_thread(ServerProcess.start, restored, "--processes", count)
    try:
        port = LeanPort(server.port, nemesis.names)
        there = {row["id"] async for page in port.feed(1000) for row in page}
        await port.close()
    finally:
        await asyncio.to_thread(server.stop)
    assert wanted <= there, f"the backup is without {sorted(wanted - there)[:10]}, acknowledged before it began"
    for names, _ in history.batches:
        held = [name for name in names if name in there]
        assert len(held) in (0, len(names)), f"of a batch {names} the backup has only {held}"


async def snapshot_and_restore(nemesis: Nemesis) -> None:
    """What was written after a snapshot is undone by its restoration."""
    name = f"taken-{nemesis.dice.getrandbits(32)}"
    definition = {"name": name, "partitionKey": ["/key"], "throughput": THROUGHPUT_RU}
    await nemesis.granted("POST", f"databases/{DATABASE}/containers", definition)
    docs = f"dbs/{DATABASE}/colls/{name}/docs"
    async with connected(nemesis.server.port) as client:
        await _write_all(client, docs, 1)
        await nemesis.granted("POST", f"snapshots/{name}", {"database": DATABASE, "container": name})
        await _write_all(client, docs, 2)
        await nemesis.granted("POST", f"snapshots/{name}/restore", {})
        for number in range(LOOKS):
            answer = await client.request("GET", f"{docs}/k{number}", None, key_header(f"k{number}"))
            assert answer.status == 200 and answer.json["number"] == 1, f"after the restoration: {answer}"
    await nemesis.granted("DELETE", f"snapshots/{name}")
    await nemesis.granted("DELETE", f"databases/{DATABASE}/containers/{name}")


async def _write_all(client: Client, docs: str, number: int) -> None:
    for each in range(LOOKS):
        key = f"k{each}"
        headers = {"x-ms-documentdb-is-upsert": "True"} | key_header(key)
        answer = await client.request("POST", docs, {"id": key, "key": key, "number": number}, headers, is_feed=True)
        assert answer.status in (200, 201), answer


EVENTS: dict[str, Event] = {
    "first process killed": kill_first,
    "further process killed": kill_further,
    "two processes killed": kill_two,
    "process killed while another comes back": kill_again,
    "supervisor killed": kill_server,
    "server stopped": stop_server,
    "first process paused": partial(pause, is_first=True),
    "further process paused": partial(pause, is_first=False),
    "all processes paused": pause_all,
    "supervisor paused": pause_supervisor,
    "split": split,
    "merge": merge,
    "throughput changed": scale,
    "split, first process killed": _killed_in(split, lambda _: FIRST),
    "split, further process killed": _killed_in(split, _further),
    "merge, first process killed": _killed_in(merge, lambda _: FIRST),
    "merge, further process killed": _killed_in(merge, _further),
    "throughput changed, further process killed": _killed_in(scale, _further),
    "container created and deleted": create_and_delete,
    "container created and deleted, first process killed": _killed_in(create_and_delete, lambda _: FIRST),
    "container created and deleted, further process killed": _killed_in(create_and_delete, _further),
    "backup restored": back_up,
    "snapshot restored": snapshot_and_restore,
}
RARE_EVENTS: dict[str, Event] = {"process hangs": hang}  # which takes half a minute
