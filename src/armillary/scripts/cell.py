"""What runs inside the jail: a program of its own that imports nothing of the server's, gives up everything it could
reach, and then runs one script after the other, each in a fresh context of the engine. It speaks frames over its two
pipes (a length, a letter, JSON); what the words of the JSON mean is between `prelude.js` and `transaction.py`.

    S  ->  a script begins: source, arguments, limits      O  <-  operations that the script waits for
    R  ->  results of the operations                       E  <-  the script ended, well or by its own error
    C  ->  a call of a function, in a context of many      D  ->  such a context is no longer needed
    Q  ->  instead of results: the script is over          X  <-  the engine ended it: time, memory or syntax
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import resource
import struct
import sys
import time
from typing import Any

USER_LINE_OFFSET = 1_000  # lines before a user's source, so that its lines in a stack are told from the prelude's

_HEAD = struct.Struct(">IB")
_STACK_BYTES_MAX = 1 << 20
_ADDRESS_SPACE_BYTES = 1 << 30
_CPU_GRACE_S = 3
_NICENESS = 5
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_SIGKILL = 9


def main(engine_path: str, prelude_path: str) -> None:
    engine = _load_engine(engine_path)
    with open(prelude_path, encoding="utf-8") as file:
        prelude = file.read()
    prepared = _prepared(engine, prelude)
    _give_up_everything()
    _write(b"E", b"ready")
    contexts: dict[int, tuple[Any, dict[str, Any]]] = {}
    while True:
        letter, body = _read()
        if letter == b"S":
            _run(*prepared, json.loads(body))
            prepared = _prepared(engine, prelude)
        elif letter == b"C":
            _call(engine, contexts, json.loads(body))
        elif letter == b"D":
            contexts.pop(int(body), None)
        else:
            os._exit(1)


def _load_engine(path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader("_quickjs", path)
    spec = importlib.util.spec_from_loader("_quickjs", loader)
    assert spec is not None
    engine = importlib.util.module_from_spec(spec)
    loader.exec_module(engine)
    return engine


def _give_up_everything() -> None:
    """No file, no socket and no process can be had from here on, whatever the engine is made to do."""
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    library.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.closerange(3, 1024)
    os.nice(_NICENESS)  # the server goes first
    for name, most in (
        (resource.RLIMIT_NOFILE, 0),  # the two pipes stay; nothing can be opened
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, _ADDRESS_SPACE_BYTES),
    ):
        resource.setrlimit(name, (most, most))


def _prepared(engine: Any, prelude: str) -> tuple[Any, Any]:
    """A context for the next script, which need not wait for it to be made."""
    context = engine.Context()
    context.set_max_stack_size(_STACK_BYTES_MAX)
    return context, context.eval(prelude)


def _run(context: Any, step: Any, begin: dict[str, Any]) -> None:
    left_s = begin["cpu_s"]
    used_s = time.process_time()
    # The engine watches the time itself; this is for the day when it does not.
    resource.setrlimit(resource.RLIMIT_CPU, (int(used_s + left_s) + _CPU_GRACE_S, resource.RLIM_INFINITY))
    ends_s = used_s + left_s
    context.set_memory_limit(begin["memory_bytes"])

    def timed(call: Any, *arguments: Any) -> Any:
        context.set_time_limit(max(0.001, ends_s - time.process_time()))
        return call(*arguments)

    def settle() -> None:
        while timed(context.execute_pending_job):
            pass

    try:
        function = timed(_compiled, context, begin["source"])
        timed(step, "begin", json.dumps(begin["given"]), function)
        while True:
            settle()
            told = timed(step, "drain", "", None)
            settle()
            if not isinstance(told, str) or told[:1] not in ("O", "E") or told == "O[]":
                raise ValueError("the script has broken its own surroundings")
            text = told[1:].encode("utf-8", "replace")
            if told[0] == "E":
                _write(b"E", text)
                return
            if len(text) > begin["message_bytes_max"]:
                raise ValueError("more is written at once than the limit allows")
            _write(b"O", text)
            letter, body = _read()
            if letter != b"R":
                return  # the host has had enough of it
            timed(step, "results", body.decode(), None)
    except Exception as error:  # the script's doing, whatever it is
        _write(b"X", json.dumps({"message": str(error)}).encode())


_FUNCTION = """(function (script) {
    const { parse, stringify } = JSON;
    return function (text) { const made = stringify(script(...parse(text))); return made === undefined ? "" : made; };
})"""


def _call(engine: Any, contexts: dict[int, tuple[Any, dict[str, Any]]], asked: dict[str, Any]) -> None:
    number, name = asked["context"], asked["name"]
    if number not in contexts:
        context = engine.Context()
        context.set_memory_limit(asked["memory_bytes"])
        context.set_max_stack_size(_STACK_BYTES_MAX)
        contexts[number] = (context, {})
    context, functions = contexts[number]
    try:
        context.set_time_limit(asked["cpu_s"])
        if "source" in asked:
            functions[name] = context.eval(_FUNCTION)(_compiled(context, asked["source"]))
        _write(b"E", functions[name](asked["arguments"]).encode("utf-8", "replace"))
    except Exception as error:  # the function's doing
        _write(b"X", json.dumps({"message": str(error)}).encode())


def _compiled(context: Any, source: str) -> Any:
    """The function that a script is. Its text is one, perhaps with a semicolon behind, or several of which the first
    is called."""
    source = source.removeprefix("\ufeff")
    lines = "\n" * USER_LINE_OFFSET
    bare = source.rstrip().rstrip(";")
    try:
        made = context.eval(f"{lines}({bare}\n)")
    except Exception as error:
        if not str(error).startswith("SyntaxError"):
            raise
        name = _first_name(source)
        if name is None:
            raise SyntaxError(str(error)) from None
        try:
            context.eval(f"{lines}{source}")
            made = context.eval(name)
        except Exception as second:
            raise SyntaxError(str(second)) from None
    if not callable(made):
        raise SyntaxError("SyntaxError: the body of a script must be a function")
    return made


def _first_name(source: str) -> str | None:
    _, found, rest = source.partition("function ")
    name = rest.partition("(")[0].strip() if found else ""
    return name if name.isidentifier() else None


def _read() -> tuple[bytes, bytes]:
    length, letter = _HEAD.unpack(_exactly(_HEAD.size))
    return bytes([letter]), _exactly(length)


def _exactly(count: int) -> bytes:
    parts = []
    while count:
        part = os.read(0, min(count, 1 << 20))
        if not part:
            os._exit(0)  # the server is gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _write(letter: bytes, body: bytes) -> None:
    rest = memoryview(_HEAD.pack(len(body), letter[0]) + body)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
