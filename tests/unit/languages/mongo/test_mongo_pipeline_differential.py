"""Random aggregation pipelines: compiled and over batches, with and without what can be done while reading, they give
what the slow reference gives, types and order included."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.mongo_cases import nearly_exact
from support.mongo_pipeline_author import PipelineAuthor
from support.mongo_pipeline_reference import Oracle
from support.mongo_pipelines import aggregate
from support.mongo_reference import Refused

from armillary.errors import Failure
from armillary.languages.mongo.expression_context import Context

SEEDS = [random.Random(20240602 + place).getrandbits(32) for place in range(20)]
PIPELINES = 100


def found_by(
    collections: dict[str, list[Any]], pipeline: list[Any], *, pushes: bool
) -> tuple[list[Any] | None, str | None]:
    context = Context.of(1_700_000_000_000, lambda: 0.5)
    try:
        return aggregate(collections, {"aggregate": "c", "pipeline": pipeline}, context, pushes=pushes), None
    except Failure as failure:
        return None, failure.message


@pytest.mark.parametrize("seed", SEEDS)
def test_pipelines(seed: int) -> None:
    author = PipelineAuthor(seed)
    for _ in range(PIPELINES):
        collections = author.collections()
        before = repr(collections)
        pipeline = author.pipeline()
        for pushes in (False, True):
            found, refused = found_by(collections, pipeline, pushes=pushes)
            try:
                expected = Oracle(collections).run(pipeline, collections["c"])
            except Refused:
                # What a limit keeps from being read cannot be refused.
                assert refused is not None or "$limit" in str(pipeline), f"seed {seed}: {pipeline}"
                continue
            assert refused is None, f"seed {seed}: {pipeline}: {refused}"
            assert found is not None
            assert [nearly_exact(each) for each in found] == [nearly_exact(each) for each in expected], (
                f"seed {seed}: {pipeline}"
            )
        assert repr(collections) == before, "documents are not changed in place"
