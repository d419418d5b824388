"""path(), simplePath(), cyclicPath() and tree(): steps on the paths of traversers."""

from __future__ import annotations

from collections.abc import Iterable

from armillary.languages.gremlin.by_modulators import Bys, make_by
from armillary.languages.gremlin.errors import compilation, execution
from armillary.languages.gremlin.pipeline import (
    WHOLE_PATH,
    Builder,
    Flow,
    Pipeline,
    Scope,
    Step,
    WaitingStep,
    after,
    builds,
)
from armillary.languages.gremlin.run import Run
from armillary.languages.gremlin.step_arguments import Arguments
from armillary.languages.gremlin.traversers import MISSING, Batch, Traverser
from armillary.languages.gremlin.values.comparing import identity
from armillary.languages.gremlin.values.elements import Path, Tree
from armillary.work import make, spend

_STOP_BYTES = 16  # bytes of a path for each of its objects


class PathStep(WaitingStep):
    """Shared by path(), simplePath() and cyclicPath(): by() modulators in turn, and from() and to()."""

    needs_path = WHOLE_PATH

    def __init__(self, name: str) -> None:
        self.name = name
        self.bys = Bys()
        self.begin: str | None = None
        self.end: str | None = None

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name == "by":
            self.bys.each.append(make_by(arguments, builder))
        elif name == "from":
            self.begin = arguments.text()
        elif name == "to":
            self.end = arguments.text()
        else:
            super().modulate(name, arguments, builder)

    def children(self) -> Iterable[Pipeline]:
        return self.bys.pipelines()

    async def process(self, batch: Batch, run: Run, scope: Scope) -> Batch:
        found: Batch = []
        if self.bys.each:
            await run.load([place.value for each in batch if each.path for place in each.path.places()])
        for each in batch:
            path = await self._path(each, run)
            if path is None:
                continue
            if self.name == "path":
                found.append(each.to(path))
                continue
            spend(5 * len(path.objects))
            keys = [identity(value) for value in path.objects]
            if (len(set(keys)) == len(keys)) is (self.name == "simplePath"):
                found.append(each)
        return found

    async def _path(self, traverser: Traverser, run: Run) -> Path | None:
        path = self._cut(traverser.whole_path())
        make(_STOP_BYTES * len(path.objects))
        spend(5 * len(path.objects))
        if not self.bys.each:
            return path
        objects = []
        for at, value in enumerate(path.objects):
            result = await self.bys.at(at).of(value, traverser, run)
            if result is MISSING:
                return None
            objects.append(result)
        return Path(objects, path.labels)

    def _cut(self, path: Path) -> Path:
        begin = 0 if self.begin is None else _place(path, self.begin, "from")
        end = len(path.objects) if self.end is None else _place(path, self.end, "to") + 1
        if self.end is not None and begin >= end:
            raise execution(f"Could not isolate path because from comes after to: {self.begin}->{self.end}.")
        return Path(path.objects[begin:end], path.labels[begin:end])


def _place(path: Path, label: str, side: str) -> int:
    """The index of the last object with the label."""
    for at in range(len(path.labels) - 1, -1, -1):
        if label in path.labels[at]:
            return at
    raise execution(f"Could not locate path {side}-label: {label}.")


@builds("path", "simplePath", "cyclicPath")
def _path(builder: Builder, arguments: Arguments) -> Step:
    return PathStep(arguments.step)


class TreeStep(Step):
    """tree(), or tree('x') as a side effect."""

    name = "tree"
    needs_path = WHOLE_PATH
    is_lazy = True

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.is_barrier = key is None
        self.bys = Bys()

    def modulate(self, name: str, arguments: Arguments, builder: Builder) -> None:
        if name != "by":
            raise compilation(f"{name}() cannot modulate tree().")
        self.bys.each.append(make_by(arguments, builder))

    def children(self) -> Iterable[Pipeline]:
        return self.bys.pipelines()

    def register(self, run: Run) -> None:
        if self.key is not None and not isinstance(run.side_effects.values.get(self.key), Tree):
            run.side_effects.values[self.key] = Tree()

    async def _grow(self, tree: Tree, batch: Batch, run: Run) -> None:
        run.hold(len(batch))
        if self.bys.each:
            await run.load([place.value for each in batch if each.path for place in each.path.places()])
        for each in batch:
            branch = tree
            spend(10)
            for at, value in enumerate(each.whole_path().objects):
                key = await self.bys.at(at).of(value, each, run)
                spend(10)
                if key is not MISSING:  # objects without a key are left out of the tree
                    branch = branch.branch(identity(key), key)

    def flow(self, source: Flow, run: Run, scope: Scope) -> Flow:
        if self.key is not None:
            return self._passing(source, run, self.key)

        async def make() -> Batch:
            tree = Tree()
            while batch := await source():
                await self._grow(tree, batch, run)
                await run.breathe()
            return [run.start(tree)]

        return after(make)

    def _passing(self, source: Flow, run: Run, key: str) -> Flow:
        self.register(run)
        known: Tree = run.side_effects.values[key]

        async def pull() -> Batch:
            batch = await source()
            await self._grow(known, batch, run)
            return batch

        return pull


@builds("tree")
def _tree(builder: Builder, arguments: Arguments) -> Step:
    return TreeStep(arguments.text() if len(arguments) else None)
