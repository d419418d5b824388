"""Comparing the states of all nodes: the leader appends a mark to the log, each node digests its state when it passes
the mark (`storage/replication/state_digest.py`), and the digests are collected here. Digesting a large state takes
long: beginning and asking for the outcome are two calls.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from armillary import limits
from armillary.account.cluster_operations import NodeDigest
from armillary.cluster.membership import Membership
from armillary.cluster.peers.calls import Answer, Handler, PeerGone, Peers
from armillary.errors import Failure
from armillary.storage.replication.replicated_engine import ReplicatedEngine

MARK: Final = "mark"
_DIGEST: Final = "digest"


class Verification:
    def __init__(self, engine: ReplicatedEngine, peers: Peers, membership: Membership) -> None:
        self._engine = engine
        self._peers = peers
        self._membership = membership
        self.calls: dict[str, Handler] = {MARK: self._mark_on_call, _DIGEST: self._digest_on_call}

    async def mark(self) -> int:
        """At the leader: the seq of a new mark."""
        return (await self._engine.mark()).seq

    async def digests(self, mark: int) -> list[NodeDigest]:
        """Of all nodes, as far as they are computed."""
        return list(await asyncio.gather(*(self._digest(each.name, mark) for each in self._membership.members)))

    async def _digest(self, node: str, mark: int) -> NodeDigest:
        if node == self._membership.name:
            return _read(node, self._own(mark))
        for _ in range(limits.DIGEST_ATTEMPTS_MAX):  # a busy node may be silent for a moment
            try:
                head, _ = await self._peers.call(node, _DIGEST, {"mark": mark}, limit_s=limits.NODE_STATUS_SECONDS)
                return _read(node, head)
            except PeerGone:
                continue
            except Failure:
                break
        return NodeDigest(node, is_reached=False, is_pending=False, digest=None)

    def _own(self, mark: int) -> dict[str, Any]:
        replica = self._engine.replica
        digest = self._engine.digest_of(mark)
        is_pending = replica.position.place.seq < mark or replica.digests.is_pending(mark)
        return {"digest": digest.hex() if digest is not None else None, "is_pending": digest is None and is_pending}

    async def _mark_on_call(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        return {"mark": await self.mark()}, b""

    async def _digest_on_call(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        return self._own(int(head["mark"])), b""


def _read(node: str, head: dict[str, Any]) -> NodeDigest:
    return NodeDigest(node, is_reached=True, is_pending=bool(head["is_pending"]), digest=head["digest"])
