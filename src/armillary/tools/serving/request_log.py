"""The log of requests on demand (`--log-requests`) and of slow requests (`--log-slow`). A line has the door, the
operation, the status, the charge, the duration and the names of the container; of slow requests also the partitions
that were visited and the paths that the query searched by. No line has values of documents, keys or texts of queries
with their constants.

Lines are logged whatever `--log-level` is: they were asked for.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Final

from armillary.net.requests.request_watch import Answered

log = logging.getLogger("armillary.requests")
log.setLevel(logging.INFO)

_SHAPE_CHARACTERS_MAX: Final = 500
_PLAIN: Final = re.compile(r"[\w./:@+,-]*", re.ASCII)  # other values are quoted


class RequestLog:
    def __init__(self, requests: str, slow_ms: int) -> None:
        self.requests = requests
        self.slow_ms = slow_ms
        self._due = 0.0  # grows by the share with each request; a whole number is a line

    @property
    def is_on(self) -> bool:
        return self.requests != "off" or self.slow_ms > 0

    @property
    def wants_details(self) -> bool:
        """Whether lines tell what the account did for a request, which has to be noted while it runs."""
        return self.requests not in ("off", "errors") or self.slow_ms > 0

    @property
    def share(self) -> float:
        return {"off": 0.0, "errors": 0.0, "all": 1.0}.get(self.requests) or _number(self.requests)

    def report(self, answered: Answered) -> None:
        is_slow = self.slow_ms > 0 and answered.elapsed_s * 1000 >= self.slow_ms
        is_wanted = is_slow or (answered.kind is not None and self.requests != "off")
        self._due += self.share
        if self._due >= 1:
            self._due -= 1
            is_wanted = True
        if is_wanted:
            fields = fields_of(answered)
            message = "slow request" if is_slow else "request"
            text = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
            log.log(
                logging.WARNING if is_slow else logging.INFO,
                "%s %s",
                message,
                text,
                extra={"fields": {"event": message.replace(" ", "."), **fields}},
            )


def fields_of(answered: Answered) -> dict[str, Any]:
    """What a line says, by name. Empty values are left out."""
    found: dict[str, Any] = {
        "door": answered.door,
        "operation": answered.operation,
        "status": answered.status,
        "error": answered.kind.name.lower() if answered.kind is not None else "",
        "ms": round(answered.elapsed_s * 1000, 3),
        "ru": answered.charge_ru,
        "database": answered.database,
        "container": answered.container,
    }
    details = answered.details
    if details is not None:
        found["partitions"] = sorted(details.partitions)
        found["rows"] = details.rows
        found["loaded"] = details.loaded
        found |= {f"search_{name}": paths for name, paths in details.search_paths().items()}
        found["query"] = (details.shape or "")[:_SHAPE_CHARACTERS_MAX]
    found["activity"], found["peer"] = answered.activity, answered.peer
    kept = ("status", "ms", "ru")
    return {name: value for name, value in found.items() if name in kept or value not in ("", [], 0)}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _shown(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
