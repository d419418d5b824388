"""What a function may ask of the execution it runs in: the time, dice, and what the container says about languages,
vectors and coordinates. Functions are pure but for it; a compiled query holds one, bound together with its parameters.
"""

from __future__ import annotations

from typing import Any

from armillary.clock import Clock, SystemClock
from armillary.model.indexes.search_policies import FULL_TEXT_LANGUAGES, FullTextPolicy, VectorPolicy

_LANGUAGE_DEFAULT = FULL_TEXT_LANGUAGES[0]
_DISTANCE_DEFAULT = "cosine"


class Context:
    """One execution of one query. Paths are those of the index, `/a/b`; "" stands for something computed."""

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
        self.shapes: list[tuple[Any, Any]] = []  # of constants, as `spatial.py` has read them
        self.vectors: list[Any] = [None, None]  # as `vectors.py` has read them last

    def now_ticks(self) -> int:
        """The time in units of 100 ns since 1970, anew for each call. A double knows it to the microsecond."""
        return round(self._clock.now_s() * 1_000_000) * 10

    def static_ticks(self) -> int:
        """The time of the first call, whoever asks later."""
        if self._static_ticks is None:
            self._static_ticks = self.now_ticks()
        return self._static_ticks

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
