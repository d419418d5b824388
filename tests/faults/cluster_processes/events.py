"""The events of a nemesis: what happens to nodes, to their connections and to PostgreSQL. Each ends with everything
healed; clients work all the time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from functools import partial

from faults.cluster_processes.links import Link, Way
from faults.cluster_processes.nemesis import Event, Nemesis
from faults.cluster_processes.processes import NodeProcess

WRITES = 10  # that are acknowledged while something is wrong


# Nodes.


async def kill_leader(nemesis: Nemesis) -> None:
    node, epoch = await nemesis.cluster.leader(), await nemesis.cluster.epoch()
    await node.kill()
    await nemesis.taken_over(epoch)
    await node.start()


async def kill_follower(nemesis: Nemesis) -> None:
    node = await _follower(nemesis)
    await node.kill()
    await nemesis.progress(WRITES, "a follower was killed")
    await node.start()


async def kill_all(nemesis: Nemesis) -> None:
    nodes = nemesis.serving()
    await asyncio.gather(*(node.kill() for node in nodes))
    await asyncio.gather(*(node.start() for node in nodes))


async def pause_leader(nemesis: Nemesis) -> None:
    """For longer than its lease; what it had begun goes on when another node leads."""
    node, epoch = await nemesis.cluster.leader(), await nemesis.cluster.epoch()
    node.pause()
    try:
        await nemesis.taken_over(epoch)
        await nemesis.progress(WRITES, "the leader stands still")
    finally:
        node.resume()


async def pause_follower(nemesis: Nemesis) -> None:
    node = await _follower(nemesis)
    node.pause()
    try:
        await nemesis.progress(5 * WRITES, "a follower stands still")
    finally:
        node.resume()


async def stop_leader(nemesis: Nemesis) -> None:
    """As an operator does; the node hands over before it ends."""
    await _stop(nemesis, await nemesis.cluster.leader())


async def stop_follower(nemesis: Nemesis) -> None:
    await _stop(nemesis, await _follower(nemesis))


async def _stop(nemesis: Nemesis, node: NodeProcess) -> None:
    code = await node.stop()
    if code != 0:
        nemesis.history.accuse("stop", f"{node.name} ended with {code}: {node.log_text}")
    await nemesis.progress(WRITES, f"{node.name} has stopped")
    await node.start()


async def _follower(nemesis: Nemesis) -> NodeProcess:
    return nemesis.dice.choice(await nemesis.cluster.followers())


# Connections.


async def cut_leader_from_postgres(nemesis: Nemesis, way: Way) -> None:
    node, epoch = await nemesis.cluster.leader(), await nemesis.cluster.epoch()
    with cut(nemesis.cluster.links_of(node), way):
        await nemesis.taken_over(epoch)
        await nemesis.progress(WRITES, "the leader is cut off from PostgreSQL")


async def cut_follower_from_postgres(nemesis: Nemesis, way: Way) -> None:
    node = await _follower(nemesis)
    with cut(nemesis.cluster.links_of(node), way):
        await nemesis.progress(5 * WRITES, "a follower is cut off from PostgreSQL")


async def cut_leader_from_nodes(nemesis: Nemesis, way: Way) -> None:
    node = await nemesis.cluster.leader()
    with cut(nemesis.cluster.peer_links_of(node), way):
        await nemesis.progress(5 * WRITES, "the leader is cut off from the other nodes")


async def isolate_leader(nemesis: Nemesis) -> None:
    node, epoch = await nemesis.cluster.leader(), await nemesis.cluster.epoch()
    with cut([*nemesis.cluster.peer_links_of(node), *nemesis.cluster.links_of(node)], Way.BOTH):
        await nemesis.taken_over(epoch)
        await nemesis.progress(WRITES, "the leader is isolated")


async def isolate_follower(nemesis: Nemesis) -> None:
    node = await _follower(nemesis)
    with cut([*nemesis.cluster.peer_links_of(node), *nemesis.cluster.links_of(node)], Way.BOTH):
        await nemesis.progress(5 * WRITES, "a follower is isolated")


async def break_connections(nemesis: Nemesis) -> None:
    """All at once; new ones can be made."""
    for link in (*nemesis.cluster.postgres_links.values(), *nemesis.cluster.peer_links.values()):
        link.break_connections()


class cut:  # noqa: N801 - reads as a function
    """Links that hold what passes, until the end of the block."""

    def __init__(self, links: Iterable[Link], way: Way) -> None:
        self._links = list(links)
        self._way = way

    def __enter__(self) -> None:
        for link in self._links:
            link.cut(self._way)

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.heal()


# PostgreSQL.


async def fail_over_postgres(nemesis: Nemesis) -> None:
    """The primary dies, a standby is promoted, and the former primary comes back as a standby."""
    trio = nemesis.cluster.trio
    dead = trio.primary
    dead.kill()
    await trio.promote()
    await nemesis.progress(WRITES, "a standby was promoted")
    await nemesis.cluster.rejoin(dead)


async def replace_paused_primary(nemesis: Nemesis) -> None:
    """The primary stands still, a standby is promoted, and the former primary goes on for a moment before it is
    ended: connections to it must count for nothing."""
    trio = nemesis.cluster.trio
    former = trio.primary
    former.signal_all(signal.SIGSTOP)
    try:
        await trio.promote()
        await nemesis.progress(WRITES, "a standby was promoted")
    finally:
        former.signal_all(signal.SIGCONT)
    await nemesis.progress(WRITES, "the former primary goes on")
    former.kill()
    await nemesis.cluster.rejoin(former)


async def restart_postgres(nemesis: Nemesis) -> None:
    """The primary dies and comes back."""
    primary = nemesis.cluster.trio.primary
    primary.kill()
    primary.start()
    await asyncio.to_thread(primary.wait_ready)
    await nemesis.cluster.trio.streaming()


async def kill_standby(nemesis: Nemesis) -> None:
    standby = nemesis.dice.choice(nemesis.cluster.trio.standbys)
    standby.kill()
    await nemesis.progress(WRITES, "a standby was killed")
    standby.start()
    await asyncio.to_thread(standby.wait_ready)
    await nemesis.cluster.trio.streaming()


async def pause_standbys(nemesis: Nemesis) -> None:
    """Nothing can be acknowledged, until the leader's lease is over and longer."""
    standbys = nemesis.cluster.trio.standbys
    for standby in standbys:
        standby.signal_all(signal.SIGSTOP)
    try:
        unknown = nemesis.unanswered
        await nemesis.until(lambda: nemesis.unanswered > unknown, "a write was not answered")
    finally:
        for standby in standbys:
            standby.signal_all(signal.SIGCONT)
    await nemesis.cluster.trio.streaming()


