"""`Prefer`: whether the answer to an insert has the entity in it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from armillary.doors.table.refusals import refused


class Preference(Enum):
    NONE = b""
    CONTENT = b"return-content"
    NO_CONTENT = b"return-no-content"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Said only to whoever asked: the Python client tells by it what its caller gets."""
        return [(b"preference-applied", self.value)] if self.value else []


def preference_of(headers: Mapping[bytes, bytes]) -> Preference:
    given = headers.get(b"prefer")
    if given is None:
        return Preference.NONE
    try:
        return Preference(given.strip().lower())
    except ValueError:
        raise refused(
            "InvalidHeaderValue",
            "The value for one of the HTTP headers is not in the correct format: Prefer is return-content or "
            "return-no-content.",
        ) from None
