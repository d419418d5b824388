"""The `updateDescription` of change streams: fields that an update set, by their dotted paths, fields that it removed,
and arrays that it truncated. `disambiguatedPaths` lists the parts of ambiguous paths.
"""

from __future__ import annotations

from typing import Any

from armillary.model.bson.bson_values import Document, is_identical

Path = tuple[str | int, ...]  # field names and array indexes


def update_description(before: Document, after: Document) -> Document:
    """`disambiguatedPaths` is included only where a path is ambiguous."""
    found = _Found()
    found.compare(before, after, ())
    described: Document = {
        "updatedFields": found.updated,
        "removedFields": found.removed,
        "truncatedArrays": found.truncated,
    }
    return {**described, "disambiguatedPaths": found.ambiguous} if found.ambiguous else described


class _Found:
    def __init__(self) -> None:
        self.updated: Document = {}
        self.removed: list[str] = []
        self.truncated: list[Document] = []
        self.ambiguous: dict[str, list[str | int]] = {}

    def compare(self, before: Document, after: Document, above: Path) -> None:
        for name, value in after.items():
            path = (*above, name)
            if name not in before:
                self.updated[self._text(path)] = value
            else:
                self._compare_values(before[name], value, path)
        self.removed += [self._text((*above, name)) for name in before if name not in after]

    def _compare_values(self, old: Any, new: Any, path: Path) -> None:
        if old is new or is_identical(old, new):
            return
        if type(old) is dict and type(new) is dict and new:
            self.compare(old, new, path)
        elif type(old) is list and type(new) is list and old and new and _is_alike(old, new):
            for place, value in enumerate(new):
                if place >= len(old):
                    self.updated[self._text((*path, place))] = value
                else:
                    self._compare_values(old[place], value, (*path, place))
            if len(new) < len(old):
                self.truncated.append({"field": self._text(path), "newSize": len(new)})
        else:
            self.updated[self._text(path)] = new

    def _text(self, path: Path) -> str:
        text = ".".join(map(str, path))
        if any(type(part) is str and (part.isdecimal() or "." in part) for part in path):
            self.ambiguous[text] = list(path)
        return text


def _is_alike(old: list[Any], new: list[Any]) -> bool:
    """Whether enough of an array is unchanged that listing the changes is shorter than the array."""
    same = sum(
        1
        for left, right in zip(old, new, strict=False)
        if (type(left) is dict and type(right) is dict) or is_identical(left, right)
    )
    return same * 2 >= min(len(old), len(new))
