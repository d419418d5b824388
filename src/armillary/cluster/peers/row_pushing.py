"""Rows of the log and the leader's word, as calls between nodes.

    rows       {after_seq, wait_s}   the rows above a seq, waiting for one where there are none
    freshness  {}                    what the leader has applied now

Both are about log 0 unless their heads name another one (`log_calls.py`).
A node that does not lead refuses both. `PeerRowSource` is how a follower asks; `answer_followers` gives a node's
`Peers` the answers of its own group commit while it leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary import limits
from armillary.cluster.peers.calls import Answer, PeerGone, Peers
from armillary.cluster.peers.log_calls import about, log_of
from armillary.errors import Failure, bad_request
from armillary.storage.log.rows import Place, pack_rows, unpack_rows
from armillary.storage.replication.freshness import SourceUnavailable
from armillary.storage.replication.group_commit import GroupCommit, not_leader
from armillary.storage.replication.recent_rows import LeaderWord, Pushed

ROWS, FRESHNESS = "rows", "freshness"


def answer_followers(peers: Peers, commit: Callable[[int], GroupCommit | None]) -> None:
    """Have a node answer other nodes' questions. `commit`: its group commit of a log, None while it does not lead."""

    def leading(head: dict[str, Any]) -> GroupCommit:
        found = commit(log_of(head))
        if found is None:
            raise not_leader()
        return found

    async def rows(node: str, head: dict[str, Any], body: bytes) -> Answer:
        after_seq, wait_s = head.get("after_seq"), head.get("wait_s")
        if not isinstance(after_seq, int) or not isinstance(wait_s, int | float):
            raise bad_request("The call `rows` needs the numbers after_seq and wait_s.")
        pushed = await leading(head).rows(after_seq, min(wait_s, limits.FOLLOWER_WAIT_SECONDS_MAX))
        given = {"confirmed": pushed.confirmed.pack().hex(), "is_kept": pushed.is_kept, **_word_head(pushed.word)}
        return given, pack_rows(pushed.rows)

    async def freshness(node: str, head: dict[str, Any], body: bytes) -> Answer:
        return _word_head(leading(head).word), b""

    peers.handlers |= {ROWS: rows, FRESHNESS: freshness}


class PeerRowSource:
    """Asks the node that leads, as far as this one knows. Implements RowSource."""

    def __init__(self, peers: Peers, leader: Callable[[], str], log: int = 0) -> None:
        """`leader`: the name of the node to ask; empty: none, or this node itself."""
        self._peers = peers
        self._log = log
        self._leader = leader

    async def rows(self, after_seq: int, wait_s: float) -> Pushed:
        question = {"after_seq": after_seq, "wait_s": wait_s}
        head, body = await self._ask(ROWS, question, wait_s + limits.FOLLOWER_CALL_SECONDS)
        try:
            place = Place.unpack(bytes.fromhex(head["confirmed"]))
            return Pushed(unpack_rows(body), place, _read_word(head), is_kept=bool(head["is_kept"]))
        except Exception as error:  # rows of a newer version are read from the log, where they stop this node
            raise SourceUnavailable(f"the answer cannot be read: {error}") from None

    async def word(self, limit_s: float) -> LeaderWord:
        head, _ = await self._ask(FRESHNESS, {}, limit_s)
        try:
            return _read_word(head)
        except Exception as error:
            raise SourceUnavailable(f"the answer cannot be read: {error}") from None

    async def _ask(self, name: str, head: dict[str, Any], limit_s: float) -> Answer:
        node = self._leader()
        if not node:
            raise SourceUnavailable("no leader is known")
        try:
            return await self._peers.call(node, name, about(self._log, head), limit_s=limit_s)
        except (PeerGone, Failure) as error:
            raise SourceUnavailable(str(error)) from None


def _word_head(word: LeaderWord) -> dict[str, Any]:
    return {
        "place": word.place.pack().hex(),
        "transactions": word.transactions,
        "time_us": word.time_us,
        "is_leased": word.is_leased,
    }


def _read_word(head: dict[str, Any]) -> LeaderWord:
    place = Place.unpack(bytes.fromhex(head["place"]))
    return LeaderWord(place, int(head["transactions"]), int(head["time_us"]), head["is_leased"] is True)
