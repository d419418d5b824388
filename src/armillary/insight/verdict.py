"""The verdict on a partition key that is in use: good, care, poor, or none, with reasons. `figures.py` measures what is
judged here; the control API and `armillary partitions` say the same.

Bytes and load are judged by logical partitions, not by physical ones: splits are made at the middle of the bytes, so
physical partitions look even whatever the key is. Refusals are judged by the worst partition: an average hides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from armillary.model.json_members import shown

GOOD, CARE, POOR, NONE = "good", "care", "poor", "none"
ITEMS_MIN = REQUESTS_MIN = 100  # fewer say nothing
WINDOW_S = 600.0
SETTLED_S = 60.0  # of load after a split or merge, before it is judged
_SHARE_GOOD, _SHARE_CARE = 0.5, 1.0  # of a fair partition that one key takes
_REFUSED_GOOD, _REFUSED_CARE = 0.01, 0.05
_NEARLY_FULL = 0.8
_RANK = {GOOD: 0, CARE: 1, POOR: 2}
_DAY_S = 86_400.0


@dataclass(slots=True)
class FullKey:
    key: str  # as JSON
    refused: int
    since_s: float


@dataclass(slots=True)
class Figures:
    """What is known of a container. None: too little to say."""

    name: str
    partitions: int
    items: int
    size_bytes: int
    from_s: float  # of the window that load is counted in
    to_s: float
    requests: int = 0
    charged_ru: float = 0.0
    refused: int = 0  # over budget: 429
    would_be_refused: int = 0  # the same, in a mode that lets them pass
    full: int = 0  # writes refused because a key is full
    full_keys: list[FullKey] = field(default_factory=list)
    worst_refused_share: float = 0.0  # of one partition's requests: refused, or would have been
    worst_partition: int | None = None
    top_share: float | None = None  # of the bytes, in the largest key
    top_key: str | None = None
    effective_keys: float | None = None  # 1 / sum of squared shares
    top_load_share: float | None = None  # of the request units, on the busiest key
    top_load_key: str | None = None
    largest_bytes: int = 0
    limit_bytes: int = 0  # of one key
    growth_bytes_day: float | None = None  # of the container
    normalized_p99: float | None = None
    laid_on: list[tuple[int, float]] = field(default_factory=list)  # partitions, fullest by its fair share
    reshape: str | None = None  # what is being split or merged
    settled_s: float | None = None  # since the last split or merge
    is_history_on: bool = True

    @property
    def has_items(self) -> bool:
        return self.items >= ITEMS_MIN

    @property
    def has_load(self) -> bool:
        return self.requests >= REQUESTS_MIN

    @property
    def largest_of_limit(self) -> float | None:
        return self.largest_bytes / self.limit_bytes if self.limit_bytes and self.items else None

    @property
    def ru_per_request(self) -> float | None:
        return self.charged_ru / self.requests if self.requests else None


@dataclass(slots=True)
class Verdict:
    word: str
    why: str
    reasons: list[str]


def judge(figures: Figures) -> Verdict:
    refusal = _too_early(figures)
    if refusal is not None:
        return Verdict(NONE, refusal, [])
    findings = [
        *_full(figures),
        *_bytes(figures),
        *_load(figures),
        *_refusals(figures),
        *_one_partition(figures),
    ]
    word = max((each for each, _ in findings), key=_RANK.__getitem__, default=GOOD)
    order = sorted(findings, key=lambda each: -_RANK[each[0]])
    return Verdict(word, order[0][1] if order else "nothing speaks against it", [text for _, text in order])


def _too_early(figures: Figures) -> str | None:
    if figures.reshape is not None:
        return f"{figures.reshape}: judged when it is done"
    if figures.settled_s is not None and figures.settled_s < SETTLED_S:
        wait_s = max(1, round(SETTLED_S - figures.settled_s))
        return f"partitions were split or merged a moment ago: judged again in {wait_s} s"
    if not figures.has_items and not figures.has_load and not figures.full:
        return f"too little to judge: {figures.items:,} items, {figures.requests:,} requests"
    return None


_Findings = list[tuple[str, str]]


def _full(figures: Figures) -> _Findings:
    if figures.full:
        keys = "".join(
            f"; {shown(each.key)} since {_time(each.since_s)}, {each.refused:,} refused"
            for each in figures.full_keys[:3]
        )
        share = f" ({figures.full / figures.requests:.1%} of the requests)" if figures.requests else ""
        return [(POOR, f"{figures.full:,} writes were refused because a key is full (403/1014){share}{keys}")]
    largest = figures.largest_of_limit
    if largest is not None and largest >= _NEARLY_FULL:
        return [(CARE, f"the largest key has {largest:.0%} of what one key may hold{_day_of_limit(figures)}")]
    return []


def _day_of_limit(figures: Figures) -> str:
    """When the largest key reaches its limit, if the container goes on to grow as it did."""
    if not figures.growth_bytes_day or figures.growth_bytes_day <= 0 or not figures.top_share:
        return "; how fast it grows is not known"
    days = (figures.limit_bytes - figures.largest_bytes) / (figures.growth_bytes_day * figures.top_share)
    if days > 36_500:
        return "; it hardly grows"
    day = datetime.fromtimestamp(figures.to_s + days * _DAY_S, UTC)
    return f"; it is full on {day:%Y-%m-%d} if it goes on to grow so"


def _bytes(figures: Figures) -> _Findings:
    if not figures.has_items or figures.top_share is None:
        return [(GOOD, f"bytes are not judged: too little to judge: {figures.items:,} items")]
    if figures.partitions == 1:
        return []
    return [_of_fair("bytes", figures.top_share, figures.top_key, figures.partitions)]


def _load(figures: Figures) -> _Findings:
    if not figures.is_history_on:
        return [(GOOD, "load is not judged: the history of load is off (--history-memory 0)")]
    if not figures.requests:
        return [(GOOD, "load is not judged: no load measured")]
    if not figures.has_load or figures.top_load_share is None:
        return [(GOOD, f"load is not judged: too little to judge: {figures.requests:,} requests")]
    if figures.partitions == 1:
        return []
    return [_of_fair("request units", figures.top_load_share, figures.top_load_key, figures.partitions)]


def _of_fair(what: str, share: float, key: str | None, partitions: int) -> tuple[str, str]:
    fair = share * partitions
    word = GOOD if fair <= _SHARE_GOOD else CARE if fair <= _SHARE_CARE else POOR
    named = f" {shown(key)}" if key is not None else ""
    text = f"the key{named} has {share:.1%} of the {what}: {fair:.2f} of a partition's fair share"
    return word, text + (", and one key cannot be split" if word == POOR else "")


def _refusals(figures: Figures) -> _Findings:
    if not figures.has_load:
        return []
    share = figures.worst_refused_share
    word = GOOD if share <= _REFUSED_GOOD else CARE if share <= _REFUSED_CARE else POOR
    if not share:
        return [(GOOD, "no request was beyond a partition's budget")]
    text = f"{share:.1%} of the requests to partition {figures.worst_partition} were beyond its budget"
    return [(word, f"{text} (429, or would have been)")]


def _one_partition(figures: Figures) -> _Findings:
    if figures.partitions != 1:
        return []
    text = "one partition: nothing can be uneven"
    laid = [f"{ratio:.1f} times its fair share on {count} partitions" for count, ratio in figures.laid_on]
    return [(GOOD, text + (f"; by the hashes of its keys the fullest would hold {', '.join(laid)}" if laid else ""))]


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%H:%M} UTC"


# Several containers with the same items under different keys.


@dataclass(slots=True)
class Recommendation:
    better: str | None  # the container whose key is better; None: a tie, or an unfair comparison
    why: str
    is_tie: bool = False


def compare(judged: Sequence[tuple[Figures, Verdict]]) -> Recommendation:
    """Which of several containers has the better key. Order: fewer writes refused for full keys, a lower worst share of
    refusals, more effective keys, fewer request units a request."""
    first, _ = judged[0]
    for figures, verdict in judged:
        if verdict.word == NONE:
            return Recommendation(None, f"no comparison: {figures.name}: {verdict.why}")
    for figures, _ in judged[1:]:
        unfair = _unfair(first, figures)
        if unfair is not None:
            return Recommendation(None, f"no comparison: {unfair}")
    best = first
    for figures, _ in judged[1:]:
        if _better(best, figures)[0] is figures:
            best = figures
    others = [figures for figures, _ in judged if figures is not best]
    found = [(figures, *_better(best, figures)) for figures in others]
    equal = [figures.name for figures, better, _ in found if better is None]
    if equal:
        names = ", ".join([best.name, *equal])
        return Recommendation(None, f"a tie of {names}: all figures are within 5 %", is_tie=True)
    return Recommendation(best.name, "; ".join(f"{why} ({figures.name})" for figures, _, why in found))


def _unfair(one: Figures, other: Figures) -> str | None:
    names = f"{one.name} and {other.name}"
    if abs(one.items - other.items) > 0.01 * max(one.items, other.items):
        return f"{names} hold different items ({one.items:,} and {other.items:,})"
    if abs(one.size_bytes - other.size_bytes) > 0.05 * max(one.size_bytes, other.size_bytes):
        return f"{names} hold different items ({one.size_bytes:,} and {other.size_bytes:,} bytes)"
    overlap_s = min(one.to_s, other.to_s) - max(one.from_s, other.from_s)
    if overlap_s < 0.5 * max(one.to_s - one.from_s, other.to_s - other.from_s):
        return f"the load of {names} was measured at different times"
    return None


def _better(one: Figures, other: Figures) -> tuple[Figures | None, str]:
    """Which of two has the better key, and by what; None: neither."""
    measures = (
        ("writes refused for a full key", one.full, other.full, -1, 0.0),
        ("of the requests to the worst partition beyond its budget", *_refused(one, other), -1, 0.001),
        ("effective keys", one.effective_keys, other.effective_keys, 1, 0.0),
        ("RU a request", one.ru_per_request, other.ru_per_request, -1, 0.0),
    )
    for what, mine, theirs, sign, least in measures:
        if mine is None or theirs is None or abs(mine - theirs) <= max(least, 0.05 * max(mine, theirs)):
            continue
        best, worst = (mine, theirs) if (mine - theirs) * sign > 0 else (theirs, mine)
        figures = one if best == mine else other
        return figures, f"{_number(best, what)} {what} instead of {_number(worst, what)}"
    return None, ""


def _refused(one: Figures, other: Figures) -> tuple[float | None, float | None]:
    if not one.has_load or not other.has_load:
        return None, None
    return one.worst_refused_share, other.worst_refused_share


def _number(value: float, what: str) -> str:
    if what.startswith("of the requests"):
        return f"{value:.1%}"
    return f"{value:,.2f}" if what == "RU a request" else f"{value:,.0f}"
