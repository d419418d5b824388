"""Aggregation pipelines: stages are compiled once to a Pipeline, which runs on batches of documents. A leading filter,
sort and limit are given separately, so that the read can use an index for them. Reading the documents, and writing for
`$out` and `$merge`, is the door's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from armillary import limits, work
from armillary.languages.mongo.dependencies import pipeline_fields
from armillary.languages.mongo.errors import TYPE_MISMATCH, bad_value, refusal
from armillary.languages.mongo.expression_context import Context
from armillary.languages.mongo.expressions.compiling import weight
from armillary.languages.mongo.filters.matching import Matcher, compile_filter
from armillary.languages.mongo.filters.text_search import TextIndex, TextQuery
from armillary.languages.mongo.memory_budget import Budget
from armillary.languages.mongo.stages import (
    buckets,
    filling,
    graph_lookup,
    grouping,
    limit_skip_sample,
    lookup,
    outputs,
    shaping,
    sorting,
    sources,
    union_and_facet,
    unwinding,
    vector_search,
    windows,
)
from armillary.languages.mongo.stages.sorting import Sorting
from armillary.languages.mongo.stages.stage import Batches, Piecewise, Run, Stage, Stream, chained, each, of_list
from armillary.languages.mongo.stages.vector_search import Searchable, VectorSearch
from armillary.model.bson.bson_values import Document

Transform = Callable[[Document], Document]
Compiled = Stage | Stream

_TRANSFORMS: Final[Mapping[str, Callable[[str, Any, Context], Transform]]] = {
    "$addFields": shaping.add_fields,
    "$set": shaping.add_fields,
    "$project": shaping.project,
    "$unset": shaping.unset,
    "$replaceRoot": shaping.replace_root,
    "$replaceWith": shaping.replace_root,
}
_STAGES: Final[Mapping[str, Callable[[str, Any, Context], Compiled | list[Stage]]]] = {
    "$bucket": buckets.bucket,
    "$bucketAuto": buckets.bucket_auto,
    "$count": grouping.count,
    "$densify": filling.densify,
    "$fill": filling.fill,
    "$graphLookup": graph_lookup.graph_lookup,
    "$group": grouping.group,
    "$limit": limit_skip_sample.limit,
    "$redact": shaping.redact,
    "$sample": limit_skip_sample.sample,
    "$setWindowFields": windows.set_window_fields,
    "$skip": limit_skip_sample.skip,
    "$sortByCount": grouping.sort_by_count,
    "$unwind": unwinding.unwind,
}
_JOINING: Final[Mapping[str, Callable[[str, Any, Context, lookup.CompileNested], Stream]]] = {
    "$facet": union_and_facet.facet,
    "$lookup": lookup.lookup,
    "$unionWith": union_and_facet.union_with,
}
_FIRST: Final = frozenset(["$documents", "$geoNear", *vector_search.STAGES, *sources.PROVIDED])
_LAST: Final = frozenset(["$out", "$merge"])
_NOT_IN_FACETS: Final = frozenset(["$facet", *_FIRST, *_LAST])
# Stages of MongoDB that are not supported: they need a search engine, JavaScript or several servers.
_REFUSED: Final = frozenset(
    "$searchMeta $rankFusion $listSampledQueries $shardedDataDistribution $changeStreamSplitLargeEvent".split()
)


def is_stage(name: str) -> bool:
    return (
        name in _TRANSFORMS
        or name in _STAGES
        or name in _JOINING
        or name in _FIRST
        or name in _LAST
        or name in ("$match", "$sort")
        or name in _REFUSED
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What compiling a pipeline needs to know about the collection."""

    text_index: TextIndex | None = None
    geo_paths: tuple[str, ...] = ()  # paths of geospatial indexes; `$geoNear` without `key` uses the only one
    is_database: bool = False  # `aggregate: 1`: there is no collection
    searchable: Callable[[], Searchable] = Searchable  # its vector indexes
    of_other: Callable[[str], Facts] | None = None  # the facts of other collections, for nested pipelines


_NO_FACTS: Final = Facts()
_UNITS_MIN: Final = 30  # work units; smaller amounts are covered by the price of a document


