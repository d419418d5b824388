"""What the product refuses, and how it says so: the one check of `Failure`s for tests of everything below the doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from armillary.errors import Failure, Kind

MESSAGE_CHARACTERS_MAX = 600  # messages that quote their input cut it


def refused(
    call: Callable[[], object],
    *words: str,
    kind: Kind = Kind.BAD_REQUEST,
    characters_max: int = MESSAGE_CHARACTERS_MAX,
) -> str:
    """The call fails in this kind, with all these words in its message. Returns the message."""
    with pytest.raises(Failure) as caught:
        call()
    return _checked(caught.value, words, kind, characters_max)


async def refused_later(work: Awaitable[object], *words: str, kind: Kind = Kind.BAD_REQUEST) -> str:
    """The same of what is awaited."""
    with pytest.raises(Failure) as caught:
        await work
    return _checked(caught.value, words, kind, MESSAGE_CHARACTERS_MAX)


def _checked(failure: Failure, words: tuple[str, ...], kind: Kind, characters_max: int) -> str:
    assert failure.kind is kind, failure.message
    for word in words:
        assert word in failure.message
    assert len(failure.message) < characters_max
    return failure.message
