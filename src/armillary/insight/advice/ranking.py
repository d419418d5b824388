"""Verdicts on candidate keys and their order. A key's word depends on its own figures and on the throughput of the
best; nothing is weighed against unlike things. The order is by required throughput, and within 5 % by what a key keeps:
transactions, then requests in one partition (reads by id only if the application is known to know the key), then
simplicity. Keys that the data will outgrow come after the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from armillary.insight.advice.candidates import ID, KINDS, Candidate
from armillary.insight.advice.gates import HOT_WRITES, SURCHARGE_CARE, Gate
from armillary.insight.advice.scores import Scorer, Scores
from armillary.insight.verdict import CARE, GOOD, POOR

IMPOSSIBLE, UNDECIDED = "impossible", "undecided"
WORDS: Final = {
    GOOD: "good",
    CARE: "usable with care",
    POOR: "poor",
    IMPOSSIBLE: "impossible",
    UNDECIDED: "undecided",
}
_RANK: Final = {GOOD: 0, CARE: 1, POOR: 2, UNDECIDED: 3, IMPOSSIBLE: 4}
SURCHARGE_GOOD: Final = 1.5
BEST_GOOD, BEST_CARE = 1.25, 2.0
TIE: Final = 0.05
ROWS_MIN: Final = 1_000


@dataclass(slots=True)
class Judged:
    scores: Scores
    gates: list[Gate]
    word: str = UNDECIDED
    times_best: float = 1.0
    is_outgrown: bool = False

    @property
    def key(self) -> str:
        return self.scores.candidate.text

    @property
    def is_broken(self) -> bool:
        return any(gate.is_broken for gate in self.gates)

    @property
    def is_usable(self) -> bool:
        return self.word in (GOOD, CARE, POOR)


class Preferences:
    """Which of equal keys is the more natural one: of paths that requests name, and of levels that queries pin
    together."""

    def __init__(self, scorer: Scorer) -> None:
        load, plan = scorer.load, scorer.plan
        self._named = {*load.filter_shares(), *load.present_key, *plan.must, *plan.known, ID}
        self._pinned = [each.eq for each in load.queries]

    def is_named(self, candidate: Candidate) -> bool:
        """A path that no request names is no better than /id, and has to be known besides."""
        return candidate.is_asked_for or set(candidate.paths) <= self._named

    def idle_levels(self, candidate: Candidate) -> int:
        """Parts of a key behind the first that no query pins together with those before; /id is one that is there for
        the sake of size."""
        idle = 0
        for count in range(1, len(candidate.paths)):
            beginning = set(candidate.paths[: count + 1])
            if candidate.paths[count] != ID and not any(beginning <= pinned for pinned in self._pinned):
                idle += 1
        return idle


def judge(candidates: Sequence[tuple[Scores, list[Gate]]], scorer: Scorer) -> list[Judged]:
    """In order: the recommended one first, if any is usable."""
    judged = [Judged(scores, gates) for scores, gates in candidates]
    possible = [each.scores.required_ru for each in judged if not each.gates and each.scores.requirement is not None]
    best_ru = min(possible, default=math.inf)
    for each in judged:
        each.times_best = each.scores.required_ru / best_ru if math.isfinite(best_ru) else 1.0
        each.word = _word(each, scorer)
        each.is_outgrown = is_outgrown(each.scores, scorer)
    return _ordered(judged, Preferences(scorer))


def _word(judged: Judged, scorer: Scorer) -> str:
    scores = judged.scores
    if judged.is_broken:
        return IMPOSSIBLE
    if judged.gates or scorer.profile.rows < ROWS_MIN:
        return UNDECIDED
    if scores.requirement is None:
        return POOR
    if scores.concentration is not None and scores.concentration.value >= HOT_WRITES:
        return POOR
    if scores.surcharge > SURCHARGE_CARE or judged.times_best > BEST_CARE:
        return POOR
    if not scores.has_enough_first_levels and scorer.base_partitions < scores.judged_partitions:
        return POOR  # the partitions come from throughput, not from splits of what is full
    if (
        scores.surcharge > SURCHARGE_GOOD
        or judged.times_best > BEST_GOOD
        or scores.transactions_kept < 1.0
        or may_be_hot(scores)
        or is_outgrown(scores, scorer)
    ):
        return CARE
    return GOOD


def may_be_hot(scores: Scores) -> bool:
    """Whether writes move from value to value with time, and the sample cannot tell that they are several at once."""
    return scores.is_moving and scores.concentration is not None and scores.concentration.high >= HOT_WRITES


def is_outgrown(scores: Scores, scorer: Scorer) -> bool:
    """Whether a key works for now, and is likely not to when the data has grown: it has few values, or one that comes
    near the limit of a logical partition."""
    limit = scorer.plan.limits.logical_bytes
    is_full_soon = scores.days_to_limit is not None and scores.days_to_limit <= 2 * scorer.plan.horizon_days
    return not scores.has_enough_values or is_full_soon or scores.largest_bytes.value > limit / 2


def _ordered(judged: Sequence[Judged], preferences: Preferences) -> list[Judged]:
    """Of those that are left, always the one that keeps most among those as cheap as the cheapest: being within 5 %
    is not transitive, so that a comparison of pairs would give no order."""

    def rank(each: Judged) -> tuple[int, bool]:
        # Between good and care the throughput decides, but for keys that will be outgrown.
        is_fit = each.word in (GOOD, CARE) and not each.is_outgrown
        return (_RANK[GOOD] if is_fit else _RANK[each.word], not preferences.is_named(each.scores.candidate))

    left = sorted(judged, key=lambda each: (rank(each), each.scores.required_ru, each.key))
    found: list[Judged] = []
    while left:
        first = left[0]
        tied = [each for each in left if rank(each) == rank(first) and is_tie(first.scores, each.scores)]
        chosen = max(tied, key=lambda each: (_kept(each.scores, preferences), -left.index(each)))
        found.append(chosen)
        left.remove(chosen)
    return found


def is_tie(cheapest: Scores, other: Scores) -> bool:
    """Within 5 %, or not to be told apart by the sample: it has an error in how uneven load is, none in its sum."""
    one, two = cheapest.requirement, other.requirement
    if one is None or two is None:
        return one is two
    if two.throughput_ru <= one.throughput_ru * (1.0 + TIE):
        return True
    is_same_sum = two.total_ru <= one.total_ru * (1.0 + TIE)
    return is_same_sum and cheapest.requirement_high_ru > other.requirement_low_ru


def _kept(scores: Scores, preferences: Preferences) -> tuple[float, ...]:
    """What a key keeps; more is better."""
    candidate = scores.candidate
    return (
        scores.transactions_kept if scores.groups else 1.0,
        round(scores.certain_single_share, 2),
        round(scores.single_share, 2),
        -round(scores.fan_out, 1),
        -float(preferences.idle_levels(candidate)),
        -float(KINDS.index(candidate.kind)),
        -float(len(candidate.parts)),
        -round(scores.surcharge, 1),
    )
