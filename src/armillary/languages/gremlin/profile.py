"""profile() and Cosmos DB's executionProfile(): measures every step of the outermost traversal while it runs."""

from __future__ import annotations

from typing import Any, Final

from armillary.languages.gremlin.graph_protocol import StoreOperation
from armillary.languages.gremlin.pipeline import Flow, Pipeline, Scope, Step, labelling, singly
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.steps.branching import CoalesceStep
from armillary.languages.gremlin.steps.navigation import GraphStep, InjectStep, VertexStep
from armillary.languages.gremlin.steps.reducing import ReducingStep
from armillary.languages.gremlin.traversers import Batch
from armillary.languages.gremlin.values.typed_values import Long

_CROSS: Final = ("union", "choose", "branch", "optional", "local", "flatMap", "repeat")


class _Measure:
    def __init__(self, step: Step) -> None:
        self.step = step
        self.total_s = 0.0  # including the time of all steps before it
        self.traverser_count = 0
        self.element_count = 0
        self.operations: list[StoreOperation] = []


class Profile:
    def __init__(self, pipeline: Pipeline, run: Run) -> None:
        self._pipeline = pipeline
        self._run = run
        self._measures = [_Measure(step) for step in pipeline.steps]
        self._taken: set[int] = set()  # indexes of the reads that are already counted for a step

    def flow(self, source: Flow, scope: Scope) -> Flow:
        run = self._run
        for measure in self._measures:
            step = measure.step
            if step.is_lazy and run.is_singly:
                source = singly(source)
            source = self._measured(step.flow(source, run, scope), measure)
            if step.labels:
                source = labelling(source, step.labels)
        return source

    def _measured(self, source: Flow, measure: _Measure) -> Flow:
        elapsed_s = self._run.environment.elapsed_s
        operations = self._run.graph.operations

        async def pull() -> Batch:
            before_s, before = elapsed_s(), len(operations)
            batch = await source()
            measure.total_s += elapsed_s() - before_s
            # Reads by steps before this one are already counted, because those steps finish first.
            for at in range(before, len(operations)):
                if at not in self._taken:
                    self._taken.add(at)
                    measure.operations.append(operations[at])
            measure.traverser_count += len(batch)
            measure.element_count += sum(each.bulk for each in batch)
            return batch

        return pull

    def _times_ms(self) -> list[float]:
        totals = [measure.total_s for measure in self._measures]
        before = [0.0, *totals[:-1]]
        return [max(total - earlier, 0.0) * 1000 for total, earlier in zip(totals, before, strict=True)]

    def metrics(self) -> dict[str, Any]:
        """The metrics of profile(), as TinkerPop defines them."""
        times_ms = self._times_ms()
        total_ms = sum(times_ms)
        found = []
        for at, (measure, time_ms) in enumerate(zip(self._measures, times_ms, strict=True)):
            found.append(
                {
                    "id": f"{at}.0.0()",
                    "name": measure.step.describe(),
                    "dur": time_ms,
                    "counts": {
                        "traverserCount": Long(measure.traverser_count),
                        "elementCount": Long(measure.element_count),
                    },
                    "annotations": {"percentDur": _percent(time_ms, total_ms)},
                }
            )
        return {"dur": total_ms, "metrics": found}

    def execution_profile(self, text: str | None) -> dict[str, Any]:
        """The answer to executionProfile() in the form of Cosmos DB, with the script if there is one."""
        times_ms = self._times_ms()
        total_ms = sum(times_ms)
        found = []
        for measure, time_ms in zip(self._measures, times_ms, strict=True):
            name, operations = _operator(measure.step), measure.operations
            if name == "GetNeighborVertices":
                # Only edges are read: they hold the ids of the vertices at their ends.
                edge_count = sum(each.count for each in operations)
                found.append(_entry("GetEdges", time_ms, total_ms, edge_count, operations))
                time_ms, operations = 0.0, []
            found.append(_entry(name, time_ms, total_ms, measure.element_count, operations))
        if found and found[-1]["name"] not in ("ProjectOperator", "ProjectAggregation"):
            found.append(_entry("ProjectOperator", 0.0, total_ms, self._measures[-1].element_count, []))
        return {"gremlin": text or str(self._pipeline), "totalTime": round(total_ms), "metrics": found}


def _entry(
    name: str, time_ms: float, total_ms: float, result_count: int, operations: list[StoreOperation]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "time": round(time_ms),
        "annotations": {"percentTime": _percent(time_ms, total_ms)},
        "counts": {"resultCount": result_count},
    }
    if operations:
        entry["storeOps"] = [
            {"fanoutFactor": each.fanout, "count": each.count, "size": each.size_bytes, "time": round(each.time_ms, 2)}
            for each in operations
        ]
    return entry


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def _operator(step: Step) -> str:
    if isinstance(step, GraphStep):
        return "GetVertices" if step.name == "V" else "GetEdges"
    if isinstance(step, VertexStep):
        return "GetEdges" if step.gives_edges else "GetNeighborVertices"
    if isinstance(step, InjectStep):
        return "ConstantSourceOperator"
    if isinstance(step, CoalesceStep):
        return "Coalesce"
    if isinstance(step, ReducingStep) or step.is_barrier:
        return "ProjectAggregation"
    return "CartesianProductOperator" if step.name in _CROSS else "ProjectOperator"
