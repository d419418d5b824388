"""docs/security.md says numbers, and they are those of limits.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from armillary import limits
from armillary.doors.sql import headers as h
from armillary.errors import Failure
from armillary.tools.settings import ACCEPTED, OPTIONS

TEXT = re.sub(r"\s+", " ", (Path(__file__).parents[3] / "docs" / "security.md").read_text("utf-8"))


def numbers(pattern: str) -> list[int]:
    """Of the one place that reads so."""
    found = re.findall(pattern, TEXT)
    assert len(found) == 1, (pattern, found)
    groups = found[0] if isinstance(found[0], tuple) else (found[0],)
    return [int(each.replace(",", "")) for each in groups]


def test_lifetimes_of_tokens() -> None:
    said = numbers(
        r"good for ([\d,]+) seconds or for as long as `x-ms-documentdb-expiry-seconds` says: (\d+) to ([\d,]+)"
    )
    default, least, most = said
    assert default == limits.RESOURCE_TOKEN_SECONDS_DEFAULT
    assert (least, most) == (limits.RESOURCE_TOKEN_SECONDS_MIN, limits.RESOURCE_TOKEN_SECONDS_MAX)
    for seconds in (least, most):
        assert h.token_lifetime_s({b"x-ms-documentdb-expiry-seconds": b"%d" % seconds}) == seconds
    for seconds in (least - 1, most + 1):
        with pytest.raises(Failure):
            h.token_lifetime_s({b"x-ms-documentdb-expiry-seconds": b"%d" % seconds})


def test_skew_of_signatures() -> None:
    assert numbers(r"can be replayed for (\d+) minutes") == [limits.CLOCK_SKEW_S // 60]


def test_sign_ins_that_fail() -> None:
    said = numbers(r"each /64\), (\d+) failures are answered .* delayed, at (\d+) a second, for up to (\d+) seconds")
    assert said == [
        limits.SIGN_IN_FAILURES_FREE,
        limits.SIGN_IN_FAILURES_PER_S,
        limits.SIGN_IN_WAIT_SECONDS_MAX,
    ]


def test_settings_that_it_names_exist() -> None:
    flags = set(ACCEPTED) | {f"no-{name}" for name in OPTIONS}
    of_commands = {"client-certificate"}
    named = set(re.findall(r"`--([a-z-]+)", TEXT))
    assert len(named) > 8
    assert named - of_commands <= flags, named - flags
