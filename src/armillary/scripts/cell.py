"""The program of a cell, the sandboxed process that runs scripts. It imports nothing of the server's, gives up all
privileges (`confinement.py`), and then runs one script at a time, each in a fresh context of the JavaScript engine.

It exchanges frames with the server (`jail.py`, `functions.py`) over two pipes: a length, a letter and a body. Bodies
that scripts can influence are JSON (`objects.js` and `calls.py` agree on its form); bodies that only the server writes
are marshalled Python. Modules that are slow to import are avoided, because requests wait for a cell to start.

    S  ->  run a script: source, limits and input                 O  <-  operations that the script waits for
    R  ->  results of the operations                              E  <-  the script ended, by returning or throwing
    Q  ->  instead of results: the script is cancelled            X  <-  the engine stopped it: time, memory or syntax
    C  ->  call a user-defined function in a numbered context     F  <-  the function threw: number and text
    D  ->  drop such a context                                    N  <-  the process could not be confined, and why
"""

from __future__ import annotations

import marshal
import os
import select
import struct
import sys
import time

try:
    import resource
except ImportError:  # Windows, where no cell is started
    pass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USER_LINE_OFFSET = 1_000  # blank lines before a user's source: distinguishes its stack frames from the prelude's

_HEAD = struct.Struct(">IB")
_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16
_STACK_BYTES_MAX = 1 << 20
_CPU_GRACE_S = 3
_WORLDS_READY = 3
_QUIET_S = 0.002


def main(engine_path: str, directory: str, confined_by: str) -> None:
    # At the end of the path, so that no file in these directories shadows a module of the standard library.
    sys.path += [os.path.dirname(engine_path), directory]
    engine, confinement = __import__("_quickjs"), __import__("confinement")
    del sys.path[-2:]
    sources = []
    for name in ("prelude.js", "errors.js", "objects.js", "library.js"):
        with open(os.path.join(directory, name), encoding="utf-8") as file:
            sources.append(file.read())
    pipes = _Pipes()
    try:
        confinement.give_up_everything(needs_filter=confined_by != "limits")
    except confinement.NotConfined as error:
        pipes.write(b"N", str(error).encode("utf-8", "replace"))
        os._exit(1)
    pipes.write(b"E", b"ready")
    worlds: list[_World] = []
    contexts: dict[int, tuple[Any, dict[str, Any]]] = {}
    is_for_functions = False  # user-defined functions of queries: then no worlds for scripts are prepared
    while True:
        if not is_for_functions:
            _prepare(pipes, engine, sources, worlds)
        letter, body = pipes.read()
        if letter == b"S":
            _run(pipes, worlds.pop() if worlds else _World(engine, sources), body)
        elif letter == b"C":
            is_for_functions = True
            worlds.clear()
            _call(pipes, engine, sources[1], contexts, marshal.loads(body))  # noqa: S302 (the server wrote it)
        elif letter == b"D":
            contexts.pop(int(body), None)
        else:
            os._exit(1)


class _World:
    """An engine context for one script, with the object model loaded."""

    def __init__(self, engine: Any, sources: list[str]) -> None:
        prelude, *others = sources
        self.context = engine.Context()
        self.context.set_max_stack_size(_STACK_BYTES_MAX)
        self.step = self.context.eval(prelude)(*others)
        self.warmth = 0  # how many of the two sources that are compiled lazily are compiled already


def _prepare(pipes: _Pipes, engine: Any, sources: list[str], worlds: list[_World]) -> None:
    """Keep worlds ready for the next scripts; while the cell is idle, compile their lazily compiled sources."""
    while len(worlds) < _WORLDS_READY and not pipes.has_more():
        worlds.insert(0, _World(engine, sources))
    for warmth in range(2):
        for world in reversed(worlds):
            if world.warmth == warmth:
                if pipes.has_more(_QUIET_S):
                    return
                world.step("warm", "", None)
                world.warmth += 1


def _run(pipes: _Pipes, world: _World, body: bytes) -> None:
    given_at = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    begin = marshal.loads(body[_LENGTH.size : given_at])  # noqa: S302 (the server wrote it)
    given = body[given_at:].decode()
    context, step = world.context, world.step
    left_s = begin["cpu_s"]
    used_s = time.process_time()
    # The engine enforces the time limit itself; this limit of the kernel is a second line of defence.
    resource.setrlimit(resource.RLIMIT_CPU, (int(used_s + left_s) + _CPU_GRACE_S, resource.RLIM_INFINITY))
    ends_s = used_s + left_s
    context.set_memory_limit(begin["memory_bytes"])

    def timed(call: Any, *arguments: Any) -> Any:
        left_s = ends_s - time.process_time()
        if left_s <= 0:  # the engine does not interrupt an endless sequence of short jobs
            raise TimeoutError("interrupted")
        context.set_time_limit(left_s)
        return call(*arguments)

    def settle() -> None:
        while timed(context.execute_pending_job):
            pass

    try:
        function = timed(_compiled, context, begin["source"])
        timed(step, "begin", given, function)
        while True:
            settle()
            told = timed(step, "drain", "", None)
            settle()
            if not isinstance(told, str) or told[:1] not in ("O", "E"):
                raise ValueError("the script has overwritten built-in objects that it needs itself")
            text = told[1:].encode("utf-8", "replace")
            if told[0] == "E":
                pipes.write(b"E", text)
                return
            if len(text) > begin["message_bytes_max"]:
                raise ValueError("the queued operations are larger than the limit allows")
            pipes.write(b"O", text)
            letter, body = pipes.read()
            if letter != b"R":
                return  # the server cancelled the script
            timed(step, "results", body.decode(), None)
    except Exception as error:  # the engine raises its errors as Exception; a cell must answer every script
        pipes.write(b"X", _described(error))


