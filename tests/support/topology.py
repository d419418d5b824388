"""A cluster as tests want a node to see it: `Topology` with fields that are set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from armillary.account.topology import Member, Staleness

FRESH = Staleness(0, 0)
UNKNOWN = Staleness(float("inf"), float("inf"))


def member(name: str, region: str = "East US", *, port: int = 8081, is_alive: bool = True) -> Member:
    return Member(name, region, {"sql": f"https://{name}.test:{port}", "table": f"https://{name}.test:8902"}, is_alive)


@dataclass
class FakeTopology:
    """Of a node that leads with a lease, unless said otherwise."""

    name: str = "a"
    region: str = "East US"
    version: int = 1
    members: Sequence[Member] = field(default_factory=lambda: [member("a")])
    leader: Member | None = None
    leads: bool = True
    epoch: int = 1
    regions: Sequence[str] = ("East US",)
    may_answer_strongly: bool = True
    staleness: Staleness = FRESH
    reached_us: int = 0
    is_silent: bool = False
    refreshes: int = 0
    on_refresh: Callable[[], Awaitable[bool]] | None = None

    async def changed(self, version: int, limit_s: float) -> None:
        return

    async def refresh(self, limit_s: float) -> bool:
        self.refreshes += 1
        return self.on_refresh is not None and await self.on_refresh()

    async def keep_events(self, rid: bytes) -> None:
        raise NotImplementedError


def following(**fields: object) -> FakeTopology:
    """Of a node that follows and has never asked the leader."""
    given = {"name": "b", "leads": False, "may_answer_strongly": False, "staleness": UNKNOWN, **fields}
    return FakeTopology(**given)  # type: ignore[arg-type]
