"""What a node of a cluster answers at each consistency level, by what it knows of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from support.topology import UNKNOWN, FakeTopology, following

from armillary.account.account import Account
from armillary.account.registry import AccountSettings
from armillary.account.topology import Staleness
from armillary.account.visits import consistency
from armillary.account.visits.consistency import LEVELS
from armillary.clock import VirtualClock
from armillary.errors import Failure, Kind
from armillary.storage.memory import MemoryEngine

SETTINGS = AccountSettings(staleness_transactions=10, staleness_s=5)


@pytest.fixture
async def account() -> AsyncIterator[Account]:
    engine = MemoryEngine()
    account = await Account.open(engine, VirtualClock(), SETTINGS)
    yield account
    await account.close()
    await engine.close()


async def _kind(account: Account, topology: FakeTopology, level: str, *outcomes: str | Failure) -> Kind | str:
    """What is answered if attempts have these outcomes."""
    left = list(outcomes)

    async def attempt() -> str:
        outcome = left.pop(0)
        if isinstance(outcome, Failure):
            raise outcome
        return outcome

    try:
        return await consistency.read(account, topology, level, attempt)
    except Failure as failure:
        return failure.kind


def _refreshing(topology: FakeTopology, staleness: Staleness) -> FakeTopology:
    async def refresh() -> bool:
        topology.staleness = staleness
        return True

    topology.on_refresh = refresh
    return topology


@pytest.mark.parametrize("level", LEVELS)
async def test_a_leader_with_its_lease_answers_every_level(account: Account, level: str) -> None:
    assert await _kind(account, FakeTopology(), level, "done") == "done"
    missing = Failure(Kind.OWNER_NOT_FOUND, "There is no such container.")
    assert await _kind(account, FakeTopology(), level, missing) is Kind.OWNER_NOT_FOUND


@pytest.mark.parametrize("level", LEVELS)
async def test_a_leader_without_its_lease_answers_weak_levels_only(account: Account, level: str) -> None:
    leader = FakeTopology(may_answer_strongly=False, staleness=UNKNOWN)
    wanted = Kind.UNAVAILABLE if level in ("Strong", "BoundedStaleness") else "done"
    assert await _kind(account, leader, level, "done") == wanted
    assert leader.refreshes == 0


@pytest.mark.parametrize(
    "kind", [Kind.OWNER_NOT_FOUND, Kind.NOT_FOUND, Kind.RANGE_GONE, Kind.STALE_CONTAINER, Kind.SESSION_BEHIND]
)
async def test_a_leader_without_its_lease_does_not_tell_what_is_absent(account: Account, kind: Kind) -> None:
    leader = FakeTopology(may_answer_strongly=False)
    assert await _kind(account, leader, "Eventual", Failure(kind, "Not here.")) is Kind.UNAVAILABLE


async def test_an_item_that_is_not_found_is_told_at_weak_levels(account: Account) -> None:
    failure = Failure(Kind.NOT_FOUND, "No such item.")
    failure.is_metered = True  # a partition was asked
    for topology in (FakeTopology(may_answer_strongly=False), following()):
        assert await _kind(account, topology, "Eventual", failure) is Kind.NOT_FOUND


async def test_a_follower_leaves_strong_reads_to_the_leader(account: Account) -> None:
    topology = _refreshing(following(), Staleness(0, 0))
    assert await _kind(account, topology, "Strong", "done") is Kind.STALE_HERE
    assert topology.refreshes == 0


@pytest.mark.parametrize(
    ("before", "after", "wanted", "refreshes"),
    [
        (Staleness(5, 10), None, "done", 0),
        (Staleness(5.1, 0), None, Kind.STALE_HERE, 1),
        (Staleness(0, 11), None, Kind.STALE_HERE, 1),
        (Staleness(0, 11), Staleness(0.01, 0), "done", 1),
        (UNKNOWN, Staleness(0.01, 0), "done", 1),
        (UNKNOWN, Staleness(0.01, 11), Kind.STALE_HERE, 1),
    ],
)
async def test_bounded_staleness_on_a_follower(
    account: Account, before: Staleness, after: Staleness | None, wanted: Kind | str, refreshes: int
) -> None:
    topology = following(staleness=before)
    if after is not None:
        _refreshing(topology, after)
    assert await _kind(account, topology, "BoundedStaleness", "done") == wanted
    assert topology.refreshes == refreshes


@pytest.mark.parametrize("level", ["Session", "ConsistentPrefix", "Eventual"])
async def test_other_levels_need_nothing_of_the_leader(account: Account, level: str) -> None:
    topology = following()
    assert await _kind(account, topology, level, "done") == "done"
    assert topology.refreshes == 0


def _behind(kind: Kind) -> Failure:
    return Failure(kind, "Not yet.")


async def test_a_follower_catches_up_once_and_tries_again(account: Account) -> None:
    behind: Callable[[], Failure] = lambda: _behind(Kind.SESSION_BEHIND)  # noqa: E731
    topology = _refreshing(following(), Staleness(0, 0))
    assert await _kind(account, topology, "Session", behind(), "done") == "done"
    assert await _kind(account, topology, "Session", behind(), behind()) is Kind.SESSION_BEHIND
    assert topology.refreshes == 2
    assert await _kind(account, following(), "Session", behind(), behind()) is Kind.SESSION_BEHIND


@pytest.mark.parametrize("kind", [Kind.RANGE_GONE, Kind.STALE_CONTAINER])
async def test_a_follower_is_sure_of_the_catalog_only_after_it_has_caught_up(account: Account, kind: Kind) -> None:
    topology = _refreshing(following(), Staleness(0, 0))
    assert await _kind(account, topology, "Session", _behind(kind), _behind(kind)) is kind
    assert await _kind(account, following(), "Session", _behind(kind)) is Kind.STALE_HERE


@pytest.mark.parametrize("kind", [Kind.OWNER_NOT_FOUND, Kind.NOT_FOUND])
async def test_a_follower_leaves_what_it_does_not_find_in_the_catalog_to_the_leader(
    account: Account, kind: Kind
) -> None:
    topology = _refreshing(following(), Staleness(0, 0))
    assert await _kind(account, topology, "Eventual", _behind(kind)) is Kind.STALE_HERE
    assert topology.refreshes == 0


async def test_writes_are_for_the_leader(account: Account) -> None:
    await consistency.before_write(account, FakeTopology())
    await consistency.before_write(account, FakeTopology(may_answer_strongly=False))  # after a transaction
    with pytest.raises(Failure) as caught:
        await consistency.before_write(account, following())
    assert caught.value.kind is Kind.NOT_LEADER
