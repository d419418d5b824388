"""The first change stream of a collection, opened on a follower: its leader keeps the events."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.limits import WithLimits
from support.operated_node import OperatedNode, start_nodes
from support.peers import Certificate

from armillary.account import containers
from armillary.account.account import Account
from armillary.account.collections import event_feed
from armillary.account.container import Container
from armillary.account.following import FollowingAccount
from armillary.errors import Failure, Kind


async def made_collection(account: Account) -> Container:
    database = await containers.create_database(account, {"id": "shop"}, None)
    definition = {"id": "orders", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    return await containers.create_container(account, database, definition, None)


def account_of(node: OperatedNode) -> Account:
    account = node.node.roles.account
    assert account is not None
    return account


async def test_the_leader_keeps_what_a_follower_wants_to_tell(
    tmp_path: Path, certificate: Certificate, with_limits: WithLimits
) -> None:
    with_limits(LEASE_RENEW_SECONDS=0.02, NODE_ANNOUNCE_SECONDS=0.05)
    nodes = await start_nodes(tmp_path, certificate, a="eu", b="eu")
    try:
        created = await made_collection(account_of(nodes["a"]))
        following = account_of(nodes["b"])
        assert isinstance(following, FollowingAccount)
        assert await nodes["b"].node.membership.refresh(10.0)
        there = following.container_by_rid(created.record.rid)
        assert there is not None and not created.are_events_begun
        await event_feed.watch(following, there)
        assert created.are_events_begun, "the leader was asked"
        told, _ = await event_feed.read(there, await event_feed.now(there), 10, None)
        assert told == [], "a position is known here from which nothing is missing"
        with pytest.raises(Failure) as caught:
            await nodes["b"].node.membership.keep_events(b"nothing")
        assert caught.value.kind is Kind.NOT_FOUND
    finally:
        for node in nodes.values():
            await node.stop()
