"""The advice as JSON: what was read, what was assumed, the verdict, and for each candidate its word, scores with their
intervals, reasons with examples, required throughput and money. docs/advice-schema.json describes it. The same input
and seed give the same bytes.
"""

from __future__ import annotations

import math
from typing import Any, Final

from armillary.insight.advice import wording
from armillary.insight.advice.advisor import Advice
from armillary.insight.advice.ranking import UNDECIDED, Judged
from armillary.insight.advice.reading.data_profile import TERMS_ROWS
from armillary.insight.advice.reading.leaf_columns import DEPTH_MAX, NODES_MAX
from armillary.insight.advice.reading.path_choice import PATHS_MAX
from armillary.insight.advice.reading.value_counts import Estimate
from armillary.insight.advice.scores import Scores
from armillary.insight.planning import money
from armillary.insight.planning.prices import Prices
from armillary.model.json_members import shown

VERSION: Final = 1
_DIGITS: Final = 6
_SHOWN_MAX: Final = 64
_REQUESTS: Final = "the requests that were given, at their peak"
# What scores without an interval rest on.
_ASSUMED: Final = {
    "distinctAtHorizon": "new values come with the bytes as they did in the sample, up to the horizon",
    "growthExponent": "halves of the sample",
    "chao1": "a lower bound, by the values that were seen once and twice",
    "daysToLimit": "the growth that was given",
    "writeConcentration": "the time of writing",
    "fanOut": _REQUESTS,
    "singlePartitionShare": _REQUESTS,
    "transactionsKept": "the transactions that were captured",
    "pointReadsKept": "the paths that the application is said to know",
    "requiredRuWithReadsAsQueries": _REQUESTS,
    "totalRu": _REQUESTS,
    "hottestRu": f"{_REQUESTS}, on even partitions",
    "hottestValueRu": _REQUESTS,
    "surcharge": "even partitions, of which there are as many as judgedPartitions says",
    "judgedPartitions": "the bytes at the horizon and the required throughput; four at least",
}


def advice_content(advice: Advice, prices: Prices, source: str, warnings: list[str]) -> dict[str, Any]:
    plan, profile = advice.plan, advice.profile
    verdict = advice.best.word if advice.best is not None else UNDECIDED if not advice.is_decided else "none"
    return {
        "version": VERSION,
        "verdict": verdict,
        "text": wording.headline(advice),
        "best": advice.best.key if advice.best is not None else None,
        "undecided": advice.undecided,
        "conditions": wording.conditions(advice),
        "wouldChange": wording.what_would_change(advice),
        "inputs": {
            "source": source,
            "requests": advice.load.origin or None,
            "captured": advice.load.captured,
            "requestsPerSecond": _number(advice.load.rate),
            "sizeBytes": _number(advice.scorer.today_bytes),
            "growthBytesPerDay": _number(plan.growth_bytes_day),
            "horizonDays": _number(plan.horizon_days),
            "horizonBytes": _number(advice.scorer.horizon_bytes),
            "throughput": plan.throughput_ru,
            "seed": plan.seed,
            "prices": prices.to_json(),
        },
        "assumptions": _assumptions(advice),
        "restsOn": _rests_on(advice),
        "rows": {
            "read": profile.rows,
            "bad": profile.bad_rows,
            "badExamples": profile.bad_examples,
            "bytes": _number(profile.size_bytes),
            "sampled": profile.sampled,
            "effective": _number(advice.scorer.sample_rows),
            "itemBytes": _number(profile.item_bytes),
            "terms": _number(profile.terms),
            "paths": len(profile.paths),
            "pathsNotCounted": len(profile.uncounted),
            "valuesNotLookedAt": profile.columns.too_deep + profile.columns.too_many,
            "writtenAt": "/" + "/".join(profile.written) if profile.written is not None else None,
        },
        "candidates": [_candidate(each, advice, prices) for each in advice.judged[:_SHOWN_MAX]],
        "dropped": advice.dropped,
        "events": _events(advice),
        "warnings": [*_warnings(advice), *warnings],
    }


