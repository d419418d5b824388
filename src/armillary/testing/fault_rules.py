"""Fault rules of a server as Python objects: what a test asks for, and how often it happened. What a rule does is said
in docs/control.md; the server refuses what does not fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Final, Self

from armillary.tools.remote import Server as ControlApi

THROTTLED: Final = 429


class FaultRule:
    """A rule that the server follows until it is removed: by `remove`, at the end of a `with` block, or when the server
    is restored for the next test."""

    def __init__(self, control: Callable[[], ControlApi], content: dict[str, Any]) -> None:
        self._control = control  # that of the thread that calls
        self.id = str(content["id"])

    @property
    def seen(self) -> int:
        """How many requests the rule has selected."""
        return int(self._now()["seen"])

    @property
    def hits(self) -> int:
        """How many of them it has failed, delayed or dropped."""
        return int(self._now()["hits"])

    def remove(self) -> None:
        self._control().delete("faults", self.id)

    def _now(self) -> dict[str, Any]:
        found: dict[str, Any] = self._control().get("faults", self.id)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests a rule selects, and which of them it hits. What is None narrows nothing."""

    operations: str | Sequence[str] | None = None
    database: str | None = None
    container: str | None = None
    key: Any = None
    partition: int | None = None
    skip: int | None = None
    every: int | None = None
    count: int | None = None
    probability: float | None = None
    seed: int | None = None

    def fields(self) -> dict[str, Any]:
        """As the control API names them."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if "partition" in given:
            given["range"] = given.pop("partition")
        if isinstance(given.get("key"), tuple):
            given["key"] = list(given["key"])
        return given


def rule_fields(
    selection: Selection,
    *,
    status: int | None = None,
    sub_status: int | None = None,
    retry_after_ms: int | None = None,
    delay_ms: int | None = None,
    drops: bool = False,
    after: bool = False,
) -> dict[str, Any]:
    """The body that creates a rule."""
    effects = {"status": status, "subStatus": sub_status, "retryAfterMs": retry_after_ms, "delayMs": delay_ms}
    content = selection.fields() | {name: value for name, value in effects.items() if value is not None}
    return content | {name: True for name, is_asked in (("drop", drops), ("after", after)) if is_asked}