async def together(nemesis: Nemesis, *events: Event) -> None:
    """Events that begin at the same moment: of PostgreSQL and of nodes, which do not undo each other."""
    await asyncio.gather(*(event(nemesis) for event in events))


def _together(*events: Event) -> Event:
    return lambda nemesis: together(nemesis, *events)


NODE_EVENTS: dict[str, Event] = {
    "leader killed": kill_leader,
    "follower killed": kill_follower,
    "all nodes killed": kill_all,
    "leader paused": pause_leader,
    "follower paused": pause_follower,
    "leader stopped": stop_leader,
    "follower stopped": stop_follower,
    "leader cut from PostgreSQL": partial(cut_leader_from_postgres, way=Way.BOTH),
    "leader cut from PostgreSQL, one way": partial(cut_leader_from_postgres, way=Way.THERE),
    "leader cut from PostgreSQL, answers": partial(cut_leader_from_postgres, way=Way.BACK),
    "follower cut from PostgreSQL": partial(cut_follower_from_postgres, way=Way.BOTH),
    "follower cut from PostgreSQL, answers": partial(cut_follower_from_postgres, way=Way.BACK),
    "leader cut from nodes": partial(cut_leader_from_nodes, way=Way.BOTH),
    "leader cut from nodes, one way": partial(cut_leader_from_nodes, way=Way.THERE),
    "leader cut from nodes, answers": partial(cut_leader_from_nodes, way=Way.BACK),
    "leader isolated": isolate_leader,
    "follower isolated": isolate_follower,
    "connections broken": break_connections,
    "primary of PostgreSQL replaced": fail_over_postgres,
    "paused primary of PostgreSQL replaced": replace_paused_primary,
    "primary of PostgreSQL restarted": restart_postgres,
    "standby of PostgreSQL killed": kill_standby,
    "standbys of PostgreSQL paused": pause_standbys,
    "primary replaced, leader killed": _together(fail_over_postgres, kill_leader),
    "primary replaced, leader stopped": _together(fail_over_postgres, stop_leader),
    "primary restarted, leader paused": _together(restart_postgres, pause_leader),
    "paused primary replaced, follower killed": _together(replace_paused_primary, kill_follower),
    "standbys paused, leader killed": _together(pause_standbys, kill_leader),
    "standby killed, connections broken": _together(kill_standby, break_connections),
}
