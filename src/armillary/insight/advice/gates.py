"""What makes a key impossible: values that are missing, change, outgrow a logical partition, are hotter than a
partition can be, or are no keys at all. Each gate uses the interval of its figure: it is broken if the better end is
beyond the limit, and undecided if the limit lies inside.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from armillary.insight.advice.candidates import CONCATENATED, ID
from armillary.insight.advice.reading.leaf_columns import Digests
from armillary.insight.advice.reading.value_counts import Estimate
from armillary.insight.advice.scores import Scorer, Scores
from armillary.limits import GB, KEY_BYTES_MAX, MB

MISSING, CHANGING, FULL, HOT, UNFIT, UNIQUE = "G1", "G2", "G3", "G4", "G5", "G6"
HOT_WRITES: Final = 0.5  # W, from which on a key is poor
SURCHARGE_CARE: Final = 2.5  # times its fair share of the hottest partition, beyond which a key is poor
_MISSING_MAX: Final = 0.01
_Z95: Final = 1.96
_ROWS_MAX: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    is_broken: bool  # else undecided
    text: str
    example: str
    rows_needed: int = 0  # of the sample, where more would decide it
    clause: str = ""  # the same with the key as its subject, where its name does not say it


def gates_of(scores: Scores, scorer: Scorer, unique_indexes: Sequence[Collection[str]] = ()) -> list[Gate]:
    found = [
        _missing(scores),
        _changing(scores, scorer),
        _full(scores, scorer),
        _hot(scores, scorer) or _clock(scores) or _asked_time(scores),
        _unfit(scores),
        _unique(scores, unique_indexes),
    ]
    return [gate for gate in found if gate is not None]


def _missing(scores: Scores) -> Gate | None:
    missing = scores.missing
    if missing.value <= _MISSING_MAX:
        return None  # over all rows, without sampling
    share = f"{percent(missing.value)} of the rows"
    return Gate(MISSING, True, f"{share} have no value there, and all of those share one key", "(no value)")


def _changing(scores: Scores, scorer: Scorer) -> Gate | None:
    for path in scores.candidate.paths:
        change = scorer.load.changed.get(path)
        if change is not None:
            return Gate(CHANGING, True, f"the value of {path} changes, and a key cannot: {change}", change)
    if ID in scores.candidate.paths:
        return None
    repeated = _changed_rows(scorer.repeated_rows, scores.values.digests)
    if not repeated:
        return None
    text = f"{repeated:,} ids occur with two different values: the value changes, and a key cannot"
    return Gate(CHANGING, True, text, "")


def _changed_rows(repeated: list[list[int]], values: Digests) -> int:
    """How many ids that occur several times have more than one value."""
    return sum(len({int(values[row]) for row in rows}) > 1 for rows in repeated)


def _full(scores: Scores, scorer: Scorer) -> Gate | None:
    limit = float(scorer.plan.limits.logical_bytes)
    largest = scores.largest_bytes
    if largest.high <= limit or (largest.value <= limit and scores.values.is_unique):
        return None
    where = f" for {scores.largest_name}" if scores.largest_name else ""
    share, of = (scores.top_share, "bytes") if scores.rising is None else (scores.rising, "newest writes")
    text = (
        f"one key reaches {size_text(limit)}{where}: it has {percent(share.value)} of the {of}"
        f" ({interval_text(share)}), which is {size_text(largest.value)}"
    )
    if scores.largest_low_bytes > limit:
        return Gate(FULL, True, text + day_text(scores, scorer), scores.largest_name)
    rows = rows_needed(scores.top_share.value, limit / max(1.0, scorer.horizon_bytes), scorer.sample_rows)
    return Gate(FULL, False, f"it hangs on the sample whether {text}", scores.largest_name, rows)


def day_text(scores: Scores, scorer: Scorer) -> str:
    """When the limit of a logical partition is reached."""
    days = scores.days_to_limit
    if days is None:
        return ""
    if days <= 0:
        return ", today"
    return f", on day {days:,.1f}"


def _hot(scores: Scores, scorer: Scorer) -> Gate | None:
    plan = scorer.plan
    limit_ru = plan.partition_ru
    if plan.throughput_ru is not None:
        limit_ru = min(limit_ru, plan.throughput_ru / scores.partitions)
    hottest = scores.hottest_value_ru
    if hottest <= limit_ru:
        return None
    top = scores.rising or scores.top_share
    low = hottest * (top.low / top.value if top.value else 1.0)
    where = f" ({scores.hottest_name})" if scores.hottest_name else ""
    text = f"one value{where} gets {hottest:,.0f} RU/s, and a partition has {limit_ru:,.0f}"
    if low > limit_ru or scores.is_moving:
        return Gate(HOT, True, text, scores.hottest_name)
    rows = rows_needed(top.value, top.value * limit_ru / hottest, scorer.sample_rows)
    return Gate(HOT, False, f"it hangs on the sample whether {text}", scores.hottest_name, rows)


def _clock(scores: Scores) -> Gate | None:
    """A time of which it is not known whether it is that of writing."""
    clock = scores.clock
    if clock is None or clock.is_certain:
        return None
    path = scores.candidate.paths[0]
    text = (
        f"it hangs on when items are written whether one value gets all writes of {grain_text(clock.grain_s)}: no path "
        f"is known to be the time of writing, and {path} may be (a capture tells: --requests)"
    )
    clause = f"may get all writes of {grain_text(clock.grain_s)} on one value"
    return Gate(HOT, False, text, scores.top_name, clause=clause)


def _asked_time(scores: Scores) -> Gate | None:
    """A time by which planned queries find the key. They may all ask for the present one, as schedules do, so that one
    partition serves them, and rates do not say for which."""
    candidate, profiles = scores.candidate, scores.values.paths
    placing = profiles if candidate.kind == CONCATENATED else profiles[:1]
    if not all(profile is not None and profile.is_time for profile in placing):
        return None
    if scores.concentration is not None and scores.concentration.value >= HOT_WRITES:
        return None  # the writes alone say that it is poor
    total_ru, asked_ru = scores.loads.total_ru, scores.demands.planned_query_ru
    times_fair = 1.0 + asked_ru / total_ru * (scores.judged_partitions - 1) if total_ru else 1.0
    if times_fair <= SURCHARGE_CARE:
        return None
    text = (
        f"it hangs on the times that queries ask for: the planned rates do not say, and if all name one value of "
        f"{candidate.paths[0]}, such as the present one, its partition has {times_fair:.1f} times its fair share "
        "(a capture tells: --requests)"
    )
    clause = "may be asked for one value by most queries, such as the present one"
    return Gate(HOT, False, text, scores.top_name, clause=clause)


def _unfit(scores: Scores) -> Gate | None:
    for path, profile in zip(scores.candidate.paths, scores.values.paths, strict=True):
        if profile is None:
            continue
        if profile.oversized:
            text = f"{profile.oversized:,} values of {path} are longer than {KEY_BYTES_MAX:,} bytes"
            return Gate(UNFIT, True, text, path)
        rows = profile.present + profile.nulls + profile.objects
        if profile.objects > _MISSING_MAX * rows:
            return Gate(UNFIT, True, f"{path} holds objects or arrays in {profile.objects:,} rows", path)
    return None


def _unique(scores: Scores, unique_indexes: Sequence[Collection[str]]) -> Gate | None:
    for index in unique_indexes:
        if not set(scores.candidate.paths) <= set(index):
            named = ", ".join(index)
            return Gate(UNIQUE, True, f"the unique index ({named}) does not hold the key", named)
    return None


def rows_needed(share: float, limit: float, rows: float) -> int:
    """Rows from which on the interval of a share would not hold the limit any more."""
    distance = abs(share - limit)
    if distance <= 0:
        return _ROWS_MAX
    needed = _Z95**2 * max(share * (1.0 - share), limit * (1.0 - limit)) / distance**2
    return min(_ROWS_MAX, max(math.ceil(needed), 2 * math.ceil(rows)))


def size_text(size: float) -> str:
    if size >= 100 * GB:
        return f"{size / GB:,.0f} GB"
    if size >= 0.01 * GB:
        return f"{size / GB:.2f}".rstrip("0").rstrip(".") + " GB"
    return f"{size / MB:,.1f} MB" if size >= MB else f"{size:,.0f} bytes"


def grain_text(seconds: float) -> str:
    for length, name in ((30 * 86_400, "a month"), (7 * 86_400, "a week"), (86_400, "a day"), (3_600, "an hour")):
        if seconds >= length:
            return name
    return f"{seconds / 60:.0f} min" if seconds > 60 else "a minute" if seconds == 60 else f"{seconds:g} s"


def percent(share: float) -> str:
    if share < 0.0005:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def interval_text(share: Estimate) -> str:
    return f"{percent(share.low)} to {percent(share.high)}"