def _candidate(judged: Judged, advice: Advice, prices: Prices) -> dict[str, Any]:
    scores = judged.scores
    requirement = scores.requirement
    return {
        "key": judged.key,
        "kind": scores.candidate.kind,
        "paths": [part.text for part in scores.candidate.parts],
        "verdict": judged.word,
        "isEligible": advice.is_eligible(judged),
        "timesBest": _number(judged.times_best),
        "scores": _scores(scores),
        "reasons": [
            {"for": reason.is_for, "text": reason.text, "example": reason.example}
            for reason in wording.reasons_of(judged, advice)
        ],
        "gates": [
            {"gate": gate.name, "broken": gate.is_broken, "text": gate.text, "rowsNeeded": gate.rows_needed}
            for gate in judged.gates
        ],
        "figures": wording.figures_of(scores, advice),
        "largestKey": scores.largest_name,
        "requiredRu": requirement.throughput_ru if requirement is not None else None,
        "partitions": requirement.partitions if requirement is not None else None,
        "createWithRu": requirement.create_with_ru if requirement is not None else None,
        "monthly": _monthly(scores, advice, prices),
    }


def _scores(scores: Scores) -> dict[str, Any]:
    reads = scores.reads_fanned
    found: dict[str, Estimate | float | None] = {
        "distinct": scores.distinct,
        "distinctAtHorizon": scores.distinct_at_horizon,
        "growthExponent": scores.growth_exponent,
        "chao1": scores.chao1,
        "topShare": scores.top_share,
        "topTenShare": scores.top_ten_share,
        "risingShare": scores.rising,
        "requiredRu": scores.required if scores.requirement is not None else None,
        "effectiveKeys": scores.effective_keys,
        "gini": scores.gini,
        "largestBytes": scores.largest_bytes,
        "daysToLimit": scores.days_to_limit,
        "writeConcentration": scores.concentration,
        "missing": scores.missing,
        "fanOut": scores.fan_out,
        "singlePartitionShare": scores.single_share,
        "transactionsKept": scores.transactions_kept if scores.groups else None,
        "pointReadsKept": None if scores.knows_key is None else float(scores.knows_key),
        "requiredRuWithReadsAsQueries": float(reads.throughput_ru) if reads is not None else None,
        "totalRu": scores.loads.total_ru,
        "hottestRu": scores.loads.hottest_ru,
        "hottestValueRu": scores.hottest_value_ru,
        "surcharge": scores.surcharge,
        "judgedPartitions": float(scores.judged_partitions),
    }
    return {name: _estimate(value, _ASSUMED.get(name)) for name, value in found.items()}


def _estimate(value: Estimate | float | None, assumed: str | None) -> dict[str, float | str | None] | None:
    """With its interval, or with what it rests on."""
    if value is None:
        return None
    if isinstance(value, Estimate):
        interval = {"value": _number(value.value), "low": _number(value.low), "high": _number(value.high)}
        return {**interval, "assumes": None}
    return {"value": _number(value), "low": None, "high": None, "assumes": assumed}


def _number(value: float) -> float | None:
    """With six significant digits; None: not finite, which JSON cannot say."""
    if not math.isfinite(value):
        return None
    if value == 0 or abs(value) >= 10**_DIGITS:
        return round(value)
    return round(value, _DIGITS - 1 - math.floor(math.log10(abs(value))))


def _monthly(scores: Scores, advice: Advice, prices: Prices) -> dict[str, float] | None:
    requirement, plan = scores.requirement, advice.plan
    if requirement is None:
        return None
    if plan.is_serverless:
        throughput = money.serverless(prices, scores.loads.total_ru * prices.month_hours * 3600.0)
    elif plan.is_autoscale:
        billed = money.autoscale_billed_ru(requirement.throughput_ru, requirement.partitions, requirement.hottest_ru)
        throughput = money.autoscale_hours(prices, [billed]) * prices.month_hours
    else:
        throughput = money.manual_month(prices, requirement.throughput_ru)
    bill = money.Bill(throughput, money.storage_month(prices, advice.scorer.horizon_bytes), prices)
    return {name: amount for name, amount in bill.to_json().items() if name != "prices"}