@dataclass(slots=True)
class Pipeline:
    context: Context
    stages: list[Compiled] = field(default_factory=list)
    matcher: Matcher | None = None  # the compiled leading filter
    leading_filter: Document = field(default_factory=dict)
    leading_sort: Document | None = None
    leading_limit: int | None = None  # how many filtered and sorted documents are enough
    provided: sources.Provided | None = None  # the first stage, if the door provides the documents
    geo_near: sources.GeoNear | None = None
    vector_search: VectorSearch | None = None
    output: outputs.Out | outputs.Merge | None = None
    collections: list[str] = field(default_factory=list)  # other collections that are read
    makes_documents: bool = False
    documents: Callable[[], list[Document]] | None = None  # the function of `$documents`
    filtering_stages: int = 0  # number of stages that the leading filter covers
    text: TextQuery | None = None
    fields: frozenset[str] | None = None  # fields of the collection's documents that are read; None: possibly all

    @property
    def reads_collection(self) -> bool:
        """Whether the pipeline reads the collection's documents."""
        return self.provided is None and not self.makes_documents

    def run(self, source: Batches, run: Run, *, is_filtered: bool = False, is_sorted: bool = False) -> Batches:
        """The results of the pipeline. The flags say whether the leading filter and the leading sort have already been
        applied.
        """
        stages = self.stages[self.filtering_stages :] if is_filtered else list(self.stages)
        if is_sorted and self.leading_sort is not None:
            place = next(place for place, stage in enumerate(stages) if isinstance(stage, Sorting))
            del stages[place]
        if self.documents is not None:
            source = self._made(run)
        elif self.geo_near is not None:
            source = self._near(source, run)
        elif self.vector_search is not None:
            source = self._nearest(self.vector_search, source, run)
        pending: list[Stage] = []
        for stage in stages:
            if isinstance(stage, Stream):
                if pending:
                    source = chained(pending, source, run, self.context)
                    pending = []
                source = stage.stream(source, run)
            else:
                pending.append(stage)
        return chained(pending, source, run, self.context) if pending else source

    async def _made(self, run: Run) -> Batches:
        assert self.documents is not None
        self.context.begin(run.values)
        async for batch in of_list(self.documents()):
            yield batch

    async def _near(self, source: Batches, run: Run) -> Batches:
        assert self.geo_near is not None
        budget = Budget("$geoNear")
        found: list[sources.Place] = []
        async with aclosing(source):
            async for batch in source:
                self.context.begin(run.values)
                found += self.geo_near.within(batch, budget)
        async for batch in of_list(self.geo_near.in_order(found)):
            yield batch

    async def _nearest(self, search: VectorSearch, source: Batches, run: Run) -> Batches:
        found = search.begin()
        async with aclosing(source):
            async for batch in source:
                self.context.begin(run.values)
                found.add(batch)
        async for batch in of_list(found.in_order()):
            yield batch


# Compiling.


def compile_pipeline(given: Any, context: Context, facts: Facts = _NO_FACTS) -> Pipeline:
    return _Compiler(context, facts).compile(given)


def compile_transform(given: Sequence[Any], context: Context) -> Transform:
    """Compiles the stages of an update pipeline to a function from document to document."""
    steps: list[Transform] = []
    for stage in given:
        name, spec = _taken_apart(stage)
        if name not in _TRANSFORMS:
            raise refusal(72, f"{name} is not allowed to be used within an update")
        steps.append(weighed(_TRANSFORMS[name](name, spec, context), weight(spec)))

    def transform(document: Document) -> Document:
        for step in steps:
            document = step(document)
        return document

    return transform


def weighed(transform: Transform, units: int) -> Transform:
    if units <= _UNITS_MIN:
        return transform

    def weigh(document: Document) -> Document:
        work.spend(units)
        return transform(document)

    return weigh


def check_stages(given: Sequence[Any]) -> None:
    """Refuses a pipeline that is not a list of stages."""
    for stage in given:
        _taken_apart(stage)


