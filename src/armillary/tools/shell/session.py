"""What a shell knows and does: the container in use, the form of output, parameters and the partition key of queries,
and the commands that begin with a backslash. Reading statements is left to `shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from armillary.errors import Failure, bad_request
from armillary.tools.commands import containers, databases, partitions
from armillary.tools.commands.arguments import container_path, key_values
from armillary.tools.guide.command_parser import suggestion
from armillary.tools.querying.arguments import OUTPUTS, parameters_of
from armillary.tools.querying.command import place_named, show
from armillary.tools.querying.sql_pages import Asked, SqlAccount
from armillary.tools.remote import Server, Where, find_server, has_control_key
from armillary.tools.screen import Screen
from armillary.tools.settings import Settings
from armillary.tools.shell.statements import COMMAND

_SAMPLED: Final = 200  # items whose properties are completed


class Quit(Exception):
    """The end of a shell was asked for."""


class Session:
    def __init__(self, settings: Settings, where: Where, output: str) -> None:
        self.screen = Screen()
        self.container: str | None = None
        self._output = output
        self._account = SqlAccount.find(settings, where)
        # Without a control key queries work, and what lists and draws does not.
        self._server = find_server(settings, where) if has_control_key(settings, where) else None
        self._parameters: dict[str, str] = {}
        self._key: str | None = None
        self._rows_max: int | None = None
        self._last: str | None = None
        self._paths: dict[str, list[str]] = {}  # by container

    def close(self) -> None:
        self._account.close()
        if self._server is not None:
            self._server.close()

    @property
    def server(self) -> Server:
        if self._server is None:
            raise bad_request(
                "There is no control key at hand, which this command needs. Name the server's data directory with "
                "--data, or set ARMILLARY_CONTROL_KEY."
            )
        return self._server

    def run(self, statement: str) -> None:
        """A statement without its semicolon, or a command."""
        if not statement.startswith(COMMAND):
            self._query(statement, is_explained=False)
            return
        name, _, rest = statement[1:].partition(" ")
        if name not in COMMANDS:
            known = suggestion(name, COMMANDS)
            raise bad_request(f"There is no command \\{name}.{known.replace('mean ', f'mean {COMMAND}')} See \\help.")
        COMMANDS[name][0](self, rest.strip())

    def _query(self, text: str, *, is_explained: bool) -> None:
        if self.container is None:
            raise bad_request("No container is in use. Choose one with \\use DATABASE/CONTAINER; \\d lists them.")
        given = parameters_of([f"{name}={value}" for name, value in self._parameters.items()])
        key = key_values(self._key) if self._key is not None else None
        self._last = text
        form = "table" if is_explained and self._output == "csv" else self._output
        asked = Asked(place_named(self.container), text, given, key)
        show(self._account, asked, self.screen, form, self._rows_max, is_explained=is_explained)

    # What completion offers. Never fails: a list that cannot be had is empty.

    def container_names(self) -> list[str]:
        found = self._asked("containers") or {"containers": []}
        return [f"{each['database']}/{each['name']}" for each in found["containers"]]

    def property_paths(self) -> list[str]:
        """Of a sample of the items in use, such as address.city."""
        if self.container is None:
            return []
        if self.container not in self._paths:
            found = self._asked(*container_path(self.container), "sample", count=_SAMPLED) or {"paths": []}
            paths = [each["path"].strip("/") for each in found["paths"]]
            self._paths[self.container] = [
                path.replace("/", ".") for path in paths if "[" not in path and "]" not in path
            ]
        return self._paths[self.container]

    def _asked(self, *path: str, **query: object) -> Any:
        try:
            return self._server.get(*path, **query) if self._server is not None else None
        except Failure:
            return None

    # The commands.

    def use(self, name: str) -> None:
        """DATABASE/CONTAINER: the container that queries ask"""
        path = container_path(name)
        if self._server is not None:
            self._server.get(*path)
        self.container = name

    def describe(self, name: str) -> None:
        """[DATABASE/CONTAINER]: list the containers, or show one"""
        if name:
            containers.show_container(self.server, self.screen, {"container": name})
        else:
            containers.list_containers(self.server, self.screen, {})

    def list_databases(self, rest: str) -> None:
        """list the databases"""
        _nothing(rest, "l")
        databases.list_databases(self.server, self.screen, {})

    def explain(self, statement: str) -> None:
        """[STATEMENT]: the plan and charge of a query, or of the last one"""
        text = statement or self._last
        if text is None:
            raise bad_request("There was no query yet. Write one after \\explain.")
        self._query(text.rstrip(";"), is_explained=True)

    def draw_partitions(self, name: str) -> None:
        """[DATABASE/CONTAINER]: draw its partitions and largest keys"""
        partitions.draw_partitions(self.server, self.screen, {"containers": [self._named(name)]})

    def draw_keys(self, name: str) -> None:
        """[DATABASE/CONTAINER]: the largest and busiest partition keys"""
        partitions.draw_keys(self.server, self.screen, {"container": self._named(name)})

    def set_output(self, form: str) -> None:
        """table|json|csv: the form of rows"""
        if form not in OUTPUTS:
            raise bad_request(f"The output is one of {', '.join(OUTPUTS)}, not {form!r}.")
        self._output = form

    def set_parameter(self, text: str) -> None:
        """[NAME=VALUE]: set a parameter of queries; without one, list them"""
        if not text:
            self.screen.say(
                "\n".join(f"@{name} = {value}" for name, value in self._parameters.items()) or "None is set."
            )
            return
        name = parameters_of([text])[0]["name"].removeprefix("@")
        self._parameters[name] = text.partition("=")[2]

    def set_key(self, value: str) -> None:
        """[VALUE]: ask one logical partition only; without one, all"""
        self._key = value or None

    def set_rows(self, text: str) -> None:
        """[N]: show at most N rows; without a number, all"""
        if text and (not text.isdigit() or int(text) < 1):
            raise bad_request(f"\\max is {text!r}; expected how many rows to show, at least 1.")
        self._rows_max = int(text) if text else None

    def help(self, rest: str) -> None:
        """this list"""
        _nothing(rest, "help")
        lines = [f"  \\{name:<11}{_meaning(function)}" for name, (function, _) in COMMANDS.items()]
        self.screen.say("\n".join(["SQL statements end with a semicolon. Commands end with their line:", *lines]))

    def quit(self, rest: str) -> None:
        """end the shell, as Ctrl-D does"""
        _nothing(rest, "quit")
        raise Quit

    def _named(self, name: str) -> str:
        if name or self.container:
            return name or self.container or ""
        raise bad_request("No container is in use. Name one, or choose one with \\use DATABASE/CONTAINER.")


def _nothing(rest: str, name: str) -> None:
    if rest:
        raise bad_request(f"\\{name} takes no arguments: leave out {rest!r}.")


def _meaning(function: Callable[..., None]) -> str:
    return (function.__doc__ or "").strip()


# By name: the function, and what completion offers as its argument.
COMMANDS: Final[dict[str, tuple[Callable[[Session, str], None], str]]] = {
    "use": (Session.use, "containers"),
    "d": (Session.describe, "containers"),
    "l": (Session.list_databases, ""),
    "explain": (Session.explain, "sql"),
    "partitions": (Session.draw_partitions, "containers"),
    "keys": (Session.draw_keys, "containers"),
    "output": (Session.set_output, "outputs"),
    "parameter": (Session.set_parameter, ""),
    "key": (Session.set_key, ""),
    "max": (Session.set_rows, ""),
    "help": (Session.help, ""),
    "quit": (Session.quit, ""),
}