def _assumptions(advice: Advice) -> list[str]:
    found = advice.plan.assumptions(advice.profile.size_bytes, advice.profile.rows)
    if advice.load.is_known:
        origin = advice.load.origin or "the load"
        found.append(
            f"RU/s, money, visited partitions and shares of queries are for the requests of {origin}, at their peak"
        )
        best = advice.best
        if best is not None and best.scores.knows_key is False and not advice.plan.known:
            paths = ", ".join(path for path in best.scores.candidate.paths if path != "/id")
            found.append(f"the application knows {paths} when it reads by id (--known)")
    else:
        found.append("without requests RU/s is the least for the bytes, and partitions are compared by their bytes")
    if advice.profile.written is not None and not advice.load.writes:
        found.append(f"/{'/'.join(advice.profile.written)} is the time of writing")
    found.append("intervals are about sampling alone")
    return found


def _rests_on(advice: Advice) -> dict[str, str]:
    """What the figures outside of the scores rest on: a sentence for each part, by its place in the content."""
    plan, requests = advice.plan, advice.load.is_known
    read = "of the sample" if plan.figures is not None else "that were read"
    demand = "the requests at their peak and the bytes at the horizon" if requests else "the bytes at the horizon"
    return {
        "rows": f"rows, bytes and values are counted over all rows {read}, index terms over {TERMS_ROWS:,} of them at"
        " most",
        "dropped": "a candidate is left out if another is no worse in every score",
        "events": "a key is full when its share of the bytes reaches the limit of a logical partition, if the bytes"
        " grow as was said",
        "candidates.requiredRu": f"required RU/s are the least for {demand}; the interval is that of the score",
        "candidates.partitions": "partitions are those of the required RU/s and the bytes at the horizon",
        "candidates.createWithRu": "a container is created with less where more would make too many partitions",
        "candidates.timesBest": "times the best are the required RU/s of a key by those of the cheapest one",
        "candidates.monthly": "amounts are the required RU/s and the bytes at the horizon by the prices that are named",
        "candidates.gates": "rows that would tell make the interval so small that the limit lies outside, if the"
        " share stays as it is",
    }


def _events(advice: Advice) -> list[dict[str, Any]]:
    """Days on which a key is full, the earliest first."""
    horizon = advice.plan.horizon_days
    found = [
        (each.scores.days_to_limit, each.key, each.scores.largest_name)
        for each in advice.judged
        if each.scores.days_to_limit is not None and each.scores.days_to_limit <= horizon
    ]
    return [
        {"day": _number(day), "key": key, "text": f"{key}: {wording.name_text(name)} is full"}
        for day, key, name in sorted(found, key=lambda each: (each[0], each[1]))
    ]


def _warnings(advice: Advice) -> list[str]:
    profile, load = advice.profile, advice.load
    found = []
    if profile.bad_rows:
        found.append(f"{profile.bad_rows:,} rows could not be read: {'; '.join(profile.bad_examples)}")
    columns, named = profile.columns, "name those that matter with --candidate or --must"
    if columns.too_deep:
        first = "/" + "/".join(columns.first_too_deep)
        found.append(
            f"{columns.too_deep:,} objects were not looked into: they are nested more deeply than {DEPTH_MAX} levels,"
            f" {shown(first)} for example"
        )
    if columns.too_many:
        first = "/" + "/".join(columns.first_too_many)
        found.append(
            f"{columns.too_many:,} values were not looked at: the rows have more than {NODES_MAX:,} different paths,"
            f" {shown(first)} is the first beyond; {named}"
        )
    if profile.uncounted:
        found.append(
            f"{len(profile.uncounted):,} paths were not counted, {shown(profile.uncounted[0])} for example: at most"
            f" {PATHS_MAX} are, those first that look like keys; {named}"
        )
    found += wording.mixed_types(advice)
    if load.unjoined_share > 0:
        found.append(
            f"{100 * load.unjoined_share:.0f} % of the reads could not be joined with items: spread as the others"
        )
    if load.captured and load.seconds < 60:
        found.append(f"the requests are of {load.seconds:,.0f} s only: a peak may be missing")
    return found
