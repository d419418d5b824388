"""The calls that a script makes on its collection (create, query, ...): each is checked, executed in the script's
transaction, and answered in the form that `prelude.js` hands to callbacks. Everything that comes out of the sandbox is
treated as untrusted input. On request every call is recorded in a trace.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from armillary import limits
from armillary.clock import Clock
from armillary.errors import Failure, Kind, bad_request
from armillary.languages.sql.compiling.compile import UserFunctions, compile_query, parse_parameters
from armillary.model.items import check_depth
from armillary.partition.operations import Document, Operation, Result, Verb
from armillary.scripts.transaction import Page, ScriptTransaction
from armillary.work import run as run_work

# The `number` of errors that are passed to the script's callback, by kind. Errors of any other kind end the script.
NUMBERS = {
    Kind.BAD_REQUEST: 400,
    Kind.KEY_MISMATCH: 400,
    Kind.UNSUPPORTED: 400,
    Kind.SCRIPT_FAILED: 400,
    Kind.KEY_FULL: 403,
    Kind.NOT_FOUND: 404,
    Kind.TIMED_OUT: 408,
    Kind.CONFLICT: 409,
    Kind.PRECONDITION_FAILED: 412,
    Kind.TOO_LARGE: 413,
}
_TRACED_CHARACTERS_MAX = 200  # of an id or a query's text in a trace
_ACTIONS = {"default": "Default", "include": "Include", "exclude": "Exclude"}

Answer = dict[str, Any]


class Calls:
    def __init__(
        self,
        transaction: ScriptTransaction,
        clock: Clock,
        functions: UserFunctions | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._transaction = transaction
        self._clock = clock
        self._functions = functions
        self._trace = trace
        self._asked: deque[Any] = deque()  # calls that were received and not executed yet
        self._size_bytes = 0  # of the answers to the current request
        self._items: int | None = None  # rows in the last page read; for the trace

    async def perform(self, asked: Any) -> Answer:
        """Execute the calls that the script has queued, in order; each succeeds or fails by itself. When the answer
        gets large the remaining calls stay queued until the script asks again."""
        if not isinstance(asked, list):
            raise _broken()
        self._asked.extend(asked)
        if not self._asked:
            raise _broken()
        answers: list[Answer] = []
        self._size_bytes = 0
        slice_end_s = self._clock.elapsed_s() + limits.SLICE_SECONDS
        while self._asked and self._size_bytes < limits.SCRIPT_ANSWER_BYTES:
            answers.append(await self._perform(self._asked.popleft()))
            if self._clock.elapsed_s() > slice_end_s:
                await asyncio.sleep(0)
                slice_end_s = self._clock.elapsed_s() + limits.SLICE_SECONDS
        return {"results": answers, "unitsLeft": self._transaction.units_left_ru}

    async def _perform(self, asked: Any) -> Answer:
        if not isinstance(asked, dict) or not isinstance(asked.get("number"), int):
            raise _broken()
        charged_ru, self._items = self._transaction.charge_ru, None
        try:
            answer = await self._answer(asked)
        except Failure as failure:
            if failure.kind not in NUMBERS:
                raise
            answer = {"error": {"number": NUMBERS[failure.kind], "message": failure.message}}
        answer["number"] = asked["number"]
        if self._trace is not None:
            self._trace.append(step_of(asked, answer, self._items, self._transaction.charge_ru - charged_ru))
        return answer

    async def _answer(self, asked: Document) -> Answer:
        verb = asked.get("verb")
        action = self._actions.get(verb) if isinstance(verb, str) else None
        link, options = asked.get("link"), asked.get("options")
        if action is None or not isinstance(link, str) or not isinstance(options, dict):
            raise _broken()
        unknown = sorted(options.keys() - _OPTIONS[verb])  # type: ignore[index]
        if unknown:
            raise bad_request(f"The option '{unknown[0]}' is not supported by {verb} of a script.")
        return await action(self, link, options, asked)

    # The verbs.

    async def _create(self, link: str, options: Document, asked: Document) -> Answer:
        return await self._store(Verb.CREATE, link, options, asked)

    async def _upsert(self, link: str, options: Document, asked: Document) -> Answer:
        return await self._store(Verb.UPSERT, link, options, asked)

    async def _store(self, verb: Verb, link: str, options: Document, asked: Document) -> Answer:
        self._transaction.check_collection(link)
        document = _document(asked)
        if not document.get("id") and options.get("disableAutomaticIdGeneration") is not True:
            document = {**document, "id": self._clock.guid()}
        operation = self._transaction.stored(verb, document, None, _text(options, "etag"), _directive(options))
        return await self._written(operation)

    async def _replace(self, link: str, options: Document, asked: Document) -> Answer:
        item_id = await self._transaction.item_id_of(link)
        etag = _text(options, "etag")
        operation = self._transaction.stored(Verb.REPLACE, _document(asked), item_id, etag, _directive(options))
        return await self._written(operation)

    async def _delete(self, link: str, options: Document, asked: Document) -> Answer:
        home = self._transaction.home
        item_id = await self._transaction.item_id_of(link)
        operation = Operation(Verb.DELETE, home.epk, home.key, item_id, if_match=_text(options, "etag"))
        await self._transaction.write(operation)
        return {"options": {"statusCode": 204}}

    async def _written(self, operation: Operation) -> Answer:
        outcome = await self._transaction.write(operation)
        status = 201 if outcome.result is Result.CREATED else 200
        return {"body": self._fragment(outcome.payload or b"null"), "options": {"statusCode": status}}

    async def _read(self, link: str, options: Document, asked: Document) -> Answer:
        item_id = await self._transaction.item_id_of(link)
        outcome = await self._transaction.read(item_id, _text(options, "ifNoneMatch"))
        if outcome.result is Result.NOT_MODIFIED:
            return {"options": {"notModified": True, "statusCode": 304}}
        return {"body": self._fragment(outcome.payload or b"null"), "options": {"statusCode": 200}}

    async def _feed(self, link: str, options: Document, asked: Document) -> Answer:
        self._transaction.check_collection(link)
        return self._page(await self._transaction.feed(_page_items(options), _text(options, "continuation")))

    async def _query(self, link: str, options: Document, asked: Document) -> Answer:
        transaction, home = self._transaction, self._transaction.home
        transaction.check_collection(link)
        query = asked.get("query")
        text = query.get("query") if isinstance(query, dict) else None
        if not isinstance(text, str):
            raise bad_request("The query must be a string, or an object with query and parameters.")
        parameters = parse_parameters(query.get("parameters"))  # type: ignore[union-attr]
        bound = await run_work(
            lambda: compile_query(text, home.computed).bind(parameters, home.context(), self._functions)
        )
        if self._functions is not None:
            await self._functions.ready()
        page = await transaction.query(bound, orjson.dumps(query), _page_items(options), _text(options, "continuation"))
        return self._page(page)

    def _page(self, page: Page) -> Answer:
        self._items = len(page.rows)
        options: Answer = {"statusCode": 200}
        if page.continuation is not None:
            options["continuation"] = page.continuation
        return {"body": self._fragment(b"[" + b",".join(page.rows) + b"]"), "options": options}

    def _fragment(self, text: bytes) -> orjson.Fragment:
        self._size_bytes += len(text)
        return orjson.Fragment(text)

    _actions: dict[str, Callable[[Calls, str, Document, Document], Awaitable[Answer]]] = {  # noqa: RUF012 (a table)
        "create": _create,
        "upsert": _upsert,
        "read": _read,
        "replace": _replace,
        "delete": _delete,
        "query": _query,
        "feed": _feed,
    }


_PAGES = {"pageSize", "continuation"}
_OPTIONS: dict[str, set[str]] = {
    "create": {"disableAutomaticIdGeneration", "indexAction"},
    "upsert": {"disableAutomaticIdGeneration", "etag", "indexAction"},
    "read": {"ifNoneMatch"},
    "replace": {"etag", "indexAction"},
    "delete": {"etag"},
    # Accepted without effect: scans are always allowed, and every ORDER BY is precise.
    "query": _PAGES | {"enableScan", "enableLowPrecisionOrderBy"},
    "feed": _PAGES,
}


def _broken() -> Failure:
    return Failure(Kind.SCRIPT_FAILED, "The script has overwritten built-in objects that it needs itself.")


def _document(asked: Document) -> Document:
    document = asked.get("body")
    if not isinstance(document, dict):
        raise bad_request("The document must be an object.")
    check_depth(document)
    return document


def _text(options: Document, name: str) -> str | None:
    value = options.get(name)
    if value is None or isinstance(value, str):
        return value or None
    raise bad_request(f"The option '{name}' must be a string.")


def _directive(options: Document) -> str:
    value = options.get("indexAction")
    if value is None:
        return "Default"
    action = _ACTIONS.get(value.lower()) if isinstance(value, str) else None
    if action is None:
        raise bad_request("The option 'indexAction' must be 'default', 'include' or 'exclude'.")
    return action


def _page_items(options: Document) -> int:
    value = options.get("pageSize")
    if not value:  # 0 and "" mean the default, as in the service
        return limits.PAGE_ITEMS_DEFAULT
    if value == -1:
        return limits.PAGE_ITEMS_MAX
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
        raise bad_request("The option 'pageSize' must be a whole number above 0, or -1.")
    return min(int(value), limits.PAGE_ITEMS_MAX)


# Traces.


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a script: its operation, its result and its charge."""

    operation: str  # create, read, query, ...
    subject: str  # the item's id, or the text of the query
    status: int
    items: int | None  # rows of a page; None if the call returns no page
    charge_ru: float

    def to_json(self) -> dict[str, Any]:
        told = {"operation": self.operation, "subject": self.subject, "status": self.status}
        if self.items is not None:
            told["items"] = self.items
        return {**told, "chargeRu": round(self.charge_ru, 2)}


Trace = list[Step]


def step_of(asked: dict[str, Any], answer: dict[str, Any], items: int | None, charge_ru: float) -> Step:
    """The trace entry of a call and its answer."""
    error = answer.get("error")
    status = error["number"] if error is not None else answer["options"]["statusCode"]
    return Step(asked["verb"], _subject(asked)[:_TRACED_CHARACTERS_MAX], status, items, charge_ru)


def _subject(asked: dict[str, Any]) -> str:
    body, query, link = asked.get("body"), asked.get("query"), asked["link"]
    if isinstance(query, dict):
        return str(query.get("query"))
    if isinstance(body, dict):
        return str(body.get("id", ""))
    return "" if asked["verb"] == "feed" else str(link).rstrip("/").rpartition("/")[2]
