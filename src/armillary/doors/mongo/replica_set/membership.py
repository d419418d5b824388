"""This node as a member of a replica set, as drivers know it: its role, the hosts of the set, and the version of what
`hello` tells. Made from the account's topology; a single server has none and presents itself as a set of one.
"""

from __future__ import annotations

import asyncio
import hashlib
from enum import IntEnum
from typing import Any, Final
from urllib.parse import urlsplit

from bson.int64 import Int64
from bson.objectid import ObjectId

from armillary.account.account import Account
from armillary.account.following import FollowingAccount
from armillary.account.topology import Member, Topology
from armillary.doors.mongo.client import Client
from armillary.doors.mongo.sessions.cluster_time import MemberClusterTime

SET_NAME: Final = "globaldb"  # the service's
# The modes of $readPreference with which a secondary answers.
NOT_PRIMARY_READS: Final = frozenset("primaryPreferred secondary secondaryPreferred nearest".split())
_PORT: Final = 27017  # of addresses that name none
_ELECTIONS: Final = "7fffffff"  # election ids begin so since MongoDB 3.2: they sort behind those of older servers


class Role(IntEnum):
    """The numbers are those of replSetGetStatus."""

    PRIMARY = 1
    SECONDARY = 2
    RECOVERING = 3  # answers no reads either
    DOWN = 8


class Membership:
    def __init__(self, account: Account, topology: Topology, process_id: ObjectId) -> None:
        self._account = account
        self.topology = topology
        self.process_id = process_id
        self.times = MemberClusterTime(
            account.clock, topology, leads=lambda: self.leads, secret=lambda: self._account.secret
        )
        self._role = self.role
        self._role_changes = 0  # which the topology does not count, such as silence
        self._news = asyncio.Event()
        self._seen_version = topology.version
        self.hosts = _hosts_of(topology)  # the addresses of all members that have a MongoDB door

    # The role.

    @property
    def leads(self) -> bool:
        """Whether writes are taken here: this node leads, and its account is open as a leader's."""
        return self.topology.leads and not isinstance(self._account, FollowingAccount)

    @property
    def role(self) -> Role:
        if self.leads:
            return Role.PRIMARY
        return Role.RECOVERING if self.topology.is_silent else Role.SECONDARY

    def role_of(self, member: Member) -> Role:
        """Of any member, as far as this node knows."""
        if member.name == self.topology.name:
            return self.role
        if not member.is_alive:
            return Role.DOWN
        leader = self.topology.leader
        return Role.PRIMARY if leader is not None and leader.name == member.name else Role.SECONDARY

    def may_read_at_once(self, *, is_primary_read: bool) -> bool:
        """Whether a read that needs no waiting may be answered. Asked after the read: what was published while the
        lease held was the newest state."""
        if is_primary_read:
            return self.leads and self.topology.may_answer_strongly
        return not self.topology.is_silent

    # Changes.

    @property
    def version(self) -> dict[str, Any]:
        """`topologyVersion`: drivers ignore what is older than what they know, and wait for what is newer."""
        return {"processId": self.process_id, "counter": Int64(self.topology.version + self._role_changes)}

    def look(self) -> None:
        """Notice a change of the role, and answer those who wait for one."""
        role = self.role
        if role is not self._role:
            self._role = role
            self._role_changes += 1
            self._news.set()
            self._news = asyncio.Event()
        if self.topology.version != self._seen_version:
            self._seen_version = self.topology.version
            self.hosts = _hosts_of(self.topology)

    async def wait(self, client: Client, limit_s: float) -> None:
        """Until something changes or the client disconnects, at most for a while."""
        version, news = self.topology.version, self._news
        await asyncio.sleep(0)  # a request is started without a task, which a timeout needs
        waiting = [
            asyncio.ensure_future(self.topology.changed(version, limit_s)),
            asyncio.ensure_future(news.wait()),
            asyncio.ensure_future(client.pause(limit_s)),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    # The set.

    @property
    def own_host(self) -> str | None:
        name = self.topology.name
        return next((host_of(member) for member in self.topology.members if member.name == name), None)

    @property
    def primary_host(self) -> str | None:
        if self.topology.leads:
            return self.own_host if self.leads else None  # it takes over
        leader = self.topology.leader
        return host_of(leader) if leader is not None and leader.name != self.topology.name else None

    @property
    def service_id(self) -> ObjectId:
        """Of this node to clients behind a load balancer: the same in every role and after a restart."""
        return ObjectId(hashlib.sha256(self._account.secret + self.topology.name.encode()).digest()[:12])

    @property
    def election_id(self) -> ObjectId:
        return ObjectId(f"{_ELECTIONS}{self.topology.epoch:016x}")

    @property
    def set_version(self) -> int:
        """That of the epoch. Drivers ignore a primary whose version is lower than one that they have seen with the same
        election id (before MongoDB 6.0: with any), for as long as it leads. Changes of the hosts are not counted in it:
        a count would begin anew with this object, which a node that leads again in its epoch makes anew. Drivers take
        the hosts from every answer of the primary."""
        return max(1, self.topology.epoch)

    @property
    def tags(self) -> dict[str, str]:
        return tags_of(self.topology.name, self.topology.region)


def _hosts_of(topology: Topology) -> tuple[str, ...]:
    return tuple([each for member in topology.members if (each := host_of(member)) is not None])


def tags_of(name: str, region: str) -> dict[str, str]:
    """What read preferences can choose members by."""
    return {"region": region, "node": name}


def host_of(member: Member) -> str | None:
    """host:port of a member's MongoDB door, out of its URL."""
    url = member.addresses.get("mongo")
    if url is None:
        return None
    host = urlsplit(url if "//" in url else f"//{url}").netloc.rpartition("@")[2]
    if not host:
        return None
    return host if ":" in host.rpartition("]")[2] else f"{host}:{_PORT}"
