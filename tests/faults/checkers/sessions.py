"""Does a session see what it has written and seen? The four guarantees, from versions that count upwards per item."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from faults.ledger import Violation


@dataclass(frozen=True, slots=True)
class Observation:
    """A read or an acknowledged write, in the order in which its session did them. Version 0: the item is absent."""

    session: str
    item: str
    version: int
    is_write: bool = False


def check_sessions(observations: Iterable[Observation]) -> list[Violation]:
    written: dict[tuple[str, str], int] = defaultdict(int)
    read: dict[tuple[str, str], int] = defaultdict(int)
    found = []
    for each in observations:
        place = (each.session, each.item)
        what = f"{each.session} {'wrote' if each.is_write else 'read'} version {each.version} of {each.item}"
        if each.is_write:
            if each.version <= written[place]:
                found.append(Violation("monotonic writes", f"{what} after writing {written[place]}"))
            elif each.version <= read[place]:
                found.append(Violation("writes follow reads", f"{what} after reading {read[place]}"))
            written[place] = max(written[place], each.version)
        else:
            if each.version < written[place]:
                found.append(Violation("read your writes", f"{what} after writing {written[place]}"))
            elif each.version < read[place]:
                found.append(Violation("monotonic reads", f"{what} after reading {read[place]}"))
            read[place] = max(read[place], each.version)
    return found
