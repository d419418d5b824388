"""`armillary shell`: a prompt with completion and history; without a terminal, the statements of standard input one
after the other. The line editor (prompt_toolkit) is imported at a terminal only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from armillary import __version__
from armillary.errors import Failure
from armillary.storage.private import make_directory, open_file
from armillary.tools.control_file import state_directory
from armillary.tools.remote import Where
from armillary.tools.screen import printable
from armillary.tools.settings import Settings
from armillary.tools.shell.session import Quit, Session
from armillary.tools.shell.statements import is_complete, statements

SOME_FAILED: Final = 1
HISTORY_FILE: Final = "shell-history"


def run_shell(arguments: dict[str, Any], settings: Settings) -> int:
    session = Session(settings, Where.taken_from(arguments), arguments.get("output", "table"))
    try:
        if "container" in arguments and arguments["container"] is not None:
            session.use(arguments["container"])
        if sys.stdin.isatty() and sys.stdout.isatty():
            return _converse(session)
        return _run_all(session, keeps_going="keep_going" in arguments)
    except Quit:
        return 0
    finally:
        session.close()


def _run_all(session: Session, *, keeps_going: bool) -> int:
    """Statements of a pipe or a file. Ends at the first that fails, unless it keeps going."""
    code = 0
    for statement in statements(sys.stdin):
        if not _ran(session, statement):
            code = SOME_FAILED
            if not keeps_going:
                break
    return code


def _ran(session: Session, statement: str) -> bool:
    """Whether a statement succeeded; a failure is said."""
    try:
        session.run(statement)
    except Failure as failure:
        print(f"armillary: {printable(failure.message)}", file=sys.stderr, flush=True)
        return False
    return True


def _converse(session: Session) -> int:
    ask = _prompt(session)
    session.screen.say(f"armillary {__version__}. \\help lists the commands, \\quit or Ctrl-D ends.")
    while True:
        try:
            text = ask()
        except KeyboardInterrupt:  # drops the line
            continue
        except EOFError:
            return 0
        try:
            for statement in statements(text.splitlines(keepends=True)):
                if not _ran(session, statement):
                    break
        except KeyboardInterrupt:
            print("Cancelled.", file=sys.stderr)


def _prompt(session: Session) -> Callable[[], str]:
    """Asks for a statement; Enter ends it where it is complete."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory

    from armillary.tools.shell.completion import ShellCompleter

    path = history_file()
    history: History = FileHistory(str(path)) if path is not None else InMemoryHistory()
    asking: PromptSession[str] = PromptSession(
        history=history,
        completer=ShellCompleter(session),
        complete_while_typing=False,
        multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
        prompt_continuation=lambda width, number, is_soft: "-> ".rjust(width),
    )
    return lambda: asking.prompt(f"{session.container or 'armillary'}> ")


def history_file() -> Path | None:
    """The file of past statements, which may hold data: for the owner's eyes alone. None: it cannot be kept."""
    directory = state_directory()
    if directory is None:
        return None
    path = directory / HISTORY_FILE
    try:
        make_directory(directory, parents=True)
        open_file(path, "r+b" if path.exists() else "xb").close()
    except OSError as error:
        print(f"The history is not kept in {path}: {error.strerror}.", file=sys.stderr)
        return None
    return path
