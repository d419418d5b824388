"""Messages: dataclasses that could be sent to another process. All their fields are plain data, except fields marked
`LOCAL`: what was compiled or parsed from the others, where the message was made. A local field saves the executor of
the same process from making it again; it is not compared, and a copy that was sent is without it.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, Final

LOCAL: Final = {"is_local": True}  # the metadata of a field that is not sent; its default is None
OPTIONAL: Final = "is_optional"  # of a field that a receiver of an older version, which does not know it, may leave out


class Sendable:
    """Of dataclasses with local fields: how they are pickled."""

    __slots__ = ()

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in sent_fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for each in fields(self):  # type: ignore[arg-type] # subclasses are dataclasses
            made = None if each.default_factory is MISSING else each.default_factory
            object.__setattr__(self, each.name, state[each.name] if each.name in state else made and made())


def sent_fields(kind: Any) -> list[Field[Any]]:
    """The fields of a dataclass that are sent."""
    return [each for each in fields(kind) if not each.metadata.get("is_local")]
