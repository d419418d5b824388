"""The jail: scripts that try to get out, to break what they run in, or to take more than they may. None has an effect
on anything but itself, each ends within its bound, and the next one finds everything as it was.
"""

from __future__ import annotations

import ast
import asyncio
import errno
import os
import re
import select
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.limits import WithLimits

from armillary import limits
from armillary.errors import Failure, Kind
from armillary.scripts import confinement
from armillary.scripts import functions as functions_module
from armillary.scripts import jail as jail_module
from armillary.scripts.confinement import filter_program
from armillary.scripts.functions import FunctionProcess, FunctionProcesses, QueryFunctions
from armillary.scripts.jail import Begin, Confinement, Ended, Jail, Perform
from armillary.scripts.run import Role, Script, result_of

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
    "let r = new FinalizationRegistry((f) => f()); for (let i = 0; i < 1e4; i++) r.register({}, () => { throw 1; })",
    "let w = new WeakRef(new Array(1e6)); while (w.deref()) w = new WeakRef(new Array(10))",
    "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
    "Atomics.waitAsync(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1e9).value.then(() => { throw 1; })",
    "import('file:///proc/self/environ').then((m) => __.response.setBody(m), (e) => __.response.setBody(String(e)))",
    "Object.getPrototypeOf(async function* () {}).constructor('yield import(\"os\")')().next()",
    "Object.getPrototypeOf(async () => {}).constructor('return globalThis.process')()",
    "__.response.setBody(new Proxy([], {get(t, n) { return n === 'length' ? 2 ** 53 : 1; }}))",
    "__.response.setBody(new Proxy({}, {getOwnPropertyDescriptor() { throw 1; }, ownKeys() { return ['a']; }}))",
    "__.response.setBody({toJSON() { return {toJSON: this.toJSON, a: {toJSON: this.toJSON}}; }})",
    "var b = {toJSON() { return [b, b]; }}; __.response.setBody(b)",
    "__.response.setBody({get a() { throw new Error(499, 'thrown by a getter'); }})",
    "var s = []; s[1e6] = 1; __.response.setBody(s)",
    "var s = []; s.length = 2 ** 32 - 1; s.map((x) => x); s.join()",
    "JSON.parse('['.repeat(1e6))",
    "JSON.parse('{\"a\":'.repeat(1e5) + '1' + '}'.repeat(1e5))",
    "JSON.stringify(1n)",
    "2n ** (2n ** 40n)",
    "(1n << 100000000n).toString()",
    "class A extends Array { static get [Symbol.species]() { return function () { return new Proxy([], {}); }; } } A.from([1]).map((x) => x)",  # noqa: E501
    "Array.prototype.splice = Array.prototype.concat = Array.prototype.slice = function () { return this; }",
    "Symbol.prototype[Symbol.toPrimitive] = null; String(Symbol.iterator)",
    "Object.prototype.__defineGetter__('results', () => [{number: 0, body: 1}])",
    "Object.prototype.error = {number: 1}; Object.prototype.body = 2",
    "Object.defineProperty(Object.prototype, 'objects', {get() { throw 1; }})",
    "globalThis.eval = () => { throw 1; }; getContext()",
    "delete globalThis.getContext; delete globalThis.__; delete globalThis.Error; new Error('x')",
    "Object.freeze(globalThis); __.x = 1; getContext = 2",
    "structuredClone({})",
    "new (class { #a = 1; static { throw 1; } })()",
    "label: for (const x of {[Symbol.iterator]: () => ({next: () => ({done: false})})}) { x; }",
    "for (const x of new Proxy([], {get() { return () => { throw 1; }; }})) {}",
    "Reflect.ownKeys(new Proxy({}, {ownKeys() { return new Array(1e7).fill('a'); }}))",
    "new Intl.NumberFormat()",
    "new Date(8.64e15).toLocaleString().repeat(1e8)",
    "'a'.replace(/a/g, () => 'b'.repeat(1e9))",
    "'x'.match(new RegExp('(x+x+)+y'.repeat(1000)))",
    "new RegExp('(?:'.repeat(1e5))",
    "new Function('a'.repeat(1e7))",
    "eval('('.repeat(1e5))",
    "Error.captureStackTrace({}); Error.prototype.stack; throw Object.create(Error.prototype)",
    "throw Object.assign(new Error('x'), {number: 2 ** 53, stack: 'x'.repeat(1e6)})",
    "throw new AggregateError([new Error('a')], 'b')",
    "__.chain().map((d) => d).value({}, () => { throw 1; }); __.filter(1)",
    "__.queryDocuments(__.getSelfLink(), {query: 'SELECT 1', parameters: new Array(1e4).fill({name: '@a'})})",
    "ErrorCodes.BadRequest = 1",
    "new ArrayBuffer(8, {maxByteLength: 2 ** 40}).resize(2 ** 39)",
    "Iterator.from({next() { return {done: false}; }}).toArray()",
    "Array.fromAsync([1]).then(() => { throw 1; })",
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
    "JSON.stringify({toJSON() { for (;;); }})",
    "__.response.setBody({get a() { for (;;); }})",
    "__.response.setBody(new Proxy([], {get(t, n) { return n === 'length' ? 2 ** 32 : 1; }}))",
    "var s = []; s[2 ** 32 - 2] = 1; __.response.setBody(s)",
    "(async () => { for (;;) await null; })()",
    "(function* () { for (;;) yield 1; })().forEach((x) => x)",
    "(function next() { return Promise.resolve().then(next); })()",
]
GIVEN = {
    "arguments": [],
    "selfLink": "dbs/d/colls/c/",
    "altLink": "dbs/n/colls/c",
    "hasResponse": True,
    "unitsMax": 1_000_000,
    "operationsMax": 1000,
    "batchMax": 100,
    "batchCharactersMax": 8 * limits.MB,
    "acceptedForMs": 4000,
    "responseCharactersMax": 4 * limits.MB,
    "logCharactersMax": 4000,
}
NAMES = "function () { __.response.setBody(Reflect.ownKeys(globalThis).map(String).sort()); }"


