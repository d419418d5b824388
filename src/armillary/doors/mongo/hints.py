"""What commands say about indexes: a hint must name one, and `$text` needs one."""

from __future__ import annotations

from typing import Any

from armillary.account.container import Container
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.text import TextIndex


def check(container: Container | None, hint: Any) -> None:
    if hint is None or hint in ("", {}):
        return
    if not isinstance(hint, str | dict):
        raise refusal(9, "Hint must be a string or an object")
    if container is None or hint in ("_id_", {"_id": 1}) or (isinstance(hint, dict) and "$natural" in hint):
        return
    raise refusal(2, "planner returned error :: caused by :: hint provided does not correspond to an existing index")


def text_index(container: Container | None) -> TextIndex | None:
    return None


def geo_path(container: Container | None) -> str | None:
    """Where the places are, if there is one index of places."""
    return None
