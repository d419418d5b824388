"""Values that are others at each run: rids, etags, continuations, tokens, ids that the server makes. They are learned
from the recorded and the live answer, side by side, and put into later requests.
"""

from __future__ import annotations

import re
from typing import Any

# Members of JSON answers whose values are not compared.
VOLATILE = frozenset(
    "_rid _self _etag _ts _lsn _token etag rid offerResourceId resource ActivityId activityId lsn crts "
    "previousImageLSN instanceId retryAfterMilliseconds parents nowSeconds now aheadSeconds e_tag ETag "
    "maxConsumedStorageEverInKB".split()
)
# The same of the management API, where `resource` is what was asked for.
VOLATILE_IN_MANAGEMENT = frozenset("_rid _self _etag _ts message".split())
_SESSION_PART = re.compile(r"[^:,]+:[^,]*")
_SHORT = 8  # characters: shorter texts are replaced only where they are a whole value
_LONG = 100_000  # characters: longer texts are bodies that are to be refused for their size


class VolatileValues:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}  # recorded to live
        self._long_texts: dict[str, str] = {}  # those that are looked for inside of other texts
        self._session_parts: dict[str, str] = {}  # of session tokens: recorded `RANGE:LSN` to live

    def learn(self, recorded: Any, live: Any) -> None:
        if isinstance(recorded, str) and isinstance(live, str) and recorded != live:
            self._texts[recorded] = live
            if len(recorded) >= _SHORT:
                self._long_texts[recorded] = live

    def learn_session(self, recorded: str, live: str) -> None:
        ours = {part.partition(":")[0]: part for part in live.split(",")}
        for part in recorded.split(","):
            self._session_parts[part] = ours.get(part.partition(":")[0], part)

    def session(self, recorded: str) -> str:
        return _SESSION_PART.sub(lambda match: self._session_parts.get(match[0], match[0]), recorded)

    def put(self, text: str) -> str:
        """The text of a later request with the live values."""
        whole = self._texts.get(text)
        if whole is not None:
            return whole
        if _SHORT <= len(text) <= _LONG:
            for recorded, live in self._long_texts.items():
                if recorded in text:
                    text = text.replace(recorded, live)
        return text
