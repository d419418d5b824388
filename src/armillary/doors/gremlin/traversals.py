"""Requests that run traversals: scripts (`eval`) and bytecode. Results go out in parts while the traversal goes on;
a client that reads results slowly slows down its own traversal. What traversals mean is `languages/gremlin`'s part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from armillary import limits, work
from armillary.account.account import Account
from armillary.account.captures import notes
from armillary.account.graphs.graph import StoredGraph, element_id
from armillary.account.server_figures import CompiledCache
from armillary.clock import Clock
from armillary.doors.gremlin.authentication import Client
from armillary.doors.gremlin.messages import Request, Responder
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.gremlin.errors import timed_out
from armillary.languages.gremlin.program import Program, Results, answer, compile_traversal
from armillary.languages.gremlin.program_templates import shape_of, template_of, template_of_script
from armillary.languages.gremlin.syntax.bytecode import transaction_of
from armillary.languages.gremlin.syntax.grammar import Statement, parse
from armillary.languages.gremlin.syntax.instructions import Traversal
from armillary.languages.gremlin.syntax.traversal_shape import shape_of_bytecode, shape_of_script

Pages = Callable[[], Awaitable[list[Any]]]  # values, or traversers
_CACHED_CHARACTERS_MAX = 4_000  # longer scripts are not likely to come again


class World:
    """What a run needs of the world (`languages/gremlin/graph_protocol.py`)."""

    def __init__(self, client: Client, clock: Clock, ids: OrderedIds) -> None:
        self._client = client
        self._clock = clock
        self.deadline_s: float | None = None  # of the traversal under way
        self.elapsed_s = clock.elapsed_s
        self.guid = ids.new

    def random(self) -> float:
        return int.from_bytes(self._clock.random_bytes(7), "big") / 2**56

    async def pause(self) -> None:
        await asyncio.sleep(0)
        self._check_client()

    def _check_client(self) -> None:
        if self._client.is_gone:
            raise Failure(Kind.DROPPED, "The client has left.")

    def check(self) -> None:
        """After every slice of work: whether it may go on."""
        self._check_client()
        if self.deadline_s is not None and self.elapsed_s() > self.deadline_s:
            raise timed_out("The traversal took longer than its time limit.")


class Programs:
    """Traversals as they were compiled, the latest used last: scripts, and templates of what starts at other elements
    each time, which None stands for where there can be none."""

    def __init__(self) -> None:
        self._kept: CompiledCache[tuple[Any, ...], Any] = CompiledCache("gremlin-programs")

    def __len__(self) -> int:
        return len(self._kept)

    def of_script(
        self, text: str, bindings: dict[str, Any], partition_key: str | None
    ) -> list[tuple[Statement, Program | None]]:
        if bindings:
            return self._of_bound_script(text, bindings, partition_key)
        key = (text, partition_key)
        found: list[tuple[Statement, Program | None]] | None = self._get(key)
        if found is None:
            found = [(each, _program(each, partition_key, text)) for each in parse(text)]
            if len(text) <= _CACHED_CHARACTERS_MAX:
                self._keep(key, found)
        return found

    def _of_bound_script(
        self, text: str, bindings: dict[str, Any], partition_key: str | None
    ) -> list[tuple[Statement, Program | None]]:
        key = (text, partition_key, *bindings)
        known = self._get(key)
        if known is not None:
            statement, template = known
            program = template.filled(bindings)
            if program is not None:
                return [(statement, program)]
        made = [(each, _program(each, partition_key, text)) for each in parse(text, bindings)]
        program = made[0][1]
        if program is not None and key not in self._kept and sum(map(len, (text, *bindings))) <= _CACHED_CHARACTERS_MAX:
            self._keep(key, template_of_script(text, bindings, program, partition_key, element_id))
        return made

    def vertex_named(self, text: str, bindings: dict[Any, Any], partition_key: str | None) -> Any:
        """The one value in the V() of a script that is nothing else and was compiled with bindings of these names;
        None: it is not known to be such a script."""
        key = (text, partition_key, *bindings)
        known = self._kept.peek(key)
        if known is None:
            return None
        statement, template = known
        if not template.is_bare or statement.terminal != "toList" or statement.traversal.source:
            return None
        values = template.named(bindings)
        if len(values) != 1:
            return None
        self._get(key)
        return values[0]

    def of_bytecode(self, traversal: Traversal, partition_key: str | None) -> Program:
        shape = shape_of(traversal)
        key = (shape, partition_key)
        if shape is not None and (template := self._get(key)) is not None:
            program: Program | None = template.started(traversal.steps[0].arguments)
            if program is not None:
                return program
        program = compile_traversal(traversal, partition_key=partition_key, element_id=element_id)
        if shape is not None and not program.is_writing:  # what is written is seldom the same again
            self._keep(key, template_of(program, [], partition_key, element_id))
        return program

    def _get(self, key: tuple[Any, ...]) -> Any:
        return self._kept.get(key)

    def _keep(self, key: tuple[Any, ...], made: Any) -> None:
        self._kept.keep(key, made)


def _program(statement: Statement, partition_key: str | None, text: str) -> Program | None:
    """None: there is nothing to run."""
    if statement.transaction is not None:
        return None
    program = compile_traversal(statement.traversal, partition_key=partition_key, element_id=element_id)
    program.text = text
    return program


class Services(Protocol):
    """What traversals use of the server: `GremlinDoor` offers it."""

    account: Account
    programs: Programs
    ids: OrderedIds


async def evaluate(services: Services, client: Client, request: Request, graph: StoredGraph, out: Responder) -> None:
    """A script."""
    world = World(client, services.account.clock, services.ids)
    await work.drive(_evaluate(services, client, request, graph, out, world), world.check)


async def _evaluate(
    services: Services, client: Client, request: Request, graph: StoredGraph, out: Responder, world: World
) -> None:
    text = request.arguments.get("gremlin")
    if not isinstance(text, str):
        raise bad_request("A request to evaluate has its script as the text 'gremlin'.")
    language = request.arguments.get("language") or "gremlin-lang"
    if language not in ("gremlin-groovy", "gremlin-lang"):
        raise Failure(Kind.UNSUPPORTED, f"Scripts are Gremlin; {str(language)[:40]!r} is not offered.")
    bindings = request.arguments.get("bindings") or {}
    if not isinstance(bindings, dict) or not all(isinstance(name, str) for name in bindings):
        raise bad_request("Bindings are a map from names to values.")
    if services.account.captures.is_on:
        notes.describe(lambda: shape_of_script(text))
    statements = services.programs.of_script(text, bindings, graph.partition_key)
    for statement, program in statements[:-1]:
        if program is not None:
            pages = await answer(statement, _results(request, program, graph, world))
            while await pages():
                pass
    statement, program = statements[-1]
    if program is None:
        out.finish([])
        return
    await _send(client, await answer(statement, _results(request, program, graph, world)), request, out)


async def run_bytecode(
    services: Services, client: Client, request: Request, graph: StoredGraph, out: Responder
) -> None:
    """A traversal that a client has built with its own language."""
    world = World(client, services.account.clock, services.ids)
    await work.drive(_run_bytecode(services, client, request, graph, out, world), world.check)


async def _run_bytecode(
    services: Services, client: Client, request: Request, graph: StoredGraph, out: Responder, world: World
) -> None:
    traversal = request.arguments.get("gremlin")
    if not isinstance(traversal, Traversal):
        raise bad_request("A request with bytecode has it as 'gremlin'.")
    if transaction_of(traversal) is not None:
        out.finish([])  # nothing is open: every request before has been committed
        return
    if services.account.captures.is_on:
        notes.describe(lambda: shape_of_bytecode(traversal))
    program = services.programs.of_bytecode(traversal, graph.partition_key)
    results = _results(request, program, graph, world)
    await _send(client, results.pull, request, out)


def _results(request: Request, program: Program, graph: StoredGraph, world: World) -> Results:
    timeout_ms = request.arguments.get("evaluationTimeout", request.arguments.get("scriptEvaluationTimeout"))
    timeout_ms = program.options.get("evaluationTimeout", timeout_ms)
    seconds = limits.GREMLIN_SECONDS_DEFAULT
    if timeout_ms is not None:
        if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
            raise bad_request("evaluationTimeout is a number of milliseconds.")
        # Zero asks for no limit, in TinkerPop's own server.
        seconds = min(timeout_ms / 1000, limits.GREMLIN_SECONDS_MAX) if timeout_ms else limits.GREMLIN_SECONDS_MAX
    graph.show(program.settings.system_properties)
    world.deadline_s = world.elapsed_s() + seconds
    return program.run(graph, world, deadline_s=world.deadline_s)


async def _send(client: Client, pages: Pages, request: Request, out: Responder) -> None:
    batch_size = request.arguments.get("batchSize")
    if batch_size is None:
        batch_size = limits.GREMLIN_RESULTS_AT_ONCE
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise bad_request("batchSize is a whole number from 1.")
    batch_size = min(batch_size, limits.GREMLIN_RESULTS_AT_ONCE_MAX)
    waiting: list[Any] = []
    while page := await pages():
        waiting = waiting + page if waiting else page
        while len(waiting) > batch_size:
            out.part(waiting[:batch_size])
            waiting = waiting[batch_size:]
            await client.line.drained()
            if client.is_gone:
                raise Failure(Kind.DROPPED, "The client has left.")
    out.finish(waiting)


_VARIANT = 0b10 << 62
_RANDOM_BITS = (1 << 62) - 1


class OrderedIds:
    """Ids of new elements and properties: UUIDs of version 7, which sort in the order of creation. Properties ordered
    by id therefore come in the order in which they were added, as on TinkerPop's own graphs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0  # milliseconds, and a count within them

    def new(self) -> str:
        # Time may stand still or be set back; ids go on.
        self._last = max(self._last + 1, int(self._clock.now_s() * 1000) << 12)
        chance = int.from_bytes(self._clock.random_bytes(8), "big") & _RANDOM_BITS | _VARIANT
        head, tail = f"{self._last >> 12:012x}", f"{chance:016x}"
        return f"{head[:8]}-{head[8:]}-7{self._last & 0xFFF:03x}-{tail[:4]}-{tail[4:]}"
