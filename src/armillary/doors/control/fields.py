"""The JSON object in the body of a control request, read field by field with the type that each must have. Unknown
fields are refused by name.
"""

from __future__ import annotations

from typing import Any

from armillary.errors import Failure, bad_request
from armillary.model.items import parse_json
from armillary.model.json_members import shown


class Fields:
    """Take each known field, then call `end`, which refuses the rest."""

    def __init__(self, body: bytes, what: str) -> None:
        content = parse_json(body) if body else {}
        if not isinstance(content, dict):
            raise bad_request(f"The body must be a JSON object: {what}.")
        self._content: dict[str, Any] = content
        self._what = what
        self._taken: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """A field of any type."""
        self._taken.add(name)
        value = self._content.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        return self._content.get(name) is not None

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        return value

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise bad_request(f"'{name}' is missing in {self._what}.")
        return value

    def truth(self, name: str) -> bool:
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def whole(self, name: str, low: int, high: int) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(name, f"a whole number from {low} to {high}", value)
        return value

    def number(self, name: str, low: float, high: float) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self._wrong(name, f"a number from {low:g} to {high:g}", value)
        return float(value)

    def choice(self, name: str, *words: str) -> str | None:
        value = self.text(name)
        if value is not None and value not in words:
            raise self._wrong(name, f"one of {', '.join(words)}", value)
        return value

    def texts(self, name: str) -> list[str]:
        """A list of strings; one string alone is a list of it."""
        value = self.take(name, [])
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self._wrong(name, "a string or a list of strings", value)
        return values

    def end(self) -> None:
        unknown = sorted(self._content.keys() - self._taken)
        if unknown:
            known = ", ".join(sorted(self._taken)) or "none"
            raise bad_request(f"Unknown field '{shown(unknown[0])}' in {self._what}; known are: {known}.")

    def _wrong(self, name: str, expected: str, value: Any) -> Failure:
        return bad_request(f"'{name}' of {self._what} must be {expected}, not {shown(value)}.")