def _taken_apart(stage: Any) -> tuple[str, Any]:
    if type(stage) is not dict:
        raise refusal(TYPE_MISMATCH, "Each element of the 'pipeline' array must be an object")
    if len(stage) != 1:
        raise refusal(40323, "A pipeline stage specification object must contain exactly one field.")
    name, spec = next(iter(stage.items()))
    if name in _REFUSED:
        raise refusal(115, f"{name} is not supported.")
    if not is_stage(name):
        raise refusal(40324, f"Unrecognized pipeline stage name: '{name}'")
    return name, spec


class _Compiler:
    """Compiles one pipeline; `outer` is the stage that it is nested in."""

    def __init__(self, context: Context, facts: Facts, outer: str = "", depth: int = 0) -> None:
        self._facts, self._outer, self._depth = facts, outer, depth
        self._pipeline = Pipeline(context)

    def compile(self, given: Any) -> Pipeline:
        if type(given) is not list:
            raise refusal(TYPE_MISMATCH, "'pipeline' option must be specified as an array")
        if len(given) > limits.MONGO_STAGES_MAX:
            raise refusal(7749501, f"Pipeline length must be no longer than {limits.MONGO_STAGES_MAX} stages.")
        stages = [_taken_apart(stage) for stage in given]
        self._check_places([name for name, _ in stages])
        place = self._leading_filter(stages)
        for name, spec in stages[place:]:
            self._add(name, spec)
        self._leading_order(stages[place:])
        self._limit_sorts(stages)
        self._pipeline.fields = pipeline_fields(given)
        return self._pipeline

    # Positions of stages.

    def _check_places(self, names: list[str]) -> None:
        first = names[0] if names else ""
        of_server = first == "$documents" or sources.PROVIDED.get(first) is False
        if not self._outer and self._facts.is_database and not of_server and first != "$changeStream":
            raise refusal(
                73, f"{{aggregate: 1}} is not valid for '{first or 'an empty pipeline'}'; a collection is required."
            )
        for place, name in enumerate(names):
            if self._outer == "$facet" and name in _NOT_IN_FACETS:
                raise refusal(40600, f"{name} is not allowed to be used within a $facet stage")
            if self._outer and name in (*_LAST, *sources.PROVIDED):
                code = 31441 if self._outer == "$unionWith" else 51047
                raise refusal(code, f"{name} is not allowed within a {self._outer}'s sub-pipeline")
            if name in _FIRST and place:
                raise refusal(40602, f"{name} is only valid as the first stage in a pipeline.")
            if name in _LAST and place != len(names) - 1:
                raise refusal(40601, f"{name} can only be the final stage in the pipeline")
        if of_server and not self._outer and not self._facts.is_database:
            raise refusal(73, f"'{first}' can only be run with {{aggregate: 1}}")

    # The leading filter, sort and limit.

    def _leading_filter(self, stages: list[tuple[str, Any]]) -> int:
        """Compiles the leading `$match` stages as one filter; returns their number."""
        count = 0
        while count < len(stages) and stages[count][0] == "$match":
            count += 1
        if count:
            filters = [_filter_of(spec) for _, spec in stages[:count]]
            merged = filters[0] if count == 1 else {"$and": [each for each in filters if each]}
            if count > 1 and not merged["$and"]:
                merged = {}
            pipeline = self._pipeline
            pipeline.leading_filter = merged
            pipeline.matcher = matcher = self._matcher(merged, self._facts.text_index)
            pipeline.text = matcher.text
            if matcher.text is not None:
                pipeline.context.score = matcher.text.score
            pipeline.stages.append(_matching(matcher))
            pipeline.filtering_stages = 1
        return count

    def _leading_order(self, stages: list[tuple[str, Any]]) -> None:
        pipeline = self._pipeline
        place = 0
        if stages and stages[0][0] == "$sort" and all(type(each) is not dict for each in stages[0][1].values()):
            pipeline.leading_sort = stages[0][1]
            place = 1
        pipeline.leading_limit = _limit_after(stages[place:])

    def _limit_sorts(self, stages: list[tuple[str, Any]]) -> None:
        """A sort before a limit keeps only the documents that the limit passes on."""
        sorts = [stage for stage in self._pipeline.stages if isinstance(stage, Sorting) and stage.is_plain]
        places = [place for place, (name, _) in enumerate(stages) if name == "$sort"]
        for stage, place in zip(sorts, places, strict=True):
            stage.most = _limit_after(stages[place + 1 :])

    # Stages.

    def _matcher(self, given: Document, text_index: TextIndex | None = None) -> Matcher:
        matcher = compile_filter(given, self._pipeline.context, text_index=text_index)
        if matcher.near is not None:
            raise bad_value("$geoNear, $near, and $nearSphere are not allowed in this context")
        if matcher.has_where:
            raise bad_value("$where is not allowed in this context")
        return matcher

    def _nested(self, name: str, given: Any, context: Context, collection: str | None) -> lookup.Nested:
        if self._depth + 1 > limits.MONGO_PIPELINE_DEPTH_MAX:
            raise refusal(
                232, f"Maximum number of nested sub-pipelines exceeded. Limit is {limits.MONGO_PIPELINE_DEPTH_MAX}"
            )
        of_other = self._facts.of_other
        facts = _NO_FACTS if of_other is None or collection is None else of_other(collection)
        pipeline = _Compiler(context, facts, name, self._depth + 1).compile(given)
        self._pipeline.collections += pipeline.collections
        return pipeline

    def _add(self, name: str, spec: Any) -> None:
        pipeline = self._pipeline
        context = pipeline.context
        added: Compiled | list[Stage]
        if name in _TRANSFORMS:
            added = each(weighed(_TRANSFORMS[name](name, spec, context), weight(spec)))
        elif name == "$match":
            added = _matching(self._matcher(_filter_of(spec)))
        elif name == "$sort":
            added = sorting.sort(spec, context, pipeline.text)
        elif name in _STAGES:
            added = _STAGES[name](name, spec, context)
        elif name in _JOINING:
            added = _JOINING[name](name, spec, context, self._nested)
        else:
            self._add_end(name, spec)
            return
        if isinstance(added, Stream):
            if added.collection is not None:
                pipeline.collections.append(added.collection)
            pipeline.stages.append(added)
        else:
            pipeline.stages += added if isinstance(added, list) else [added]

    def _add_end(self, name: str, spec: Any) -> None:
        """Adds a first stage that provides the documents, or a last stage that writes them."""
        pipeline = self._pipeline
        if name == "$documents":
            pipeline.documents = sources.documents(name, spec, pipeline.context)
            pipeline.makes_documents = True
        elif name == "$geoNear":
            near = sources.geo_near(name, spec, pipeline.context)
            if not near.near.path:
                paths = self._facts.geo_paths
                if not paths:
                    raise refusal(27, "$geoNear requires a 2d or 2dsphere index, but none were found")
                if len(paths) > 1:
                    raise refusal(27, "There is more than one geospatial index: $geoNear must say which by its key")
                near = near.at(paths[0])
            pipeline.geo_near = near
        elif name in vector_search.STAGES:
            found = vector_search.vector_search(name, spec, pipeline.context, self._facts.searchable())
            pipeline.vector_search = found
            pipeline.context.has_search_score = True
        elif name in sources.PROVIDED:
            pipeline.provided = sources.provided(name, spec)
        elif name == "$out":
            pipeline.output = outputs.out(name, spec)
        else:
            pipeline.output = outputs.merge(name, spec, pipeline.context, compile_transform)


def _filter_of(spec: Any) -> Document:
    if type(spec) is not dict:
        raise refusal(15959, "the match filter must be an expression in an object")
    return spec


def _matching(matcher: Matcher) -> Piecewise:
    matches = matcher.matches
    return Piecewise(lambda batch: [document for document in batch if matches(document)])


def _limit_after(stages: list[tuple[str, Any]]) -> int | None:
    """The number of documents that the `$limit` and `$skip` stages directly after a stage need."""
    skipped = 0
    for name, spec in stages:
        if name == "$skip":
            skipped += limit_skip_sample.count_of(name, spec, 5107200)
        elif name == "$limit":
            return skipped + limit_skip_sample.limit_of(spec)
        else:
            break
    return None