@pytest.fixture
async def jail() -> AsyncIterator[Jail]:
    jail = Jail()
    yield jail
    await jail.close()


async def nothing(asked: Any) -> Any:
    results: list[Any] = [
        {"number": each.get("number"), "body": [], "options": {}} for each in asked if isinstance(each, dict)
    ]
    return {"results": results, "unitsLeft": 1_000_000}


async def run(jail: Jail, source: str, cpu_s: float = 2.0, perform: Perform = nothing) -> Ended:
    return await jail.run(Begin(source, GIVEN, cpu_s=cpu_s, memory_bytes=32 * limits.MB), perform)


def refusal_of(ended: Ended) -> Failure | None:
    try:
        result_of(Script("attempt", "", Role.PROCEDURE), ended)
    except Failure as failure:
        return failure
    return None


async def test_escapes(jail: Jail) -> None:
    """Each ends in its bound, as an answer or as a refusal that says why; the next finds everything as it was."""
    before = (await run(jail, NAMES)).told["responseBody"]
    count = 0
    for attempt, place in product(ATTEMPTS, PLACES):
        ended = await run(jail, place % attempt, cpu_s=0.05)
        assert ended.stopped != "lost", attempt
        failure = refusal_of(ended)
        if failure is not None:
            assert failure.kind in (Kind.SCRIPT_FAILED, Kind.TOO_LARGE), attempt
            assert failure.message.strip() and len(failure.message) < 10_000, attempt
        count += 1
    assert count >= 500
    assert (await run(jail, NAMES)).told["responseBody"] == before


@pytest.mark.parametrize("attempt", ENDLESS)
async def test_endless(jail: Jail, attempt: str) -> None:
    ended = await run(jail, PLACES[0] % attempt, cpu_s=0.2)
    assert ended.stopped is None or "interrupted" in ended.stopped or "memory" in ended.stopped
    assert (await run(jail, NAMES)).stopped is None


@pytest.mark.parametrize("attempt", ["while (true) {}", "var a = []; a.length = 2 ** 32 - 1; a.sort()"])
async def test_who_does_not_answer_is_killed(jail: Jail, with_limits: WithLimits, attempt: str) -> None:
    await run(jail, NAMES)
    [first] = jail.process_ids
    with_limits(SCRIPT_SECONDS_MAX=0.2)
    ended = await run(jail, PLACES[0] % attempt, cpu_s=60.0)
    assert ended.stopped == "interrupted"
    assert jail.process_ids == []
    with_limits.restore()
    assert (await run(jail, NAMES)).stopped is None
    assert jail.process_ids != [first]


