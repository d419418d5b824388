"""Compares a recorded answer with the live one, value by value, and learns the volatile values on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from clients.replaying.volatile_values import VOLATILE, VOLATILE_IN_MANAGEMENT, VolatileValues

Ignores = Callable[[str, str], bool]
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def is_volatile(place: str, name: str) -> bool:
    return name in VOLATILE


def is_volatile_in_management(place: str, name: str) -> bool:
    return name in VOLATILE_IN_MANAGEMENT


def differences(
    recorded: Any, live: Any, volatile: VolatileValues, place: str = "", ignores: Ignores = is_volatile
) -> Iterator[str]:
    """Sentences; none if both agree. `ignores`: whether the values of members of this name, at this
    place, may differ."""
    if isinstance(recorded, dict) and isinstance(live, dict):
        if recorded.keys() != live.keys():
            yield f"{place or 'the answer'} has the members {sorted(live)}, recorded were {sorted(recorded)}"
        for name in recorded.keys() & live.keys():
            if ignores(place, name):
                volatile.learn(recorded[name], live[name])
                continue
            yield from differences(recorded[name], live[name], volatile, f"{place}.{name}", ignores)
    elif isinstance(recorded, list) and isinstance(live, list):
        if len(recorded) != len(live):
            yield f"{place or 'the answer'} has {len(live)} elements, recorded were {len(recorded)}"
        for index, (one, other) in enumerate(zip(recorded, live, strict=False)):
            yield from differences(one, other, volatile, f"{place}[{index}]", ignores)
    elif isinstance(recorded, str) and isinstance(live, str):
        if _UUID.fullmatch(recorded) and _UUID.fullmatch(live):
            volatile.learn(recorded, live)  # an id that the server made; those of clients are the same
        elif _without_ids(volatile.put(recorded)) != _without_ids(live):
            yield f"{place or 'the answer'} is {live[:200]!r}, recorded was {recorded[:200]!r}"
    elif recorded != live or isinstance(recorded, bool) != isinstance(live, bool):
        yield f"{place or 'the answer'} is {live!r}, recorded was {recorded!r}"


def _without_ids(text: str) -> str:
    """Messages quote ids of activities."""
    return _UUID.sub("ID", text)
