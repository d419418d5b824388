"""The advice in plain words: the verdict first, with what is wrong about the keys that come to mind, then reasons for
and against each key with a number, its interval and an example, then what would change the verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from armillary.insight.advice.advisor import HARDLY_REPEATS, Advice, first_levels, least_poor, room_until
from armillary.insight.advice.candidates import CONCATENATED, HIERARCHICAL, ID, SINGLE, SUFFIXED
from armillary.insight.advice.gates import (
    CHANGING,
    FULL,
    HOT,
    HOT_WRITES,
    MISSING,
    UNFIT,
    Gate,
    grain_text,
    interval_text,
    percent,
    size_text,
)
from armillary.insight.advice.key_demands import ALL
from armillary.insight.advice.ranking import SURCHARGE_GOOD, WORDS, Judged, may_be_hot
from armillary.insight.advice.reading.value_counts import Estimate
from armillary.insight.advice.scores import Scores
from armillary.insight.planning import distributions
from armillary.insight.verdict import CARE, GOOD

REASONS_MAX: Final = 3
_NAME_CHARACTERS: Final = 40
_COUNTERED_MAX: Final = 3
_YEARS_AHEAD: Final = 200


@dataclass(frozen=True, slots=True)
class Reason:
    is_for: bool
    text: str
    example: str = ""


def name_text(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"


def headline(advice: Advice) -> str:
    """The verdict, in a sentence or two."""
    if not advice.is_decided:
        return f"Undecided: {'; '.join(advice.undecided)}."
    if advice.best is None:
        return _none_good(advice)
    best = advice.best
    care = " with care" if best.word == CARE else ""
    counter = _counter_examples(advice)
    return " ".join([f"Use {key_text(best)}{care}.", *counter])


def key_text(judged: Judged) -> str:
    candidate = judged.scores.candidate
    if candidate.kind == CONCATENATED:
        return f"a property of its own that holds {candidate.text}"
    if candidate.kind == SUFFIXED:
        return f"a property of its own that holds {candidate.text} (the number from a hash of /id)"
    return candidate.text


def _counter_examples(advice: Advice) -> list[str]:
    """What is wrong about the other keys that come to mind: those that queries pin, and /id."""
    best = advice.best
    filters = [*advice.load.filter_shares(), *advice.load.present_key, ID]
    singles = {
        each.scores.candidate.paths[0]: each
        for each in advice.judged
        if each.scores.candidate.kind == SINGLE and each is not best
    }
    named = [singles[path] for path in dict.fromkeys(filters) if path in singles]
    others = [each for each in singles.values() if each not in named and each.gates]
    texts = [text for each in [*named, *others] if (text := _flaw(each, advice))]
    return ["; ".join(texts[:_COUNTERED_MAX]) + "."] if texts else []


def _flaw(judged: Judged, advice: Advice) -> str:
    """The main thing against a key, as a clause with the key as its subject."""
    scores, key = judged.scores, judged.key
    for gate in judged.gates:
        return f"{key} {_gate_clause(gate, scores, advice)}"
    if is_clock(scores) and scores.clock is not None:
        return f"{key} sends 100 % of the writes of {grain_text(scores.clock.grain_s)} to one value"
    if scores.concentration is not None and scores.concentration.value >= HOT_WRITES:
        window = window_text(advice)
        return f"{key} sends {percent(scores.concentration.value)} of the writes of {window} to one value"
    best = advice.best
    share = fanned_share(scores)
    if best is not None and share > fanned_share(best.scores) + 0.005:
        return f"{key} makes {percent(share)} of your queries visit every partition"
    if not scores.first_levels_spread:
        return f"{key} has only {scores.first_levels:,.0f} first levels for {scores.created_partitions} partitions"
    if not scores.has_enough_values:
        return f"{key} has only {scores.distinct.value:,.0f} values"
    if best is not None and scores.transactions_kept < best.scores.transactions_kept:
        return f"{key} breaks {percent(1 - scores.transactions_kept)} of the transactions"
    if best is not None and scores.required_ru > best.scores.required_ru:
        return f"{key} needs {ru_text(scores)} RU/s instead of {ru_text(best.scores)}"
    if scores.surcharge > SURCHARGE_GOOD:
        return f"{key} puts {scores.surcharge:.1f} times its fair share on one partition"
    if best is not None and scores.knows_key is False and best.scores.knows_key is not False:
        return f"{key} has to be known for every read by id"
    return ""


def is_clock(scores: Scores) -> bool:
    """Whether a key is the time of writing and nothing else."""
    candidate, clock = scores.candidate, scores.clock
    is_first = candidate.kind == HIERARCHICAL and clock is not None and candidate.paths[0] == clock.path
    alone = is_first or (len(candidate.parts) == 1 and candidate.kind != SUFFIXED)
    return clock is not None and clock.is_certain and alone


def _gate_clause(gate: Gate, scores: Scores, advice: Advice) -> str:
    hedge = "" if gate.is_broken else "perhaps "
    if gate.name == FULL:
        limit = size_text(advice.plan.limits.logical_bytes)
        share = f"{percent(scores.top_share.value)} of the bytes"
        if scores.rising is not None:
            share = f"{percent(scores.rising.value)} of the newest writes"
        name = f" for {name_text(scores.largest_name)}" if scores.largest_name else ""
        return f"alone {hedge}reaches {limit}{name}{when_text(scores, advice)} ({share})"
    if gate.clause:
        return gate.clause
    if gate.name == HOT:
        name = f" ({name_text(scores.hottest_name)})" if scores.hottest_name else ""
        return f"{hedge}puts {scores.hottest_value_ru:,.0f} RU/s on one value{name}"
    if gate.name == MISSING:
        return f"is missing in {percent(scores.missing.value)} of the rows"
    return {CHANGING: "changes, and a key cannot", UNFIT: f"cannot be a key ({gate.text})"}.get(gate.name, gate.text)


def when_text(scores: Scores, advice: Advice) -> str:
    """When a logical partition is full: a month where the data has times, else a number of days."""
    days = scores.days_to_limit
    if days is None:
        return ""
    if days <= 0:
        return " already" if not advice.plan.growth_bytes_day else " today"
    windows = advice.scorer.windows
    if windows is not None and not advice.load.writes and days < 365 * _YEARS_AHEAD:
        day = datetime.fromtimestamp(windows.last_s, UTC) + timedelta(days=days)
        return f" in {day:%B %Y}"
    return f" after {days:,.0f} days"


def fanned_share(scores: Scores) -> float:
    """The share of queries that visit every partition."""
    queries = [(each.rate, route.kind) for each, route in scores.demands.visited if each.is_query]
    rate = sum(each for each, _ in queries)
    return sum(each for each, kind in queries if kind == ALL) / rate if rate else 0.0


def ru_text(scores: Scores) -> str:
    return f"{scores.required_ru:,.0f}" if scores.requirement is not None else "more than can be set"


def window_text(advice: Advice) -> str:
    width = advice.scorer.windows.width_s if advice.scorer.windows is not None else 60.0
    for seconds, name in (
        (365 * 86_400, "a year"),
        (30 * 86_400, "30 days"),
        (7 * 86_400, "a week"),
        (86_400, "a day"),
    ):
        if width >= seconds:
            return name
    return f"{width / 3600:.0f} h" if width >= 3600 else f"{width / 60:.0f} min"


def _none_good(advice: Advice) -> str:
    poor = least_poor(advice)
    if poor is None:
        reasons = [flaw for each in advice.judged[:_COUNTERED_MAX] if (flaw := _flaw(each, advice))]
        because = ["; ".join(reasons) + "."] if reasons else []
        return " ".join(["No candidate is possible.", *because, change_of_items(advice)])
    flaw = _flaw(poor, advice)
    return f"No key is good. The least poor is {poor.key}{': ' + flaw if flaw else ''}. {change_of_items(advice)}"


def change_of_items(advice: Advice) -> str:
    """Which change of the items would help."""
    moving = any(each.scores.is_moving for each in advice.judged[:_COUNTERED_MAX])
    if moving:
        return (
            "Add a property that spreads the writes of one moment, such as a device, a user or a number from 0 to 15."
        )
    return "Add a property with many values that queries can name, or divide the container by what is read together."


# Reasons.


def reasons_of(judged: Judged, advice: Advice) -> list[Reason]:
    against = list(_against(judged, advice))[:REASONS_MAX]
    return [*list(_in_favour(judged, advice))[:REASONS_MAX], *against]


def _in_favour(judged: Judged, advice: Advice) -> Iterable[Reason]:
    scores = judged.scores
    queries = advice.load.query_rate
    if queries:
        kept = scores.demands.single_query_share(scores.judged_partitions)
        if kept > 0:
            example = next(
                (each.named for each, _ in scores.demands.visited if each.is_query and _is_single(each, scores)), ""
            )
            yield Reason(True, f"{percent(kept)} of the queries visit one partition", example)
    if scores.has_enough_values and not judged.gates:
        values = f"{scores.distinct.value:,.0f} values{_range_text(scores.distinct)}"
        name = name_text(scores.top_name)
        text = f"{values}, the largest with {percent(scores.top_share.value)} of the bytes{_shares(scores.top_share)}"
        yield Reason(True, text, name)
    if scores.surcharge <= SURCHARGE_GOOD:
        text = f"the hottest of {scores.judged_partitions} partitions has {scores.surcharge:.2f} times its fair share"
        yield Reason(True, text)
    if scores.groups and scores.transactions_kept == 1.0:
        yield Reason(True, f"all {scores.groups:,} transactions stay inside one key")


def figures_of(scores: Scores, advice: Advice) -> list[str]:
    """The figures of the table with the intervals of the sample."""
    size, share = scores.largest_bytes, scores.top_share
    exact = " (exact)" if share.low == share.high else ""
    found = [
        f"largest key at the horizon {size_text(size.value)} ({size_text(size.low)} to {size_text(size.high)})",
        f"its share of the bytes {percent(share.value)}{exact or f' ({interval_text(share)})'}",
    ]
    if scores.requirement is not None and advice.load.is_known:
        required = scores.required
        found.append(f"RU/s {required.value:,.0f} ({required.low:,.0f} to {required.high:,.0f})")
    if scores.concentration is not None:
        window = window_text(advice) if scores.clock is None else grain_text(max(60.0, scores.clock.grain_s))
        text = f"largest share of the writes of {window} {percent(scores.concentration.value)}"
        found.append(text + _shares(scores.concentration))
    return found


def _is_single(operation: object, scores: Scores) -> bool:
    return all(each is not operation for each, _ in scores.demands.fanning(scores.judged_partitions))


def _against(judged: Judged, advice: Advice) -> Iterable[Reason]:
    scores = judged.scores
    for gate in judged.gates:
        yield Reason(False, gate.text, gate.example)
    if scores.clock is not None and is_clock(scores):
        text = f"it is the time of writing: all writes of {grain_text(scores.clock.grain_s)} go to one value"
        rate = f"{scores.clock.writes_s:,.1f} a second"
        origin = "by the rates given" if advice.load.is_known else "by the items and the time that they were written in"
        yield Reason(False, f"{text}, {rate} {origin}", scores.clock.name)
    elif scores.concentration is not None and (scores.concentration.value >= HOT_WRITES or may_be_hot(scores)):
        text = f"one value gets {percent(scores.concentration.value)} of the writes of {window_text(advice)}"
        yield Reason(False, text + _shares(scores.concentration), name_text(scores.top_name))
    fanning = scores.demands.fanning(scores.judged_partitions)
    if fanning:
        share = 1.0 - scores.demands.single_query_share(scores.judged_partitions)
        operation, visited = fanning[0]
        text = f"{percent(share)} of the queries visit more than one of {scores.judged_partitions} partitions"
        yield Reason(False, text, f"{operation.named}: {visited:,.1f} partitions")
    if not scores.first_levels_spread:
        few = f"the first level has {scores.first_levels:,.0f} values for {scores.created_partitions} partitions"
        yield Reason(False, f"{few}: a new container is busy in some of them only", name_text(scores.top_name))
    elif not scores.has_enough_values:
        enough = distributions.enough_values(scores.judged_partitions)
        values = f"{scores.distinct.value:,.0f} values{_range_text(scores.distinct)}"
        text = f"{values} are few for {scores.judged_partitions} partitions: {enough:,} spread evenly"
        yield Reason(False, text, name_text(scores.top_name))
    if scores.surcharge > SURCHARGE_GOOD:
        text = f"the hottest of {scores.judged_partitions} partitions has {scores.surcharge:.1f} times its fair share"
        yield Reason(False, text, name_text(scores.top_name))
    if scores.groups and scores.transactions_kept < 1.0:
        lost = round((1.0 - scores.transactions_kept) * scores.groups)
        yield Reason(False, f"{lost:,} of {scores.groups:,} transactions would span several keys")
    if scores.knows_key is False:
        yield Reason(False, _reads_text(scores))
    if scores.largest_bytes.value > advice.plan.limits.logical_bytes / 2 and not judged.gates:
        size = scores.largest_bytes
        text = f"the largest key has {size_text(size.value)} ({size_text(size.low)} to {size_text(size.high)})"
        yield Reason(False, text, name_text(scores.top_name))


def _reads_text(scores: Scores) -> str:
    paths = " and ".join(path for path in scores.candidate.paths if path != ID)
    fanned = f"{scores.reads_fanned.throughput_ru:,} RU/s" if scores.reads_fanned is not None else "too much"
    return f"a read by id has to know {paths}: as queries they need {fanned}"


def _range_text(found: Estimate) -> str:
    return "" if found.low == found.high else f" ({found.low:,.0f} to {found.high:,.0f})"


def _shares(found: Estimate) -> str:
    if found.low == found.high:
        return " (exact)"
    return f" ({100 * found.low:.2g} to {100 * found.high:.2g} %)"


def what_would_change(advice: Advice) -> list[str]:
    """What the verdict hangs on."""
    best = advice.best
    if best is None:
        return []
    found = []
    room = room_until(best, advice)
    scores = best.scores
    if scores.candidate.kind in (SINGLE, HIERARCHICAL) and not scores.values.is_unique:
        if room < 1.0:
            found.append(f"{best.key} stays {WORDS[best.word]} until one value has {percent(room)} of the bytes")
        elif scores.top_share.value > 0:
            size = size_text(advice.plan.limits.logical_bytes / scores.top_share.value)
            found.append(f"{best.key} is full for {name_text(scores.top_name)} when the container has {size}")
    if scores.knows_key is False:
        paths = ",".join(path for path in scores.candidate.paths if path != ID)
        found.append(f"if the application does not know {paths} when it reads by id, say what it knows (--known)")
    second = next((each for each in advice.usable if each is not best and each.word == GOOD), None)
    if second is not None and advice.load.is_known:
        found.append(f"the next is {second.key}, with {second.times_best:.2f} times the throughput of the cheapest")
    return found


def mixed_types(advice: Advice) -> list[str]:
    """Paths of keys that may be chosen whose values have several types: a query for 7 does not find "7"."""
    chosen = [advice.best] if advice.best is not None else [each for each in advice.usable if each.word in (GOOD, CARE)]
    paths = [*(path for each in chosen for path in each.scores.candidate.paths), *advice.load.filter_shares()]
    found = []
    for path in dict.fromkeys([*paths, *advice.plan.must]):
        profile = advice.profile.paths.get(path)
        if profile is None or path == ID or len(profile.kinds) < 2:
            continue
        kinds = " and ".join(f"{kind} in {rows:,} rows" for kind, rows in profile.kinds.items())
        values = profile.counts.names.values()
        other = next((value for value in values if type(value) in (int, float)), 7)
        example = f'a query for {json.dumps(other)} does not find "{json.dumps(other)}"'
        found.append(f"{path} holds {kinds}: values of different types are different keys, so that {example}")
    return found


def conditions(advice: Advice) -> list[str]:
    """Without requests: what each key that is left is good for."""
    if advice.load.is_known or advice.is_decided:
        return []
    found = []
    for each in advice.judged:
        candidate = each.scores.candidate
        repeats = candidate.paths == (ID,) or each.scores.growth_exponent < HARDLY_REPEATS
        if each.word in (GOOD, CARE) and candidate.kind == SINGLE and repeats and not _is_time(each):
            what = "items are read by id" if candidate.paths == (ID,) else f"most queries name {candidate.text}"
            found.append(f"{candidate.text} if {what}")
    found += [
        f"{path},{ID} if most queries name {path}" for path in first_levels(advice) if not _is_time_path(path, advice)
    ]
    return found[: REASONS_MAX + 2]


def _is_time_path(path: str, advice: Advice) -> bool:
    found = advice.profile.paths.get(path)
    return found is not None and found.is_time


def _is_time(judged: Judged) -> bool:
    return any(profile is not None and profile.is_time for profile in judged.scores.values.paths)
