"""Scores and ranks as pure functions: BM25 from counts of words, and the fusion of several rankings into one. Where
the counts come from, and in which clause a score may stand, is for the planner and the operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_SATURATION: Final = 1.2  # BM25's k1: how soon repeating a word stops to count
_LENGTH_SHARE: Final = 0.75  # BM25's b: how much long texts are held back
_RANK_OFFSET: Final = 60


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of a path over all items searched. Those of several partitions add up, number by number."""

    documents: int  # all, whether or not they have a text at the path
    words: int  # in these texts together, stop words left out
    holding: tuple[int, ...]  # for each term: the documents that hold it


def joined(statistics: Sequence[Statistics]) -> Statistics:
    return Statistics(
        sum(each.documents for each in statistics),
        sum(each.words for each in statistics),
        tuple(map(sum, zip(*[each.holding for each in statistics], strict=True))),
    )


def bm25(frequencies: Sequence[int], words: int, statistics: Statistics) -> float:
    """The score of a text in which the terms occur so often and which has so many words."""
    if not statistics.documents or not statistics.words:
        return 0.0
    length = words * statistics.documents / statistics.words  # 1: as long as the texts are on average
    score = 0.0
    for frequency, holding in zip(frequencies, statistics.holding, strict=True):
        rarity = math.log(1 + (statistics.documents - holding + 0.5) / (holding + 0.5))
        damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length)
        score += rarity * frequency * (_SATURATION + 1) / (frequency + damping)
    return score


def ranks(scores: Sequence[float | None], is_reversed: bool = False) -> list[int]:
    """1 for the highest score, or for the lowest; equal scores share a rank and the next score has the next one, as
    clients count. Those that have none come last."""
    sign = 1 if is_reversed else -1
    keys = [math.inf if score is None or score != score else sign * score for score in scores]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    found = [0] * len(keys)
    rank = 0
    for place, index in enumerate(order):
        if place == 0 or keys[index] != keys[order[place - 1]]:
            rank += 1
        found[index] = rank
    return found


def fused(components: Sequence[Sequence[float | None]], weights: Sequence[float] | None = None) -> list[float]:
    """Reciprocal rank fusion: for each item the sum of weight / (60 + rank) over the components. A negative weight
    turns its component around."""
    shares = weights if weights is not None else [1.0] * len(components)
    assert len(shares) == len(components)
    totals = [0.0] * (len(components[0]) if components else 0)
    for scores, weight in zip(components, shares, strict=True):
        for index, rank in enumerate(ranks(scores, weight < 0)):
            totals[index] += abs(weight) / (_RANK_OFFSET + rank)
    return totals
