"""The execution context of built-in functions: clock, random numbers, and the container's full-text, vector and spatial
policies. Functions depend on their arguments and on this context only; it is bound to a query with the parameters.
"""

from __future__ import annotations

from typing import Any

from armillary.clock import Clock, SystemClock
from armillary.model.indexes.search_policies import FULL_TEXT_LANGUAGES, FullTextPolicy, VectorPolicy

_LANGUAGE_DEFAULT = FULL_TEXT_LANGUAGES[0]
_DISTANCE_DEFAULT = "cosine"


class Context:
    """The context of one execution. Paths are index paths, `/a/b`; "" stands for a computed value."""

    __slots__ = ("_clock", "_full_text", "_static_ticks", "_vectors", "is_planar", "shapes", "vectors")

    def __init__(
        self,
        clock: Clock,
        *,
        full_text: FullTextPolicy | None = None,
        vectors: VectorPolicy | None = None,
        is_planar: bool = False,
    ) -> None:
        self._clock = clock
        self._full_text = full_text
        self._vectors = vectors
        self._static_ticks: int | None = None
        self.is_planar = is_planar
        self.shapes: list[tuple[Any, Any]] = []  # cache of parsed constant shapes, kept by `spatial.py`
        self.vectors: list[Any] = [None, None]  # cache of the last vectors read, kept by `vectors.py`

    def now_ticks(self) -> int:
        """The current time in units of 100 ns since 1970; its resolution is a microsecond."""
        return round(self._clock.now_s() * 1_000_000) * 10

    def static_ticks(self) -> int:
        """The time of the first call in this execution, the same for all later calls."""
        if self._static_ticks is None:
            self._static_ticks = self.now_ticks()
        return self._static_ticks

    def set_static_ticks(self, ticks: int) -> None:
        """The execution is part of one that has begun elsewhere."""
        self._static_ticks = ticks

    def random(self) -> float:
        """At least 0, less than 1."""
        return (int.from_bytes(self._clock.random_bytes(7), "big") >> 3) / 2**53

    def language_of(self, path: str) -> str:
        if self._full_text is None:
            return _LANGUAGE_DEFAULT
        return self._full_text.languages.get(path, self._full_text.default_language)

    def distance_function_of(self, path: str) -> str:
        embedding = self._vectors.embeddings.get(path) if self._vectors is not None else None
        return _DISTANCE_DEFAULT if embedding is None else embedding.distance_function


def detached_context() -> Context:
    """For queries that belong to no container and whose caller has no clock of its own."""
    return Context(SystemClock())
