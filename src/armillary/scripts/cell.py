"""What runs inside the jail: a program of its own that imports nothing of the server's, gives up everything it could
reach, and then runs one script after the other, each in a fresh context of the engine. It speaks frames over its two
pipes: a length, a letter and a body, which is JSON where a script has to do with it (what that means is between
`objects.js` and `calls.py`) and Python's own form where only the server speaks. Modules that take long to import are
not used: somebody waits for a cell to start.

    S  ->  a script begins: source and limits, what it is given   O  <-  operations that the script waits for
    R  ->  results of the operations                              E  <-  the script ended, well or by its own error
    Q  ->  instead of results: the script is over                 X  <-  the engine ended it: time, memory or syntax
    C  ->  a call of a function, in a context of many             F  <-  the function threw: number and text
    D  ->  such a context is no longer needed                     N  <-  the process could not be confined, and why
"""

from __future__ import annotations

import marshal
import os
import resource
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

USER_LINE_OFFSET = 1_000  # lines before a user's source, so that its lines in a stack are told from the prelude's

_HEAD = struct.Struct(">IB")
_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16
_STACK_BYTES_MAX = 1 << 20
_CPU_GRACE_S = 3
_WORLDS_READY = 3
_QUIET_S = 0.002


def main(engine_path: str, directory: str, confined_by: str) -> None:
    # Behind the standard library, so that nothing there is taken for something of it.
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
    is_for_functions = False  # of queries: then no worlds for scripts are needed
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
    """A context for one script, with the object model in it."""

    def __init__(self, engine: Any, sources: list[str]) -> None:
        prelude, *others = sources
        self.context = engine.Context()
        self.context.set_max_stack_size(_STACK_BYTES_MAX)
        self.step = self.context.eval(prelude)(*others)
        self.warmth = 0  # how many of the last two sources it has compiled


def _prepare(pipes: _Pipes, engine: Any, sources: list[str], worlds: list[_World]) -> None:
    """Have worlds ready for the scripts to come, and compile more for them when it is quiet."""
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
    # The engine watches the time itself; this is for the day when it does not.
    resource.setrlimit(resource.RLIMIT_CPU, (int(used_s + left_s) + _CPU_GRACE_S, resource.RLIM_INFINITY))
    ends_s = used_s + left_s
    context.set_memory_limit(begin["memory_bytes"])

    def timed(call: Any, *arguments: Any) -> Any:
        left_s = ends_s - time.process_time()
        if left_s <= 0:  # short jobs that follow each other for ever are never interrupted
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
                raise ValueError("the script has broken its own surroundings")
            text = told[1:].encode("utf-8", "replace")
            if told[0] == "E":
                pipes.write(b"E", text)
                return
            if len(text) > begin["message_bytes_max"]:
                raise ValueError("more is written at once than the limit allows")
            pipes.write(b"O", text)
            letter, body = pipes.read()
            if letter != b"R":
                return  # the host has had enough of it
            timed(step, "results", body.decode(), None)
    except Exception as error:  # the script's doing, whatever it is
        pipes.write(b"X", _described(error))


# What it gives calls a function with the text of its arguments, or is asked which number its last error had.
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
    except Exception as error:  # the function's doing
        pipes.write(b"X", _described(error))
        return
    try:
        pipes.write(b"E", function(asked["arguments"]).encode("utf-8", "replace"))
    except Exception as error:
        pipes.write(b"F", b"%d\n" % _number_of(function) + _described(error))


def _number_of(function: Any) -> int:
    """Of the error that a function threw; 0: it has none."""
    try:
        number = function()
    except Exception:  # no time or memory is left
        return 0
    return number if type(number) is int and number > 0 else 0


def _described(error: Exception) -> bytes:
    # Where there was no memory left, there was none for an error that says so either.
    message = "InternalError: out of memory" if str(error).strip() == "null" else str(error)
    return message.encode("utf-8", "replace")


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
        try:
            # Without a name, what follows it may be a comment behind the semicolon.
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
    """Frames from and to the server."""

    def __init__(self) -> None:
        self._unread = b""

    def has_more(self, seconds: float = 0) -> bool:
        """Whether something is there, or comes in so many seconds."""
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
                os._exit(0)  # the server is gone
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
