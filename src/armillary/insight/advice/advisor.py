"""The advice: scores the candidates of a profile, judges them, and decides whether one can be recommended. Where the
sample or the requests cannot tell, it says how much more of them would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from armillary.insight.advice import candidates as keys
from armillary.insight.advice.advice_plan import Plan
from armillary.insight.advice.candidate_keys import KeyValues
from armillary.insight.advice.candidates import CANDIDATES_MAX, ID, SINGLE, SUFFIXES_MAX, Candidate
from armillary.insight.advice.gates import FULL, HOT, Gate, gates_of
from armillary.insight.advice.ranking import ROWS_MIN, TIE, UNDECIDED, Judged, is_tie, judge
from armillary.insight.advice.reading.data_profile import Profile
from armillary.insight.advice.request_load import REQUESTS_MIN, Load
from armillary.insight.advice.scores import FIRST_LEVELS, PARTITIONS_JUDGED, Scorer, Scores
from armillary.insight.planning.needs import suffixes_needed
from armillary.insight.verdict import CARE, GOOD, POOR

_RIVALS_NAMED: Final = 3
HARDLY_REPEATS: Final = 0.9  # β of a path whose values are nearly all different
Progress = Callable[[float, str], None]


@dataclass(slots=True)
class Advice:
    scorer: Scorer
    judged: list[Judged]  # in order
    best: Judged | None = None
    undecided: list[str] = field(default_factory=list)  # what is missing, and how much of it would do
    dropped: int = 0  # candidates that another is no worse than in every score

    @property
    def profile(self) -> Profile:
        return self.scorer.profile

    @property
    def plan(self) -> Plan:
        return self.scorer.plan

    @property
    def load(self) -> Load:
        return self.scorer.load

    @property
    def is_decided(self) -> bool:
        return not self.undecided

    @property
    def usable(self) -> list[Judged]:
        return [each for each in self.judged if each.is_usable and self.is_eligible(each)]

    def is_eligible(self, judged: Judged) -> bool:
        """Whether the key has the paths that it must have."""
        return set(self.plan.must) <= set(judged.scores.candidate.paths)


def advise(
    profile: Profile,
    load: Load,
    plan: Plan,
    *,
    asked: Sequence[Candidate] = (),
    unique_indexes: Sequence[Collection[str]] = (),
    progress: Progress = lambda share, text: None,
) -> Advice:
    scorer = Scorer(profile, load, plan)
    if not profile.rows:
        return Advice(scorer, [], undecided=[f"there are no rows: read {ROWS_MIN:,} more at least"])
    scored: dict[str, tuple[Scores, list[Gate]]] = {}

    def add(found: Sequence[Candidate], share: float) -> None:
        for number, candidate in enumerate(found):
            if candidate.text not in scored and len(scored) < CANDIDATES_MAX:
                progress(share + 0.4 * number / len(found), f"candidates: {candidate.text}")
                scores = scorer.score(candidate)
                scored[candidate.text] = (scores, gates_of(scores, scorer, unique_indexes))
                scores.release()

    add(keys.singles(profile, plan.presence, plan.never, asked), 0.1)
    add(_composed(scorer, scored, _filters(load, plan)), 0.5)
    judged = judge(list(scored.values()), scorer)
    advice = Advice(scorer, judged)
    _drop_dominated(advice)
    _decide(advice)
    return advice


def _filters(load: Load, plan: Plan) -> list[str]:
    pinned = [*plan.must, *load.filter_shares(), *load.present_key]
    return [path for path in dict.fromkeys(pinned) if path not in plan.never]


def _composed(scorer: Scorer, scored: dict[str, tuple[Scores, list[Gate]]], filters: Sequence[str]) -> list[Candidate]:
    plan = scorer.plan

    def fails_alone(path: str) -> bool:
        if path not in scored:
            return False
        scores, gates = scored[path]
        return any(gate.name in (FULL, HOT) for gate in gates) or scores.is_moving

    def passes(candidate: Candidate) -> bool:
        found = KeyValues(scorer.profile, candidate).counted
        return bool(len(found.sizes)) and (
            found.sizes[0] / found.sizes.sum() * scorer.horizon_bytes <= plan.limits.logical_bytes
        )

    def suffixes(path: str) -> int:
        scores, _ = scored[path]
        budget_ru = plan.throughput_ru / scores.partitions if plan.throughput_ru is not None else plan.partition_ru
        largest = scores.top_share.value * scorer.horizon_bytes
        if scores.rising is not None:
            largest = scores.largest_bytes.value
        return min(
            SUFFIXES_MAX,
            suffixes_needed(largest, scores.hottest_value_ru, budget_ru, plan.limits.logical_bytes),
        )

    return keys.composed(
        scorer.profile,
        filters,
        presence=plan.presence,
        never=plan.never,
        fails_alone=fails_alone,
        passes=passes,
        suffixes=suffixes,
    )


def _drop_dominated(advice: Advice) -> None:
    """Without requests nothing is dropped: what queries will pin is not known, and /id would be left alone."""
    if not advice.load.is_known or advice.load.lacks_conditions:
        return
    pinned = set(advice.load.filter_shares()) | set(advice.load.present_key) | set(advice.plan.must)
    kept: list[Judged] = []
    for each in advice.judged:
        candidate = each.scores.candidate
        is_wanted = candidate.is_asked_for or (candidate.kind == SINGLE and {*candidate.paths} <= {*pinned, ID})
        if is_wanted or not any(_is_no_worse(better, each) for better in kept):
            kept.append(each)
    advice.dropped = len(advice.judged) - len(kept)
    advice.judged = kept


def _is_no_worse(one: Judged, other: Judged) -> bool:
    """In every score; `one` comes before in the order."""
    mine, theirs = one.scores, other.scores
    return (
        mine.required_ru <= theirs.required_ru
        and mine.fan_out <= theirs.fan_out + 1e-9
        and mine.single_share >= theirs.single_share - 1e-9
        and mine.transactions_kept >= theirs.transactions_kept
        and (mine.largest_bytes.value <= theirs.largest_bytes.value or one.word == GOOD)
        and mine.surcharge <= theirs.surcharge * (1.0 + TIE)
        and (mine.knows_key is not False or theirs.knows_key is False)
    )


# The decision.


def _decide(advice: Advice) -> None:
    profile = advice.profile
    usable = advice.usable
    advice.best = next((each for each in usable if each.word in (GOOD, CARE)), None)
    if profile.rows < ROWS_MIN:
        more = ROWS_MIN - profile.rows
        advice.undecided.append(f"{profile.rows:,} rows are too few: read {more:,} more ({ROWS_MIN:,} at least)")
    elif not advice.load.is_known:
        _decide_by_data(advice)
    elif advice.load.lacks_conditions and advice.load.queries and not advice.plan.must and len(usable) > 1:
        advice.undecided.append("the requests do not say what queries filter by (--workload, or --must with that path)")
    elif not advice.load.is_enough and len(usable) > 1:
        more = REQUESTS_MIN - advice.load.captured
        advice.undecided.append(
            f"{advice.load.captured:,} requests are too few to tell the keys apart: capture {more:,} more"
        )
    if not advice.undecided:
        advice.undecided += _hanging(advice) or _depends_on_reads(advice)
    if advice.undecided:
        advice.best = None


def _decide_by_data(advice: Advice) -> None:
    """Without requests a key can be told to be impossible or poor, but which of the others is best depends on what
    queries pin; unless the key must hold a path. A path that is impossible alone can be the first level of a key."""
    rivals = [each.key for each in advice.usable if each.word in (GOOD, CARE) and not _is_prose(each)]
    rivals += [f"{path},{ID}" for path in first_levels(advice)]
    if ID not in rivals and _lacks_ids(advice):
        rivals.insert(0, ID)  # which items get when they are stored
    if advice.plan.must or len(rivals) <= 1:
        return
    named = " and ".join(rivals) if len(rivals) <= _RIVALS_NAMED else f"{len(rivals)} keys"
    advice.undecided.append(
        f"the data alone leaves {named}: which is best depends on the requests"
        f" (--workload, or --requests with {REQUESTS_MIN:,} at least; or --must with the path that queries filter by)"
    )


def _is_prose(judged: Judged) -> bool:
    """Whether the key is a text that no query names and no item shares, such as a description."""
    candidate, scores = judged.scores.candidate, judged.scores
    profile = scores.values.paths[0]
    is_text = candidate.kind == SINGLE and profile is not None and profile.is_prose
    return is_text and not candidate.is_asked_for and scores.growth_exponent >= HARDLY_REPEATS


def _lacks_ids(advice: Advice) -> bool:
    found = advice.profile.paths.get(ID)
    return ID not in advice.plan.never and (found is None or not found.present)


def first_levels(advice: Advice) -> list[str]:
    """Paths that are too large or too hot alone, but not with /id as a second level: those whose values repeat and
    are enough for the partitions."""
    if ID in advice.plan.never:
        return []
    found = []
    for each in advice.judged:
        scores = each.scores
        is_path = scores.candidate.kind == SINGLE and scores.candidate.paths != (ID,)
        if not is_path or scores.is_moving or scores.growth_exponent >= HARDLY_REPEATS:
            continue
        is_too_large = bool(each.gates) and all(gate.name in (FULL, HOT) for gate in each.gates)
        if is_too_large and scores.distinct.value >= FIRST_LEVELS * PARTITIONS_JUDGED:
            found.append(scores.candidate.paths[0])
    return found


def _depends_on_reads(advice: Advice) -> list[str]:
    """Whether a key as cheap as the best serves more requests in one partition, if the application can name it when it
    reads by id: that is not known from the requests."""
    best = advice.best
    if best is None or advice.plan.known or best.scores.knows_key is False:
        return []
    for each in advice.usable:
        scores = each.scores
        if scores.knows_key is not False or each.is_outgrown or each.word not in (GOOD, CARE):
            continue
        if scores.single_share <= best.scores.single_share + TIE or not is_tie(best.scores, scores):
            continue
        paths = [path for path in scores.candidate.paths if path != ID]
        known = " ".join(f"--known {path}" for path in paths)
        return [
            f"{each.key} if the application knows {' and '.join(paths)} when it reads or writes by id ({known}), "
            f"{best.key} if it knows the id alone (--known {ID})"
        ]
    return []


def _hanging(advice: Advice) -> list[str]:
    """Candidates whose gate the sample cannot decide, and that would be better than the best if they passed."""
    best = advice.best
    found = []
    for each in advice.judged:
        if each.word != UNDECIDED or not advice.is_eligible(each):
            continue
        if best is not None and not _would_win(each, best, advice):
            continue
        gate = next(gate for gate in each.gates if not gate.is_broken)
        rows = f"; about {gate.rows_needed:,} rows would tell" if gate.rows_needed else ""
        found.append(f"{each.key}: {gate.text}{rows}")
    return found[:3]


def _would_win(judged: Judged, best: Judged, advice: Advice) -> bool:
    if best.word == GOOD and judged.scores.required_ru >= best.scores.required_ru * (1.0 - TIE):
        return False
    passing = [(each.scores, [] if each is judged else each.gates) for each in advice.judged]
    again = judge(passing, advice.scorer)
    first = next((each for each in again if each.is_usable and advice.is_eligible(each)), None)
    return first is not None and first.scores is judged.scores


def least_poor(advice: Advice) -> Judged | None:
    return next((each for each in advice.usable if each.word == POOR), None)


def room_until(judged: Judged, advice: Advice) -> float:
    """The share of the bytes at which one key would reach the limit of a logical partition."""
    size = advice.scorer.horizon_bytes
    return advice.plan.limits.logical_bytes / size if size else math.inf
