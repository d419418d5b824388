"""The jail: scripts that try to get out, to break what they run in, or to take more than they may. None has an effect
on anything but itself, each ends within its bound, and the next one finds everything as it was.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.scripts.jail import Ended, Jail, Perform

ATTEMPTS = [
    "Function('return this')().process",
    "(function () {}).constructor('return globalThis')().require",
    "[].constructor.constructor('return typeof require')()",
    "(async () => {}).constructor('await import(\"os\")')()",
    "(function* () {}).constructor('yield import(\"std\")')().next()",
    "import('os').then(o => o.remove('x'))",
    "import('std')",
    "import('/etc/passwd')",
    "import('data:text/javascript,1')",
    "eval('import(\"fs\")')",
    "(0, eval)('this').std",
    "typeof std + typeof os + typeof bjson + typeof load + typeof print + typeof scriptArgs + typeof fetch",
    "setTimeout(() => {}, 0)",
    "setInterval(() => {}, 0)",
    "new Worker('x')",
    "new WebAssembly.Module(new Uint8Array(8))",
    "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 10)",
    "new SharedArrayBuffer(1e9)",
    "getContext = null; __ = null; console = null",
    "getContext.constructor('return this')()",
    "Object.defineProperty(globalThis, 'getContext', {get() { throw 1 }})",
    "Object.prototype.toJSON = () => 'x'",
    "Object.prototype.then = (f) => f(1)",
    "Object.prototype.verb = 'drop'; Object.prototype.number = 99",
    "Array.prototype.push = function () {}; Array.prototype.join = () => 'O[]'",
    "Array.prototype.splice = () => ['{}']",
    "Array.prototype[Symbol.iterator] = null",
    "String.prototype.replace = () => { throw 1 }",
    "Map.prototype.get = () => (e, t) => { throw t }",
    "Map.prototype.set = () => {}",
    "JSON.stringify = () => 'E{'; JSON.parse = () => { throw 1 }",
    "Function.prototype.call = Function.prototype.apply = null",
    "Promise.prototype.then = null",
    "Reflect.construct = () => 1; Proxy = null",
    "Error.prepareStackTrace = (e, s) => s[0].getThis()",
    "Error.stackTraceLimit = 1e9",
    "Error.prototype.toString = () => { throw 1 }",
    "throw {toString() { throw 1 }, get stack() { throw 2 }, get number() { throw 3 }}",
    "throw new Proxy({}, {get() { throw 1 }})",
    "throw Symbol('x')",
    "throw undefined",
    "throw null",
    "throw 10n",
    "__.response.setBody(10n)",
    "__.response.setBody({get x() { throw 1 }})",
    "__.response.setBody(new Proxy({}, {ownKeys() { throw 1 }}))",
    "var a = {}; a.a = a; __.response.setBody(a)",
    "__.response.setBody('\\ud800')",
    "__.response.setBody('x'.repeat(5e6))",
    "__.response.setBody(() => 1)",
    "__.response.setBody(Symbol.iterator)",
    "var r = () => r(); r()",
    "(function f() { try { f() } finally { f() } })",
    "var o = {}; for (var i = 0; i < 1e5; i++) o = {o}; JSON.stringify(o)",
    "var o = []; for (var i = 0; i < 1e5; i++) o = [o]; __.response.setBody(o)",
    "new Array(2 ** 32 - 1).fill(0)",
    "new Uint8Array(2 ** 40)",
    "new ArrayBuffer(3e9)",
    "'x'.repeat(2 ** 30)",
    "'x'.padEnd(2 ** 30).split('')",
    "var s = 'x'; for (;;) s += s",
    "var a = []; for (;;) a.push(new Array(1e5).fill('x'))",
    "var m = new Map(); for (var i = 0; ; i++) m.set(i, {})",
    "new Int8Array(8).length = 1e9",
    "__.createDocument(__.getSelfLink(), {get id() { throw 1 }})",
    "__.createDocument({toString: () => __.getSelfLink()}, {id: '1'})",
    "__.createDocument.call(null, '../../x', {id: '../../x'})",
    "for (var i = 0; i < 1e5; i++) __.readDocuments(__.getSelfLink())",
    "__.readDocument('dbs/../../../etc/passwd')",
    "console.log('x'.repeat(1e6)); for (var i = 0; i < 1e4; i++) console.log(i)",
    "console.log(new Proxy({}, {get() { throw 1 }}))",
    "new FinalizationRegistry(() => {}).register({}, 1)",
    "new WeakRef({}).deref()",
    "queueMicrotask(() => { throw 1 })",
    "Promise.reject(1)",
    "class E extends Error {}; throw new E('x')",
]
# Where the attempt is made: at once, behind a call, in a callback, in a promise.
PLACES = [
    "function () { %s }",
    "function () { __.readDocuments(__.getSelfLink(), function () { %s }); }",
    "async function () { await null; %s }",
    "function () { return {get then() { %s }}; }",
]
ENDLESS = [
    "while (true) {}",
    "while (true) { try { while (true) {} } catch (e) {} }",
    "/(a+)+$/.test('a'.repeat(50) + 'b')",
    "Promise.resolve().then(function again() { return Promise.resolve().then(again); })",
    "(function next() { __.readDocuments(__.getSelfLink(), next) || next(); })()",
    "[1, 2].sort(() => { for (;;); })",
    "`${{toString() { for (;;); }}}`",
]
GIVEN = {
    "arguments": [],
    "selfLink": "dbs/d/colls/c/",
    "altLink": "dbs/n/colls/c",
    "mayReadResponse": True,
    "operationsMax": 1000,
    "batchMax": 100,
    "acceptedForMs": 4000,
    "logCharactersMax": 4000,
}
NAMES = "function () { __.response.setBody(Reflect.ownKeys(globalThis).map(String).sort()); }"


@pytest.fixture
async def jail() -> AsyncIterator[Jail]:
    jail = Jail()
    yield jail
    await jail.close()


async def nothing(asked: Any) -> list[Any]:
    return [{"number": each.get("number"), "body": [], "options": {}} for each in asked if isinstance(each, dict)]


async def run(jail: Jail, source: str, cpu_s: float = 2.0, perform: Perform = nothing) -> Ended:
    begin = {
        "source": source,
        "given": GIVEN,
        "cpu_s": cpu_s,
        "memory_bytes": 32 * limits.MB,
        "message_bytes_max": limits.SCRIPT_MESSAGE_BYTES_MAX,
    }
    return await jail.run(begin, perform)


async def test_escapes(jail: Jail) -> None:
    before = (await run(jail, NAMES)).told["responseBody"]
    count = 0
    for attempt, place in product(ATTEMPTS, PLACES):
        ended = await run(jail, place % attempt, cpu_s=0.1)
        assert ended.stopped != "lost", attempt
        count += 1
    assert count >= 300
    assert (await run(jail, NAMES)).told["responseBody"] == before


@pytest.mark.parametrize("attempt", ENDLESS)
async def test_endless(jail: Jail, attempt: str) -> None:
    ended = await run(jail, PLACES[0] % attempt, cpu_s=0.2)
    assert ended.stopped is None or "interrupted" in ended.stopped or "memory" in ended.stopped
    assert (await run(jail, NAMES)).stopped is None


@pytest.mark.parametrize("attempt", ["while (true) {}", "var a = []; a.length = 2 ** 32 - 1; a.sort()"])
async def test_who_does_not_answer_is_killed(jail: Jail, monkeypatch: pytest.MonkeyPatch, attempt: str) -> None:
    await run(jail, NAMES)
    [first] = jail.process_ids
    monkeypatch.setattr(limits, "SCRIPT_SECONDS_MAX", 0.2)
    ended = await run(jail, PLACES[0] % attempt, cpu_s=60.0)
    assert ended.stopped == "interrupted"
    assert jail.process_ids == []
    monkeypatch.undo()
    assert (await run(jail, NAMES)).stopped is None
    assert jail.process_ids != [first]


async def test_a_cell_has_nothing(jail: Jail) -> None:
    await run(jail, NAMES)
    [process_id] = jail.process_ids
    rows = {line[:26].strip(): line[26:].split() for line in told_of(process_id, "limits")}
    for name in ("Max open files", "Max processes", "Max file size", "Max core file size"):
        assert rows[name][:2] == ["0", "0"], name
    assert int(rows["Max address space"][1]) <= 1 << 30
    assert "NoNewPrivs:\t1" in told_of(process_id, "status")


def told_of(process_id: int, name: str) -> list[str]:
    return Path(f"/proc/{process_id}/{name}").read_text().splitlines()


async def test_nothing_is_left_when_it_closes(jail: Jail) -> None:
    await run(jail, NAMES)
    [process_id] = jail.process_ids
    await jail.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


async def test_who_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SCRIPT_CELLS_MAX", 1)
    monkeypatch.setattr(limits, "SCRIPT_WAIT_SECONDS_MAX", 0.05)
    jail = Jail()
    begun = asyncio.Event()
    goes_on = asyncio.Event()

    async def perform(_: Any) -> list[Any]:
        begun.set()
        await goes_on.wait()
        return [{"number": 0, "body": [], "options": {}}]

    source = "function () { __.readDocuments(__.getSelfLink(), () => __.response.setBody(1)); }"
    first = asyncio.create_task(run(jail, source, perform=perform))
    await begun.wait()
    with pytest.raises(Failure) as caught:
        await run(jail, NAMES)
    assert caught.value.kind is Kind.TIMED_OUT
    goes_on.set()
    assert (await first).told["responseBody"] == 1
    assert (await run(jail, NAMES)).stopped is None
    await jail.close()
