"""What an editor of queries asks over the control API: a sample of a container's items with their paths, how that would
lie by another partition key, and whether a query can be read, without running it.
"""

from __future__ import annotations

from typing import Any, Final

from armillary.doors.control.call import Call
from armillary.errors import Failure, Kind, bad_request
from armillary.insight.key_preview import COUNT_DEFAULT as KEY_COUNT_DEFAULT
from armillary.insight.key_preview import parse_paths, preview_key
from armillary.insight.sampling import COUNT_DEFAULT, COUNT_MAX, sample
from armillary.languages.sql.compiling.compile import compile_query
from armillary.languages.sql.planning.query_advisor import ADVICE_TEXTS, advice_of
from armillary.languages.sql.syntax import tree
from armillary.languages.sql.syntax.lexer import shape_of
from armillary.languages.sql.syntax.paths import Scope, item_path, scope_of
from armillary.languages.sql.syntax.walk import expressions_of, nodes_of
from armillary.model.indexes.index_paths import path_text
from armillary.net.http import Response

_PARTITIONS_MAX: Final = 1_000


async def show_sample(call: Call) -> Response:
    count = call.count("count", COUNT_DEFAULT, COUNT_MAX)
    return call.answer(await sample(call.account, call.container(), count))


async def preview_partition_key(call: Call) -> Response:
    asked = call.query("paths", "count", "partitions")
    if not asked.get("paths"):
        raise bad_request("Give the 'paths' of the partition key: one such as /customerId, or up to three with commas.")
    container = call.container()
    definition = parse_paths([each.strip() for each in asked["paths"].split(",")])
    count = call.whole("count", KEY_COUNT_DEFAULT, 1, COUNT_MAX)
    present = min(len(container.partitions), _PARTITIONS_MAX)
    partition_count = call.whole("partitions", present, 1, _PARTITIONS_MAX)
    return call.answer(await preview_key(call.account, container, definition, count, partition_count))


async def parse(call: Call) -> Response:
    """Whether a query can be read: 200 either way."""
    fields = call.fields("a query")
    text = fields.required_text("query")
    fields.end()
    container = call.container()
    try:
        compiled = compile_query(text, container.policies.computed_properties)
    except Failure as failure:
        if failure.kind not in (Kind.BAD_REQUEST, Kind.UNSUPPORTED):
            raise
        return call.answer({"ok": False, "error": _error(failure, text)})
    advice = [{"rule": rule, "text": ADVICE_TEXTS.get(rule, rule)} for rule in advice_of(compiled.original)]
    paths = sorted(_paths(compiled.original))
    return call.answer({"ok": True, "shape": shape_of(text), "paths": paths, "advice": advice})


def _error(failure: Failure, text: str) -> dict[str, Any]:
    """The message with the place in the text, counted from 1; errors without a place are at the beginning."""
    errors = failure.details.get("errors")
    first: dict[str, Any] = errors[0] if errors else {"message": failure.message}
    location: dict[str, int] = first.get("location") or {"start": 0, "end": 0}
    before = text[: location["start"]]
    line = before.count("\n") + 1
    return {
        "message": first["message"],
        "line": line,
        "column": len(before) - before.rfind("\n"),
        "start": location["start"],
        "end": location["end"],
    }


def _paths(query: tree.Query) -> set[str]:
    """The paths of items that a query names, those of its subqueries included."""
    found: set[str] = set()
    pending: list[tuple[tree.Query, Scope]] = [(query, {})]
    while pending:
        each, outer = pending.pop()
        scope = scope_of(each, outer, is_outermost=each is query)
        for expression in expressions_of(each):
            for node in nodes_of(expression):
                if isinstance(node, tree.Subquery):
                    pending.append((node.query, scope))
                    continue
                path = item_path(node, scope)
                if path and all(step is None or isinstance(step, str) for step in path):
                    found.add(path_text(step if isinstance(step, str) else None for step in path))
    return {path for path in found if not any(other.startswith(path + "/") for other in found)}