async def test_a_cell_has_nothing(jail: Jail) -> None:
    await run(jail, NAMES)
    [process_id] = jail.process_ids
    rows = {line[:26].strip(): line[26:].split() for line in told_of(process_id, "limits")}
    for name in ("Max open files", "Max processes", "Max file size", "Max core file size"):
        assert rows[name][:2] == ["0", "0"], name
    assert int(rows["Max address space"][1]) <= 1 << 30
    status = told_of(process_id, "status")
    assert "NoNewPrivs:\t1" in status
    if filter_program(os.uname().machine) is not None:
        assert "Seccomp:\t2" in status
    try:
        assert os.readlink(f"/proc/{process_id}/cwd").endswith(" (deleted)")
    except PermissionError:
        assert os.geteuid() != 0, "only root may look into a process that gives nothing away"


def told_of(process_id: int, name: str) -> list[str]:
    return Path(f"/proc/{process_id}/{name}").read_text().splitlines()


# What is left of a program that has given up everything: each line prints what the kernel said to a call.
FORBIDDEN = """
import ctypes, os, sys, socket
from importlib.machinery import SourceFileLoader
confinement = SourceFileLoader("confinement", sys.argv[1]).load_module()
library = ctypes.CDLL(None, use_errno=True)
parent, limiting = os.getppid(), 302 if os.uname().machine == "x86_64" else 261
confinement.give_up_everything()
def tried(name, *arguments):
    done = getattr(library, name)(*arguments)
    return (name, done, ctypes.get_errno())
path = ctypes.c_char_p(b"/etc/passwd")
found = [
    tried("open", path, 0), tried("openat", -100, path, 0), tried("stat", path, ctypes.create_string_buffer(999)),
    tried("socket", 1, 1, 0), tried("socketpair", 1, 1, 0, ctypes.create_string_buffer(8)), tried("fork"),
    tried("execve", path, None, None), tried("kill", parent, 0), tried("kill", os.getpid(), 0),
    tried("ptrace", 16, parent, 0, 0), tried("unlink", path), tried("mkdir", path, 0), tried("chdir", path),
    tried("chmod", path, 0), tried("rename", path, path), tried("link", path, path), tried("symlink", path, path),
    tried("dup", 0), tried("pipe", ctypes.create_string_buffer(8)), tried("memfd_create", path, 0),
    tried("eventfd", 0, 0), tried("epoll_create", 1), tried("setuid", 0), tried("setgid", 0), tried("setsid"),
    tried("personality", 0), tried("mount", path, path, None, 0, None), tried("unshare", 0x10000000),
    tried("nice", -1), tried("shmget", 1, 4096, 0o1000), tried("process_vm_readv", parent, None, 0, None, 0, 0),
    tried("prctl", 4, 1, 0, 0, 0), tried("mmap", None, 4096, 5, 0x22, -1, 0),
    tried("syscall", limiting, parent, 7, None, None),
    tried("ioctl", 0, 0x5412, ctypes.c_char_p(b"x")),
]
os.write(1, repr(found).encode())
"""


@pytest.mark.skipif(filter_program(os.uname().machine) is None, reason="no filter for this machine")
async def test_forbidden_calls() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-c", FORBIDDEN, confinement.__file__, stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    answered, _ = await process.communicate()
    found = ast.literal_eval(answered.decode())
    assert len(found) > 30
    for name, returned, error in found:
        refused = (returned in (-1, 2**64 - 1), error)
        assert refused == (True, errno.EPERM), name


async def test_cells_end_with_their_server(tmp_path: Path) -> None:
    """Killed in the middle of a script, a server leaves neither processes nor directories."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(sys.executable, str(program), stdout=PIPE, env=environment)
    assert process.stdout is not None
    process_ids = [int(each) for each in (await process.stdout.readline()).split()]
    assert len(process_ids) == 3
    watched = [os.pidfd_open(process_id) for process_id in process_ids]
    process.kill()
    await process.wait()
    for each in watched:
        assert await asyncio.to_thread(select.select, [each], [], [], 30) == ([each], [], [])
        os.close(each)
    assert os.listdir(tmp_path) == ["server.py"]


SERVER = """
import asyncio
from armillary.scripts.functions import FunctionProcess
from armillary.scripts.jail import Begin, Jail

