"""The JSON objects in the body of a request, read member by member with the type that each must have. Unknown members
are refused by name; null counts as absent, as clients send it for attributes that they have not set.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from armillary.errors import Failure, bad_request
from armillary.model.json_members import shown


class Members:
    """Take each known member, then call `end`, which refuses the rest."""

    def __init__(self, content: Any, path: str) -> None:
        """`path`: where the object is in the body, for messages; empty: it is the body."""
        if not isinstance(content, dict):
            raise bad_request(f"The {path or 'body'} must be a JSON object, not {shown(content)}.")
        self._content: dict[str, Any] = {name: value for name, value in content.items() if value is not None}
        self._path = path
        self._taken: set[str] = set()

    def take(self, name: str) -> Any:
        """A member of any type; None: it is not there."""
        self._taken.add(name)
        return self._content.get(name)

    def object(self, name: str) -> Members:
        """The members of an object; none if it is not there."""
        value = self.take(name)
        return Members(value if value is not None else {}, self._place(name))

    def required_object(self, name: str) -> Members:
        if name not in self._content:
            raise bad_request(f"'{self._place(name)}' is missing.")
        return self.object(name)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        return value

    def truth(self, name: str) -> bool:
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value is True

    def whole(self, name: str) -> int | None:
        value = self.take(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise self._wrong(name, "a whole number", value)
        return value

    def texts(self, name: str) -> list[str]:
        value = self.take(name)
        if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
            raise self._wrong(name, "a list of strings", value)
        return value

    def objects(self, name: str) -> list[Members] | None:
        """None: the list is not there."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._wrong(name, "a list of objects", value)
        return [Members(each, f"{self._place(name)}[{index}]") for index, each in enumerate(value)]

    def skip(self, names: Iterable[str]) -> None:
        """Members that answers have and that requests cannot change: those that are sent back are not used."""
        self._taken.update(names)

    def expect(self, name: str, expected: str) -> None:
        """A member that repeats what the address says."""
        value = self.text(name)
        if value is not None and value.lower() != expected.lower():
            raise bad_request(f"'{self._place(name)}' is '{shown(value)}', and the address says '{shown(expected)}'.")

    def refuse(self, name: str, why: str) -> None:
        if name in self._content:
            raise bad_request(f"'{self._place(name)}' is not offered: {why}", management_code="NotSupported")

    def end(self) -> None:
        unknown = sorted(self._content.keys() - self._taken)
        if unknown:
            known = ", ".join(sorted(self._taken)) or "none"
            raise bad_request(f"Unknown member '{shown(self._place(unknown[0]))}'; known are: {known}.")

    def _place(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _wrong(self, name: str, expected: str, value: Any) -> Failure:
        return bad_request(f"'{self._place(name)}' must be {expected}, not {shown(value)}.")
