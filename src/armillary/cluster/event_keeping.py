"""A change stream that is opened on a follower, of a collection that none was opened of before: the leader is asked to
keep the events of the collection, since that is a write.

    keep_events  {rid}   of the container; answered when its partitions keep them
"""

from __future__ import annotations

from typing import Any, Final

from armillary.account.collections import event_feed
from armillary.account.following import FollowingAccount
from armillary.account.roles import AccountRoles
from armillary.cluster.forwarding import Forwarder, LeadsHere
from armillary.cluster.peers.calls import Answer, Peers
from armillary.errors import Failure, Kind, bad_request
from armillary.storage.replication.group_commit import not_leader

_CALL: Final = "keep_events"


class EventKeeping:
    def __init__(self, peers: Peers, forwarder: Forwarder, roles: AccountRoles) -> None:
        """Has the node answer the call while it leads."""
        self._forwarder = forwarder
        self._roles = roles
        peers.handlers[_CALL] = self._answer

    async def ask(self, rid: bytes) -> None:
        """Raises a Failure if the leader cannot be reached, or does not know the container."""
        try:
            await self._forwarder.call(_CALL, {"rid": rid.hex()}, b"", is_safe=True)
        except LeadsHere:
            raise Failure(
                Kind.UNAVAILABLE, "This node leads the cluster since a moment. Try again.", retry_after_ms=100
            ) from None

    async def _answer(self, caller: str, head: dict[str, Any], body: bytes) -> Answer:
        account = self._roles.account
        if account is None or isinstance(account, FollowingAccount):
            raise not_leader()
        rid = head.get("rid")
        if not isinstance(rid, str):
            raise bad_request(f"The call `{_CALL}` needs the text rid.")
        container = account.container_by_rid(bytes.fromhex(rid))
        if container is None:
            raise Failure(Kind.NOT_FOUND, "The collection is not there any more.")
        await event_feed.watch(account, container)
        return {}, b""