# Wraps a user-defined function: called with the JSON text of the arguments it returns the JSON text of the result;
# called without arguments it returns the `number` of the last error.
_FUNCTION = """(function (script) {
    const { parse, stringify } = JSON;
    let number;
    return function (text) {
        if (text === undefined) return number;
        number = undefined;
        try {
            const made = stringify(script(...parse(text)));
            return made === undefined ? "" : made;
        } catch (thrown) {
            number = thrown?.number;
            throw thrown;
        }
    };
})"""


def _call(
    pipes: _Pipes, engine: Any, errors: str, contexts: dict[int, tuple[Any, dict[str, Any]]], asked: dict[str, Any]
) -> None:
    number, name = asked["context"], asked["name"]
    try:
        if number not in contexts:
            context = engine.Context()
            context.set_max_stack_size(_STACK_BYTES_MAX)
            context.eval(errors)(context.eval("Error"))
            context.set_memory_limit(asked["memory_bytes"])
            contexts[number] = (context, {})
        context, functions = contexts[number]
        context.set_time_limit(asked["cpu_s"])
        if "source" in asked:
            functions[name] = context.eval(_FUNCTION)(_compiled(context, asked["source"]))
        function = functions[name]
    except Exception as error:  # syntax, time or memory: the engine has no narrower type
        pipes.write(b"X", _described(error))
        return
    try:
        pipes.write(b"E", function(asked["arguments"]).encode("utf-8", "replace"))
    except Exception as error:  # whatever the function throws
        pipes.write(b"F", b"%d\n" % _number_of(function) + _described(error))


def _number_of(function: Any) -> int:
    """The `number` of the error that a function threw last; 0 if it has none."""
    try:
        number = function()
    except Exception:  # the engine raises when time or memory is used up
        return 0
    return number if type(number) is int and number > 0 else 0


def _described(error: Exception) -> bytes:
    # When memory is exhausted the engine cannot allocate an error object either, and throws null.
    message = "InternalError: out of memory" if str(error).strip() == "null" else str(error)
    return message.encode("utf-8", "replace")


def _compiled(context: Any, source: str) -> Any:
    """The function of a script. Its source is one function expression, perhaps with a semicolon after it, or several
    declarations of which the first is called."""
    source = source.removeprefix("\ufeff")
    lines = "\n" * USER_LINE_OFFSET
    bare = source.rstrip().rstrip(";")
    try:
        made = context.eval(f"{lines}({bare}\n)")
    except Exception as error:  # the engine has one type for all errors: the text tells them apart
        if not str(error).startswith("SyntaxError"):
            raise
        name = _first_name(source)
        try:
            # An anonymous function may be followed by a semicolon and a comment.
            made = context.eval(f"{lines}{source if name else f'0,{source}'}")
            if name:
                made = context.eval(name)
        except Exception as second:
            raise SyntaxError(str(second if name else error)) from None
    if not callable(made):
        raise SyntaxError("SyntaxError: the body of a script must be a function")
    return made


def _first_name(source: str) -> str | None:
    for line in source.splitlines():
        declared = line.strip().removeprefix("async ").lstrip()
        name, found, _ = declared.removeprefix("function").partition("(")
        if declared.startswith("function ") and found and name.strip().replace("$", "_").isidentifier():
            return name.strip()
    return None


class _Pipes:
    """Reads and writes the frames that are exchanged with the server."""

    def __init__(self) -> None:
        self._unread = b""

    def has_more(self, seconds: float = 0) -> bool:
        """Whether input is available, or arrives within so many seconds."""
        return bool(self._unread or select.select([0], [], [], seconds)[0])

    def read(self) -> tuple[bytes, bytes]:
        length, letter = _HEAD.unpack(self._exactly(_HEAD.size))
        return bytes([letter]), self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        parts = [self._unread]
        missing = count - len(self._unread)
        while missing > 0:
            part = os.read(0, max(_READ_BYTES, min(missing, 1 << 20)))
            if not part:
                os._exit(0)  # end of file: the server has ended
            parts.append(part)
            missing -= len(part)
        text = b"".join(parts)
        self._unread = text[count:]
        return text[:count]

    def write(self, letter: bytes, body: bytes) -> None:
        rest = memoryview(_HEAD.pack(len(body), letter[0]) + body)
        while rest:
            rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
