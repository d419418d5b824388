"""What an update has changed of a document, as change streams tell it: fields that are new or other, by their dotted
paths, fields that are gone, and arrays that got shorter. Where a path can be read in more than one way, its parts are
told too.
"""

from __future__ import annotations

from typing import Any

from armillary.model.bson.bson_values import Document, is_identical

Path = tuple[str | int, ...]  # names of fields, and places in arrays


def update_description(before: Document, after: Document) -> Document:
    """`disambiguatedPaths` is there only where it says something."""
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
    """Whether so much of an array is the same that its changes are shorter than the array."""
    same = sum(
        1
        for left, right in zip(old, new, strict=False)
        if (type(left) is dict and type(right) is dict) or is_identical(left, right)
    )
    return same * 2 >= min(len(old), len(new))
