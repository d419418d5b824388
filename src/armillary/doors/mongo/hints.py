"""What commands say about indexes: a hint must name one, and `$text` and `$geoNear` need one."""

from __future__ import annotations

from typing import Any

from armillary.account import indexes
from armillary.account.container import Container
from armillary.languages.mongo.errors import refusal
from armillary.languages.mongo.index_definitions import is_identical_key
from armillary.languages.mongo.text import EVERY_FIELD, TextIndex
from armillary.model.bson_values import Document

_DEFAULT_LANGUAGE = "english"


def check(container: Container | None, hint: Any) -> None:
    if hint is None or hint in ("", {}):
        return
    if not isinstance(hint, str | dict):
        raise refusal(9, "Hint must be a string or an object")
    if container is None or (isinstance(hint, dict) and "$natural" in hint):
        return
    for each in indexes.definitions(container):
        if each["name"] == hint if isinstance(hint, str) else is_identical_key(each["key"], hint):
            return
    raise refusal(2, "planner returned error :: caused by :: hint provided does not correspond to an existing index")


def text_index(container: Container | None) -> TextIndex | None:
    if container is None:
        return None
    for each in indexes.definitions(container):
        fields = [path for path, kind in each["key"].items() if kind == "text"]
        if fields:
            given: Document = each.get("weights") or {}
            weights = {EVERY_FIELD if path.endswith("$**") else path: 1.0 for path in fields}
            weights |= {path: float(weight) for path, weight in given.items()}
            return TextIndex(weights, each.get("default_language", _DEFAULT_LANGUAGE))
    return None


def geo_path(container: Container | None) -> str | None:
    """Where the places are, if there is one index of places."""
    if container is None:
        return None
    paths = [
        path for each in indexes.definitions(container) for path, kind in each["key"].items() if kind == "2dsphere"
    ]
    if len(paths) > 1:
        raise refusal(27, "There is more than one 2dsphere index: $geoNear must say which by its key")
    return paths[0] if paths else None
