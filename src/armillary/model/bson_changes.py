"""What an update has changed of a document, as change streams tell it: fields that are new or other, by their dotted
paths, fields that are gone, and arrays that got shorter.
"""

from __future__ import annotations

from typing import Any

from armillary.model.bson_values import Document, is_identical


def update_description(before: Document, after: Document) -> Document:
    updated: Document = {}
    removed: list[str] = []
    truncated: list[Document] = []
    _compare(before, after, "", updated, removed, truncated)
    return {"updatedFields": updated, "removedFields": removed, "truncatedArrays": truncated}


def _compare(
    before: Document, after: Document, prefix: str, updated: Document, removed: list[str], truncated: list[Document]
) -> None:
    for name, value in after.items():
        path = prefix + name
        if name not in before:
            updated[path] = value
        else:
            _compare_values(before[name], value, path, updated, removed, truncated)
    removed += [prefix + name for name in before if name not in after]


def _compare_values(
    old: Any, new: Any, path: str, updated: Document, removed: list[str], truncated: list[Document]
) -> None:
    if old is new or is_identical(old, new):
        return
    if type(old) is dict and type(new) is dict and new:
        _compare(old, new, f"{path}.", updated, removed, truncated)
    elif type(old) is list and type(new) is list and old and new and _is_alike(old, new):
        for place, value in enumerate(new):
            if place >= len(old):
                updated[f"{path}.{place}"] = value
            else:
                _compare_values(old[place], value, f"{path}.{place}", updated, removed, truncated)
        if len(new) < len(old):
            truncated.append({"field": path, "newSize": len(new)})
    else:
        updated[path] = new


def _is_alike(old: list[Any], new: list[Any]) -> bool:
    """Whether so much of an array is the same that its changes are shorter than the array."""
    same = sum(1 for left, right in zip(old, new, strict=False) if is_identical(left, right))
    return same * 2 >= min(len(old), len(new))