async def main():
    jail, caller, begun = Jail(), FunctionProcess(), asyncio.Event()
    links = {"selfLink": "dbs/d/colls/c/", "altLink": "dbs/d/colls/c"}
    bounds = {"operationsMax": 9, "batchMax": 9, "batchCharactersMax": 999, "acceptedForMs": 4000, "unitsMax": 9}
    given = {"arguments": [], **bounds, **links}
    async def perform(asked):
        begun.set()
        await asyncio.sleep(600)
    reading = Begin("function () { __.readDocuments(__.getSelfLink()); }", given)
    waiting = asyncio.create_task(jail.run(reading, perform))
    await caller.ready()
    await begun.wait()
    # The last, because it is ended after some seconds.
    endless = asyncio.create_task(jail.run(Begin("function () { while (true) {} }", given), perform))
    while len(jail.process_ids) < 2:
        await asyncio.sleep(0.01)
    print(*jail.process_ids, caller.process_id, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_another_takes_the_place_of_one_that_ended_unseen(jail: Jail) -> None:
    await run(jail, NAMES)
    [process_id] = jail.process_ids
    os.kill(process_id, signal.SIGKILL)
    assert (await run(jail, NAMES)).stopped is None
    assert jail.process_ids != [process_id]


async def test_nothing_is_left_when_it_closes(jail: Jail) -> None:
    await run(jail, NAMES)
    [process_id] = jail.process_ids
    await jail.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


async def test_who_waits_too_long_is_told(with_limits: WithLimits) -> None:
    with_limits(SCRIPT_CELLS_MAX=1, SCRIPT_LONG_CELLS_MAX=0, SCRIPT_WAIT_SECONDS_MAX=0.05)
    jail = Jail()
    begun = asyncio.Event()
    goes_on = asyncio.Event()

    async def perform(asked: Any) -> Any:
        begun.set()
        await goes_on.wait()
        return await nothing(asked)

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


async def test_scripts_that_take_long_make_room_for_others(jail: Jail, with_limits: WithLimits) -> None:
    with_limits(SCRIPT_LONG_SECONDS=0.01, SCRIPT_SECONDS_MAX=100.0)
    never = asyncio.Event()

    async def perform(asked: Any) -> Any:
        await never.wait()

    body = "function () { __.readDocuments(__.getSelfLink()); }"
    waiting = [asyncio.create_task(jail.run(Begin(body, GIVEN), perform)) for _ in range(limits.SCRIPT_CELLS_MAX)]
    for _ in range(2 * limits.SCRIPT_CELLS_MAX):
        await run(jail, NAMES)
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await run(jail, NAMES)


# What confines a cell is checked, not hoped for.

_NUMBERS = {"x86_64": (157, 110), "aarch64": (167, 173)}  # of prctl and getppid
_OUTER = """
import ctypes, os, struct, sys
number, option, outcome = map(int, sys.argv[1:4])
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, option), (0x06, 0, 0, outcome)]
program = b"".join(struct.pack("=HBBI", *step) for step in [*steps, (0x06, 0, 0, 0x7FFF0000)])
kept = ctypes.create_string_buffer(program, len(program))
library = ctypes.CDLL(None)
assert library.prctl(38, 1, 0, 0, 0) == 0
assert library.prctl(22, 2, ctypes.c_char_p(struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))), 0, 0) == 0
os.execv(sys.argv[4], sys.argv[4:])
"""
_ERRNO = 0x00050000  # of what a filter answers: the call fails with the number that is added; 0: it seems to succeed
_SCRIPT = "function () { __.response.setBody(1); }"


def _in_a_kernel_where(option: int, outcome: int) -> Any:
    """Cells are started where one option of prctl is not what it should be."""
    made = jail_module.cell_command
    number = _NUMBERS[os.uname().machine][0]

    def command(confinement: Confinement) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", _OUTER, str(number), str(option), str(outcome), *made(confinement)]

    return command


@pytest.mark.skipif(os.uname().machine not in _NUMBERS, reason="the numbers of its calls are not known")
@pytest.mark.parametrize(
    ("option", "outcome", "said"),
    [
        (22, _ERRNO | errno.EINVAL, "refuses the filter of system calls"),
        (22, _ERRNO | errno.EPERM, "refuses the filter of system calls"),
        (22, _ERRNO, "without applying it"),  # it says yes and does nothing
        (38, _ERRNO | errno.EINVAL, "prctl option 38"),
        (38, _ERRNO | errno.EPERM, "prctl option 38"),
        (1, _ERRNO | errno.EPERM, "prctl option 1"),
    ],
)
async def test_nothing_runs_where_a_cell_is_not_confined(
    monkeypatch: pytest.MonkeyPatch, option: int, outcome: int, said: str
) -> None:
    command = _in_a_kernel_where(option, outcome)
    monkeypatch.setattr(jail_module, "cell_command", command)
    monkeypatch.setattr(functions_module, "cell_command", command)
    jail = Jail()
    with pytest.raises(Failure, match=said) as refused:
        await run(jail, _SCRIPT)
    assert refused.value.kind is Kind.UNSUPPORTED and "--script-confinement limits" in refused.value.message
    await jail.close()
    caller = FunctionProcess()
    functions = QueryFunctions(lambda: caller, {"one": "function () { return 1; }"}.get)
    functions.check_function("one")
    with pytest.raises(Failure, match=said):
        functions.call_function("one", [])
    caller.leave()
    trusting = Jail("limits")
    if option == 22:
        assert (await run(trusting, _SCRIPT)).told["responseBody"] == 1
    else:  # what has nothing to do with the filter is not given up
        with pytest.raises(Failure, match=said):
            await run(trusting, _SCRIPT)
    await trusting.close()


@pytest.mark.parametrize("needs_filter", [True, False])
def test_an_unknown_architecture_is_refused(needs_filter: bool) -> None:
    program = f"""
import os, sys, types
sys.path.append({str(Path(confinement.__file__).parent)!r})
import confinement
os.uname = lambda: types.SimpleNamespace(machine="vax")
try:
    confinement.give_up_everything(needs_filter={needs_filter})
except confinement.NotConfined as error:
    os.write(1, str(error).encode())
else:
    os.write(1, b"goes on")
os._exit(0)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, check=True).stdout.decode()
    assert said == ("no filter of system calls is known for vax" if needs_filter else "goes on")


_NAMES = {
    "harmless": (
        "read write ppoll munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pselect6 sched_yield mremap madvise "
        "getpid exit gettimeofday getrusage times sigaltstack futex restart_syscall clock_gettime exit_group getrandom"
    ).split(),
    "mapping": ["mmap", "mprotect"],
    "limiting": ["prlimit64"],
}
_HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
    "riscv64": "/usr/include/asm-generic/unistd.h",
}


@pytest.mark.parametrize("machine", sorted(confinement._MACHINES))
def test_numbers_of_system_calls(machine: str) -> None:
    header = Path(_HEADERS[machine])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    numbers = {
        name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    names = dict(_NAMES)
    if machine == "x86_64":  # which has older calls too
        names["harmless"] = sorted({*names["harmless"], "poll", "select"} - {"ppoll"})
    _, harmless, mapping, limiting = confinement._MACHINES[machine]
    assert set(harmless) == {numbers[name] for name in names["harmless"]}
    assert set(mapping) == {numbers[name] for name in names["mapping"]}
    assert limiting == numbers["prlimit64"]


async def test_a_cell_serves_one_database(with_limits: WithLimits) -> None:
    with_limits(SCRIPT_CELLS_MAX=2)
    jail = Jail()

    async def process_of(owner: str) -> int:
        before = set(jail.process_ids)
        assert (await jail.run(Begin(_SCRIPT, GIVEN, owner), nothing)).told["responseBody"] == 1
        idle = jail._idle[-1]
        assert idle.owner == owner
        assert idle.process_id in before or len(jail.process_ids) <= 2
        return idle.process_id

    first, second = await process_of("one"), await process_of("two")
    assert first != second
    assert (await process_of("one"), await process_of("two")) == (first, second)  # each its own again
    third = await process_of("three")
    assert third not in (first, second)
    assert first not in jail.process_ids, "the one that was idle for longest made room"
    assert await process_of("two") == second
    await jail.close()


async def test_functions_of_queries_run_in_a_process_of_their_database() -> None:
    callers = FunctionProcesses()
    found = {owner: callers.of(owner) for owner in ("one", "two")}
    source = {"next": "function () { globalThis.n = (globalThis.n || 0) + 1; return globalThis.n; }"}
    for caller in found.values():
        functions = QueryFunctions(lambda caller=caller: caller, source.get)  # type: ignore[misc]
        functions.check_function("next")
        assert functions.call_function("next", []) == 1
    assert found["one"].process_id != found["two"].process_id
    assert callers.of("one") is found["one"]
    for number in range(limits.SCRIPT_FUNCTION_CELLS_MAX):
        callers.of(f"more {number}")
    assert found["one"].process_id is None and found["two"].process_id is None
    callers.leave()
