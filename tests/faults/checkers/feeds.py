"""Is the change feed the state? Folding it gives the items; versions come once, in order, transactions in one piece.

For the latest-version feed: it may leave out versions that were overwritten and does not tell deletions, but the last
version of everything that is there must come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from faults.ledger import Violation


@dataclass(frozen=True, slots=True)
class Change:
    item: str
    version: str  # no two versions of an item have the same
    lsn: int
    transaction: str | None = None  # the batch that wrote it
    stretch: str = ""  # lsns ascend within one


Versions = Mapping[str, Collection[str]]  # of each item, all that may have been written; a Sequence: oldest first


def check_feed(
    pages: Sequence[Sequence[Change]],
    versions: Versions,
    final: Mapping[str, str],
    deleted: frozenset[str] = frozenset(),
    repeated: frozenset[tuple[str, str]] = frozenset(),
) -> list[Violation]:
    """One reader's pages, from the beginning to the end. `deleted`: items that a client may have deleted;
    `repeated`: versions of items that may have been written more than once."""
    found: list[Violation] = []
    place_of = {
        item: {version: place if isinstance(each, Sequence) else 0 for place, version in enumerate(each)}
        for item, each in versions.items()
    }
    last_place: dict[str, int] = {}
    folded: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    lsns: dict[str, int] = {}
    for change in (change for page in pages for change in page):
        what = f"{change.item} in version {change.version} at {change.lsn}"
        place = place_of.get(change.item, {}).get(change.version)
        if place is None:
            found.append(Violation("phantom", f"{what}: nobody wrote that"))
            continue
        if (change.item, change.version) in seen and (change.item, change.version) not in repeated:
            found.append(Violation("duplicate", f"{what} comes twice"))
        elif place < last_place.get(change.item, -1):
            found.append(Violation("backwards", f"{what} comes after a later version"))
        lsn = lsns.get(change.stretch, 0)
        if change.lsn < lsn:
            found.append(Violation("lsn", f"{what} comes after lsn {lsn}"))
        lsns[change.stretch] = max(lsn, change.lsn)
        seen.add((change.item, change.version))
        last_place[change.item] = max(place, last_place.get(change.item, -1))
        folded[change.item] = change.version
    for item, version in final.items():
        if item not in folded:
            found.append(Violation("missing", f"{item} never comes"))
        elif folded[item] != version:
            found.append(Violation("fold", f"{item} is {version}, and the feed ends with {folded[item]}"))
    ghosts = folded.keys() - final.keys() - deleted
    found += [Violation("ghost", f"{item} comes and is not there, and nobody deleted it") for item in sorted(ghosts)]
    return found + _check_transactions(pages)


def _check_transactions(pages: Sequence[Sequence[Change]]) -> list[Violation]:
    found = []
    closed: set[str] = set()
    open_transaction: str | None = None
    open_page = 0
    for number, page in enumerate(pages):
        for change in page:
            name = change.transaction
            if name is not None and name in closed:
                found.append(Violation("torn", f"others come between the changes of {name}"))
            elif name is not None and name == open_transaction and number != open_page:
                found.append(Violation("cut", f"the changes of {name} are on two pages"))
            if open_transaction is not None and name != open_transaction:
                closed.add(open_transaction)
            open_transaction, open_page = name, number
    return found
