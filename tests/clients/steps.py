"""What a program says about its steps, one line each: `ok STEP`, `missing STEP: why`, `differs STEP: why`,
`failed STEP: message`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OUTCOMES = ("ok", "missing", "differs", "failed")
_LINE = re.compile(rf"({'|'.join(OUTCOMES)}) ([a-z0-9]+(?:-[a-z0-9]+)*)(?:: (.*))?")
_REASON_CHARACTERS_MAX = 300


@dataclass(frozen=True)
class Step:
    name: str
    outcome: str
    reason: str = ""


def parse_step(line: str) -> Step | None:
    """None: the line is something else, such as a warning of a library."""
    match = _LINE.fullmatch(line.rstrip())
    if match is None:
        return None
    outcome, name, reason = match.groups()
    return Step(name, outcome, (reason or "")[:_REASON_CHARACTERS_MAX])
