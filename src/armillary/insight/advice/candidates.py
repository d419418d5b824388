"""Candidate keys: single paths, hierarchical keys, concatenated and suffixed ones. Which of them are worth looking at
follows from the data (presence, number of values) and from the paths that queries pin; whether they are good is judged
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from armillary.errors import bad_request
from armillary.insight.advice.reading.data_profile import PathProfile, Profile
from armillary.insight.advice.reading.row_times import GRAINS
from armillary.limits import KEY_LEVELS_MAX
from armillary.model.keys import parse_path

SINGLE, HIERARCHICAL, CONCATENATED, SUFFIXED = "single", "hierarchical", "concatenated", "suffixed"
KINDS: Final = (SINGLE, HIERARCHICAL, CONCATENATED, SUFFIXED)  # the simplest first
PRESENCE: Final = 0.99
CANDIDATES_MAX: Final = 64
_PAIRS_MAX: Final = 20
_FIRST_MAX: Final = 6  # paths that are tried as the first part of a composed key
ID: Final = "/id"
SUFFIXES_MAX: Final = 1_000
_BRACES: Final = re.compile(r"\{([^{}]+)\}")
_SUFFIXES: Final = re.compile(r"0\.\.(\d{1,6})")


@dataclass(frozen=True, slots=True)
class Part:
    """A path, or the month, day or hour of a time at a path."""

    path: str
    grain: str | None = None

    @property
    def text(self) -> str:
        return self.path if self.grain is None else f"{self.path}:{self.grain}"


@dataclass(frozen=True, slots=True)
class Candidate:
    kind: str
    parts: tuple[Part, ...]
    suffixes: int = 0
    is_asked_for: bool = False

    @property
    def text(self) -> str:
        if self.kind == SUFFIXED:
            return f"{{{self.parts[0].text[1:]}}}-{{0..{self.suffixes - 1}}}"
        if self.kind == CONCATENATED:
            return "-".join(f"{{{part.text[1:]}}}" for part in self.parts)
        return ",".join(part.text for part in self.parts)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(part.path for part in self.parts)

    @property
    def levels(self) -> tuple[str, ...]:
        """The paths of a hierarchical or single key, by which a query may pin a beginning of it."""
        return self.paths if self.kind in (SINGLE, HIERARCHICAL) else ()


def single(path: str, *, is_asked_for: bool = False) -> Candidate:
    return Candidate(SINGLE, (Part(path),), is_asked_for=is_asked_for)


def hierarchical(paths: Sequence[str], *, is_asked_for: bool = False) -> Candidate:
    return Candidate(HIERARCHICAL, tuple(Part(path) for path in paths), is_asked_for=is_asked_for)


def asked_for(text: str) -> Candidate:
    """A key as it is given on the command line: PATH, PATH,PATH for a hierarchical one, or a composed one as reports
    write them, such as {tenantId}-{createdAt:month}, {createdAt:day} or {tenantId}-{0..15}."""
    if text.startswith("{"):
        return _composed_as_written(text)
    paths = _split(text)
    for path in paths:
        parse_path(path)
    if len(paths) > KEY_LEVELS_MAX:
        raise bad_request(f"--candidate {text} has {len(paths)} levels; a hierarchical key has up to {KEY_LEVELS_MAX}.")
    if len(set(paths)) < len(paths):
        raise bad_request(f"--candidate {text} names a path twice.")
    return single(paths[0], is_asked_for=True) if len(paths) == 1 else hierarchical(paths, is_asked_for=True)


def _composed_as_written(text: str) -> Candidate:
    parts, suffixes = [], 0
    names = _BRACES.findall(text)
    if "-".join(f"{{{name}}}" for name in names) != text:
        raise bad_request(
            f"--candidate {text} is no composed key; expected one such as {{tenantId}}-{{createdAt:day}}."
        )
    for number, name in enumerate(names):
        span = _SUFFIXES.fullmatch(name)
        if span is not None and number == 1 and len(names) == 2:
            suffixes = int(span[1]) + 1
            continue
        path, _, grain = f"/{name}".partition(":")
        parse_path(path)
        if grain and grain not in GRAINS:
            raise bad_request(f"--candidate {text}: {grain} is no part of a time; expected {', '.join(GRAINS)}.")
        parts.append(Part(path, grain or None))
    if len({part.path for part in parts}) < len(parts):
        raise bad_request(f"--candidate {text} names a path twice.")
    if suffixes == 1 or suffixes > SUFFIXES_MAX:
        raise bad_request(f"--candidate {text}: a suffix has from 2 to {SUFFIXES_MAX:,} values.")
    if suffixes and parts[0].grain is not None:
        raise bad_request(f"--candidate {text}: a suffix goes with a path, not with a part of a time.")
    if len(parts) == 1 and not suffixes and parts[0].grain is None:
        return single(parts[0].path, is_asked_for=True)
    return Candidate(SUFFIXED if suffixes else CONCATENATED, tuple(parts), suffixes, is_asked_for=True)


def _split(text: str) -> list[str]:
    """At commas before a slash, outside quotes: names may hold commas."""
    paths, quote = [""], ""
    for at, letter in enumerate(text):
        if letter in "\"'" and (not quote or quote == letter):
            quote = "" if quote else letter
        if letter == "," and not quote and text[at + 1 : at + 2] == "/":
            paths.append("")
        else:
            paths[-1] += letter
    return paths


def usable_paths(profile: Profile, presence: float = PRESENCE, never: Collection[str] = ()) -> list[PathProfile]:
    """Paths of which a key can be made: nearly always present, scalar, not too long, with two values at least."""
    return [
        each
        for each in profile.paths.values()
        if each.path not in never
        and (each.path == ID or each.present >= presence * profile.rows)
        and (each.path == ID or each.objects <= (1.0 - presence) * profile.rows)
        and not each.oversized
        and each.counts.distinct().value >= 2
    ]


def singles(profile: Profile, presence: float, never: Collection[str], asked: Iterable[Candidate]) -> list[Candidate]:
    found = [*asked]
    if ID not in never:
        found.append(single(ID))
    found += [single(each.path) for each in usable_paths(profile, presence, never)]
    return list({each.paths: each for each in reversed(found) if each.kind == SINGLE}.values())[::-1] + [
        each for each in found if each.kind != SINGLE
    ]


def composed(
    profile: Profile,
    filters: Sequence[str],
    *,
    presence: float,
    never: Collection[str],
    fails_alone: Callable[[str], bool],
    passes: Callable[[Candidate], bool],
    suffixes: Callable[[str], int],
) -> list[Candidate]:
    """Hierarchical, concatenated and suffixed keys. `filters` are the paths that queries pin or that the key must
    have, most frequent first; `fails_alone` tells which of them reach a limit by themselves."""
    usable = {each.path for each in usable_paths(profile, presence, never)}
    first = [path for path in filters if path in usable and path != ID][:_FIRST_MAX]
    found = [*islice(_hierarchies(first, usable, never), _PAIRS_MAX)]
    pairs = []
    for path in first:
        if not fails_alone(path):
            continue
        pairs += [Candidate(CONCATENATED, (Part(path), part)) for part in _second_parts(profile, path, first, usable)]
        count = suffixes(path)
        if count > 1 and ID not in never:
            found.append(Candidate(SUFFIXED, (Part(path),), count))
    found += islice((pair for pair in pairs if passes(pair)), _PAIRS_MAX)
    return found


def _hierarchies(first: Sequence[str], usable: Collection[str], never: Collection[str]) -> Iterable[Candidate]:
    has_id = ID not in never
    for path in first:
        if has_id:
            yield hierarchical((path, ID))
        for other in first:
            if other != path:
                yield hierarchical((path, other))
    for path in first:
        for other in first:
            if other != path and has_id:
                yield hierarchical((path, other, ID))


def _second_parts(profile: Profile, path: str, first: Sequence[str], usable: Collection[str]) -> list[Part]:
    """First what queries pin too, then the parts of the time of writing, then paths with many values."""
    others = [Part(other) for other in first if other != path]
    times = []
    if profile.written is not None:
        written = next((each.path for each in profile.paths.values() if each.steps == profile.written), None)
        times = [Part(written, grain) for grain in GRAINS] if written is not None else []
    by_values = sorted(
        (each for each in profile.paths.values() if each.path in usable and not each.is_time),
        key=lambda each: (-each.counts.distinct().value, each.path),
    )
    known = {path, *first}
    return [*others, *times, *(Part(each.path) for each in by_values if each.path not in known)][:_PAIRS_MAX]
