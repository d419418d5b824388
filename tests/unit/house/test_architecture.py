"""The rules of the house that no linter knows: names, sizes, docstrings, comparing secrets. Imports: pyproject.toml."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import median
from tokenize import COMMENT, generate_tokens

SOURCE = Path(__file__).parents[3] / "src" / "armillary"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))
TESTS = SOURCE.parents[1] / "tests"
LINES_MAX = 500
MEDIAN_LINES = range(80, 251)
SMALL_LINES = 60
SMALL_MODULES_MAX = 26
FOLDER_MODULES_MAX = 15
# Folders whose modules are all of one kind: a step, a stage, a family of functions each.
COLLECTIONS = {"languages/gremlin/steps", "languages/mongo/stages", "languages/mongo/expressions"}
COLLECTION_MODULES_MAX = 25
REPEATED_LINES_MAX = 12
# Names that draw from the system, or from a generator that nothing has seeded.
DRAWN = re.compile(
    r"\bRandom\(\)|SystemRandom|\burandom\(|\bsecrets\.\w+\(|\buuid[14]\(|derandomize=False"
    r"|(?<![\w.])random\.(?:random|choice|choices|randint|randrange|shuffle|sample|uniform|randbytes|getrandbits)\("
)
BANNED = re.compile(r"(^|_)(manager|helper|helpers|util|utils|common|misc|base|info|handler|impl)($|_)")
SECRET = re.compile(r"(secret|signature|token|mac|digest|password)s?$|(^|_)key_text$")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE.parent)).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@cache
def text_of(module: Path) -> str:
    return module.read_text("utf-8")


@cache
def tree_of(module: Path) -> ast.Module:
    return ast.parse(text_of(module))


def test_modules_have_one_subject() -> None:
    full = [module for module in MODULES if module.name not in ("__init__.py", "__main__.py")]
    sizes = {name_of(module): len(text_of(module).splitlines()) for module in full}
    long = {name: lines for name, lines in sizes.items() if lines > LINES_MAX}
    assert not long, f"{long}: which second subject is in it?"
    assert round(median(sizes.values())) in MEDIAN_LINES
    small = sorted(name for name, lines in sizes.items() if lines < SMALL_LINES)
    assert len(small) <= SMALL_MODULES_MAX, f"{small}: which of them are parts of one subject?"


def test_folders_stay_small() -> None:
    counts = Counter(str(module.parent.relative_to(SOURCE)) for module in MODULES if module.name != "__init__.py")
    most = {folder: COLLECTION_MODULES_MAX if folder in COLLECTIONS else FOLDER_MODULES_MAX for folder in counts}
    full = {folder: count for folder, count in counts.items() if count > most[folder]}
    assert not full, f"{full}: which rooms are in it?"


def code_lines_of(module: Path) -> list[tuple[int, str]]:
    """The lines of a module with their numbers, without imports, comments and lone brackets."""
    imports = [node for node in tree_of(module).body if isinstance(node, ast.Import | ast.ImportFrom)]
    skipped = {number for node in imports for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = [(number, line.strip()) for number, line in enumerate(text_of(module).splitlines(), 1)]
    return [(number, line) for number, line in lines if number not in skipped and re.match(r"[^#]*\w", line)]


def test_nothing_is_written_twice() -> None:
    found: dict[tuple[str, ...], str] = {}
    repeated = []
    for module in MODULES:
        lines = code_lines_of(module)
        for first in range(len(lines) - REPEATED_LINES_MAX):
            stretch = tuple(line for _, line in lines[first : first + REPEATED_LINES_MAX + 1])
            place = f"{name_of(module)}, line {lines[first][0]}"
            if found.setdefault(stretch, place) != place:
                repeated.append(f"{found[stretch]} and {place}")
    assert not repeated, f"{repeated}: more than {REPEATED_LINES_MAX} equal lines; make them one function"


def test_modules_say_what_they_are_for() -> None:
    silent = [name_of(module) for module in MODULES if tree_of(module).body and not ast.get_docstring(tree_of(module))]
    assert not silent, f"no docstring: {silent}"
    line = "from __future__ import annotations"
    full = [module for module in MODULES if tree_of(module).body and module.name != "__init__.py"]
    assert not [name_of(module) for module in full if line not in text_of(module)]


def test_names_say_something() -> None:
    found = []
    for module in MODULES:
        names = [module.stem]
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ClassDef):
                names.append(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower())
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.append(node.name)
        found += [(name_of(module), name) for name in names if BANNED.search(name)]
    assert not found


def test_doors_compare_secrets_in_constant_time() -> None:
    found = []
    for module in MODULES:
        if "doors" not in module.parts:
            continue
        for node in ast.walk(tree_of(module)):
            if not isinstance(node, ast.Compare) or not any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
                continue
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Constant) for side in sides):
                continue  # with a word of the protocol, not with a secret
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
            if any(SECRET.search(name) for name in names):
                found.append(f"{name_of(module)}, line {node.lineno}")
    assert not found, f"{found}: use hmac.compare_digest"


def test_tests_draw_nothing_of_their_own() -> None:
    """Randomness of tests comes from `random.Random(seed)`, so that `make test` fails or passes alike each time."""
    paths = set(TESTS.rglob("*.py")) - {TESTS / "conftest.py", Path(__file__)}  # where the seed is drawn, if asked to
    drawn = {str(path.relative_to(TESTS)): DRAWN.findall(path.read_text("utf-8")) for path in sorted(paths)}
    found = {path: names for path, names in drawn.items() if names}
    assert not found, f"{found}: use random.Random(seed), with the fixture `seed` or a number of the test's own"


def test_modules_can_be_imported_and_offer_what_they_say() -> None:
    missing = []
    for module in MODULES:
        if module.name != "__main__.py":
            loaded = importlib.import_module(name_of(module))
            missing += [
                f"{name_of(module)}: {name}" for name in getattr(loaded, "__all__", ()) if not hasattr(loaded, name)
            ]
    assert not missing


# What admits requests to a partition's meter and pays for them: the one request path. Requests about databases and
# containers have a meter of their own (`throughput/budgets.py`).
METERED_BY = ("account/visits/", "account/throughput/budgets.py", "partition/meter.py", "partition/budget.py")
METERING = re.compile(r"\bmeter\.(?:admit|spend|release|charge)\(|\bpartition\.(?:admit|spend)\(")


def test_only_visits_admit_and_charge_requests() -> None:
    found = {
        name_of(module): METERING.findall(text_of(module))
        for module in MODULES
        if not str(module.relative_to(SOURCE)).startswith(METERED_BY)
    }
    assert not {name: calls for name, calls in found.items() if calls}


# Modules of an import cycle that must stay, sorted, with the reason. There is none.
CYCLES_ALLOWED: frozenset[tuple[str, ...]] = frozenset()


def imports_of(module: Path, known: set[str]) -> set[str]:
    found = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                full = f"{node.module}.{each.name}"
                found.add(full if full in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return (found & known) - {name_of(module)}


def cycles_of(graph: dict[str, set[str]]) -> set[tuple[str, ...]]:
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen: set[str] = set()
        waiting = list(graph[name])
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += graph[each]
        reached[name] = seen
    return {
        tuple(sorted(each for each in found if name in reached[each]))
        for name, found in reached.items()
        if name in found
    }


def test_modules_do_not_import_in_circles() -> None:
    """Late imports and those for annotations count."""
    modules = {name_of(module): module for module in MODULES}
    graph = {name: imports_of(module, set(modules)) for name, module in modules.items()}
    found = cycles_of(graph)
    assert not found - CYCLES_ALLOWED, f"{found}: hand in what a module needs, or let it own a small protocol"
    assert not CYCLES_ALLOWED - found, "an exception that is no longer needed"


# What runs in a simulation: its time comes from the clock that it is handed. `asyncio.sleep(0)` is a turn of the event
# loop and takes no time.
SIMULATED = ("account", "languages", "model", "partition", "query", "scripts", "storage")
# These wait for a PostgreSQL server, which no clock moves. Simulations use the log in memory.
REAL_TIME = ("armillary.storage.log.postgres_connections", "armillary.storage.log.postgres_log")
REAL_SLEEP = re.compile(r"\basyncio\.sleep\((?!0\))|\btime\.sleep\(|from (?:asyncio|time) import .*\bsleep\b")


def test_what_is_simulated_sleeps_by_its_clock() -> None:
    found = {
        name_of(module): REAL_SLEEP.findall(text_of(module))
        for package in SIMULATED
        for module in (SOURCE / package).rglob("*.py")
    }
    assert {name for name, calls in found.items() if calls} <= set(REAL_TIME), "use `await clock.sleep(seconds)`"


# Notions of one protocol: MongoDB's and Gremlin's codes, sub-statuses and headers of the SQL protocol. Doors make them
# of a failure's kind and reason (`errors.py`); errors of a language's own are made in `languages`.
WITHOUT_PROTOCOLS = ("account", "model", "partition", "query", "storage")
OF_A_PROTOCOL = re.compile(
    r"[\"'](?:code|labels)[\"']|\bcode=|sub_?status|status_code|x-ms-|languages\.mongo\.errors\b"
)


def test_codes_and_headers_of_protocols_are_the_doors() -> None:
    found = {
        name_of(module): OF_A_PROTOCOL.findall(text_of(module))
        for package in WITHOUT_PROTOCOLS
        for module in (SOURCE / package).rglob("*.py")
    }
    assert not {name: words for name, words in found.items() if words}, "give the failure a `Reason`"


# Words that stand where the name of a mechanism should: the writer, a reader, the client, the catalog.
VAGUE = re.compile(r"\b(?:who(?:m|so)?ever|nobody|somebody|everybody|anybody|the articles|routers?)\b", re.IGNORECASE)
ROOT = SOURCE.parents[1]
GENERATED = ROOT / "docs" / "internals" / "modules.md"  # made of docstrings, which are checked where they stand


def comments_and_docstrings(path: Path) -> str:
    """The prose of a file of Python: comments, and the docstrings of the module, its classes and functions."""
    text = path.read_text("utf-8")
    parts = [token.string for token in generate_tokens(StringIO(text).readline) if token.type == COMMENT]
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    parts += [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, described)]
    return "\n".join(parts)


def test_comments_name_the_mechanism() -> None:
    found: dict[str, list[str]] = {}
    for top in ("src/armillary", "tests", "bench", "maintenance", "examples"):
        for path in (ROOT / top).rglob("*.py"):
            if path == Path(__file__) or "node_modules" in path.parts or not VAGUE.search(path.read_text("utf-8")):
                continue
            if words := VAGUE.findall(comments_and_docstrings(path)):
                found[str(path.relative_to(ROOT))] = words
    assert not found, f"{found}: write which part of the program, or which client, it is"


def test_documentation_names_the_mechanism() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"]
    found = {
        str(page.relative_to(ROOT)): words
        for page in pages
        if page != GENERATED and (words := VAGUE.findall(page.read_text("utf-8")))
    }
    assert not found, f"{found}: write which part of the program, or which client, it is"
