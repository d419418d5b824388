"""The names and forms that do not change between versions, collected from the code itself: `make docs` writes them to
tests/fixtures/stability.json and docs/stability.md, and tests/unit/house/test_stability.py fails if one of them
disappears.

A fact is one line of text. `make docs` adds new facts; it refuses to drop one unless it is named with `--remove`.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from armillary import changefeed, testing
from armillary.account.snapshots.snapshot_files import MAGIC
from armillary.doors.control.door import PREFIX
from armillary.doors.control.metrics.metric_table import METRICS
from armillary.doors.control.routes import REQUESTS
from armillary.doors.gremlin.errors import ROWS as GREMLIN_ROWS
from armillary.doors.mongo.errors import CODES as MONGO_CODES
from armillary.doors.sql.errors import ROWS as SQL_ROWS
from armillary.doors.table.errors import ROWS as TABLE_ROWS
from armillary.languages.mongo.errors import code_name
from armillary.model import layout
from armillary.model.encoding import FORMAT_BSON, FORMAT_JSON
from armillary.storage.directory import FORMAT_VERSION, FORMATS_READ
from armillary.testing import plugin
from armillary.tools import cli
from armillary.tools.settings import ACCEPTED
from armillary.tools.transfer.arguments import KEY_VARIABLE

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests" / "fixtures" / "stability.json"
PAGE = ROOT / "docs" / "stability.md"

Facts = dict[str, list[str]]

EXIT_CODES = {
    0: "the command has done what was asked",
    1: "`check`, `backup verify`, `import` and `export`: done, and something was found wrong",
    2: "refused: one sentence on standard error says why and what to do",
    130: "ended by Ctrl-C",
    141: "the reader of the output has gone",
}

# Beginnings of messages that released clients, or programs written for them, look for. Each stands in the code.
TEXTS = {
    "SQL": (
        "Cross partition query is required but disabled",
        "Entity with the specified id already exists in the system",
        "One of the specified pre-condition is not met",
        "Owner resource does not exist",
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition",
        "Partition key reached maximum size of ",
        "PartitionKey extracted from document doesn't match the one specified in the header.",
        "Request rate is large. More Request Units may be needed, so no changes were made.",
        "Request size is too large",
        "Resource Not Found",
        "Resource with specified id or name already exists",
        "The authorization token is not valid at the current time.",
        "The input authorization token can't serve the request.",
        "The read session is not available for the input session token",
    ),
    "Table": (
        "One of the input values is invalid.",
        "The specified entity already exists.",
        "The specified resource does not exist.",
        "The table specified does not exist.",
        "The update condition specified in the request was not satisfied.",
    ),
    "MongoDB": (
        "Authentication failed.",
        "E11000 duplicate key error collection: ",
        "Error=16500, RetryAfterMs=",
        "RetryableWriteError",
        "TransientTransactionError",
        "no such command: '",
        "ns not found",
        "operation exceeded time limit",
    ),
    "Gremlin": ("ExceptionMessage", "ExceptionType", "x-ms-retry-after-ms", "x-ms-status-code"),
}

TITLES = {
    "commands": (
        "Commands and their arguments",
        "Output for people may change. With `--json` members are added and none is removed.",
    ),
    "settings": (
        "Settings",
        "Keys of the configuration file; [settings.md](settings.md) says what they mean. Defaults that are listed here "
        "are part of the promise.",
    ),
    "variables": ("Environment variables", ""),
    "exit codes": ("Exit codes", ""),
    "control API": (
        "Control API",
        "[control.md](control.md) describes the bodies. Members are added to answers; none is removed.",
    ),
    "metrics": ("Metrics", "With the labels that [control.md](control.md) names."),
    "stored formats": (
        "Stored formats",
        "A data directory of any format that is listed here opens in this version. `tests/fixtures/stored` holds files "
        "that earlier versions wrote, and the tests open them.",
    ),
    "armillary.changefeed": (
        "The module `armillary.changefeed`",
        "Names and parameters; new parameters have defaults.",
    ),
    "armillary.testing": (
        "The module `armillary.testing` and the pytest plugin",
        "Names and parameters; new parameters have defaults. [testing.md](testing.md) says what they do.",
    ),
    "errors": (
        "Errors on the wire",
        "What each protocol answers for a kind of failure: HTTP status, sub-status and code (SQL); HTTP status and "
        "code (Table); code and name (MongoDB); status and `x-ms-status-code` (Gremlin).",
    ),
    "error texts": (
        "Error texts",
        "Clients and programs look for these, so messages keep containing them. The rest of a message may change.",
    ),
}

_INTRODUCTION = """# What stays the same

<!-- Written by `make docs` from the code (maintenance/stability.py). -->

Programs, scripts and dashboards may rely on everything on this page. A version that removes or renames one of these
names says so under **Removed** in `CHANGELOG.md`; until 1.0 that may be a minor version, afterwards only a major one. A
test compares the list with the code and fails if something is missing.

Not promised: modules and functions inside the package other than `armillary.changefeed` and `armillary.testing`, texts
of the log, the layout of tables that commands print, and charges to the hundredth of a request unit.
"""


def collect() -> Facts:
    """What the code offers now."""
    return {
        "commands": [*_commands(cli._parser(), "armillary")],
        "settings": [*_settings()],
        "variables": sorted([*(option.variable for option in ACCEPTED.values()), KEY_VARIABLE]),
        "exit codes": [f"{code}: {meaning}" for code, meaning in EXIT_CODES.items()],
        "control API": [f"{method} {PREFIX.decode()}/{path}" for method, path in REQUESTS],
        "metrics": metric_names(),
        "stored formats": [*_formats()],
        "armillary.changefeed": [*_signatures(changefeed)],
        "armillary.testing": [*_signatures(testing), *_fixtures()],
        "errors": [*_errors()],
        "error texts": [f"{protocol}: {text}" for protocol, texts in TEXTS.items() for text in texts],
    }


def metric_names() -> list[str]:
    return sorted(f"{metric.name} ({metric.kind})" for metric in METRICS)


def texts_of_the_code() -> str:
    """The literal texts of the modules in which one of TEXTS begins."""
    beginnings = [text[:20] for texts in TEXTS.values() for text in texts]
    sources = (path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    trees = (ast.parse(source) for source in sources if any(beginning in source for beginning in beginnings))
    literals = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(each for each in literals if isinstance(each, str))


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    own = [action for action in parser._actions if action not in inner and "--help" not in action.option_strings]
    named = [action for action in own if not action.option_strings]
    if named or not inner:
        yield f"{name} takes {len(named)} argument{'' if len(named) == 1 else 's'}"
    for action in own:
        for flag in action.option_strings or (["ARGUMENT"] if action.choices else []):
            if action.choices is None:
                yield f"{name} {flag}"
            for choice in action.choices or ():
                yield f"{name} {flag} {choice}"
    for each in inner:
        for word, below in each.choices.items():
            yield from _commands(below, f"{name} {word}")


def _settings() -> Iterator[str]:
    for option in ACCEPTED.values():
        is_value = option.default_text and " " not in option.default_text and not option.is_secret
        yield f"{option.name} = {option.default_text}" if is_value else option.name


def _formats() -> Iterator[str]:
    for number in FORMATS_READ:
        yield f"data directories of format {number} are read"
    yield f"data directories of format {FORMAT_VERSION} are written"
    for name, value in sorted(vars(layout).items(), key=lambda pair: str(pair[1])):
        if name.isupper() and isinstance(value, bytes) and len(value) == 1:
            yield f"keys of a partition's store may begin with {value.decode()!r}"
    yield f"items as JSON have form {FORMAT_JSON}, as BSON form {FORMAT_BSON}"
    yield f"snapshot files begin with {MAGIC.decode()!r}"


def _fixtures() -> Iterator[str]:
    for name, value in sorted(vars(plugin).items()):
        if type(value).__name__ == "FixtureFunctionDefinition" and not name.startswith("_"):
            yield f"fixture {name}"
    yield "marker armillary, with settings by name"


def _signatures(module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        value = getattr(module, name)
        yield name
        if inspect.isclass(value):
            yield from _parameters(name, value)
            for member in sorted(set(dir(value)) - set(dir(object))):
                if not member.startswith("_"):
                    yield f"{name}.{member}"
                    if inspect.isfunction(getattr(value, member)):
                        yield from _parameters(f"{name}.{member}", getattr(value, member))
        elif callable(value):
            yield from _parameters(name, value)


def _parameters(name: str, function: object) -> Iterator[str]:
    assert callable(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "self":
            yield f"{name}({parameter.name}{'=' if parameter.kind is parameter.KEYWORD_ONLY else ''})"


def _errors() -> Iterator[str]:
    for kind, sql in SQL_ROWS.items():
        yield f"SQL {kind.name}: {sql.status}/{sql.sub_status} {sql.code}"
    for kind, table in TABLE_ROWS.items():
        yield f"Table {kind.name}: {table.status} {table.code}"
    for kind, code in MONGO_CODES.items():
        yield f"MongoDB {kind.name}: {code} {code_name(code)}"
    for kind, gremlin in GREMLIN_ROWS.items():
        yield f"Gremlin {kind.name}: {gremlin.status} {gremlin.code}"


def page(facts: Facts) -> str:
    parts = [_INTRODUCTION]
    for section, (title, text) in TITLES.items():
        parts.append(f"## {title}\n")
        if text:
            parts.append(f"{text}\n")
        parts.append("```text\n" + "\n".join(_shown(section, facts[section])) + "\n```\n")
    return "\n".join(parts)


def _shown(section: str, facts: list[str]) -> list[str]:
    """Facts about one command, in one line."""
    if section != "commands":
        return facts
    lines: dict[str, list[str]] = {}
    for fact in facts:
        command = re.match(r"armillary(?: (?!takes )[a-z][a-z-]*)*", fact)
        assert command
        rest = fact.removeprefix(command[0]).strip()
        lines.setdefault(command[0], []).append(rest)
    return [f"{command}: {', '.join(rest)}" for command, rest in lines.items()]


def missing(kept: Facts, found: Facts) -> list[str]:
    """Facts that were promised and are not so any more."""
    return [f"{section}: {fact}" for section in kept for fact in kept[section] if fact not in found.get(section, ())]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Write the list of what stays the same.")
    parser.add_argument("--remove", action="append", default=[], metavar="FACT", help="a fact that is gone on purpose")
    given = parser.parse_args(arguments)
    found = collect()
    kept: Facts = json.loads(SNAPSHOT.read_text("utf-8")) if SNAPSHOT.exists() else {}
    if gone := [fact for fact in missing(kept, found) if fact not in given.remove]:
        print("These are promised (docs/stability.md) and gone:", *gone, sep="\n  ", file=sys.stderr)
        print("Bring them back, or name each with --remove and in CHANGELOG.md under Removed.", file=sys.stderr)
        return 1
    SNAPSHOT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(found), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
