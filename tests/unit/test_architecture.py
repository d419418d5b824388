"""The rules of the house that no linter knows: names, sizes, docstrings, comparing secrets. Imports: pyproject.toml."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "armillary"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))
TESTS = SOURCE.parents[1] / "tests"
LINES_MAX = 500
# Names that draw from the system, or from a generator that nothing has seeded.
DRAWN = re.compile(
    r"\bRandom\(\)|SystemRandom|\burandom\(|\bsecrets\.\w+\(|\buuid[14]\(|derandomize=False"
    r"|(?<![\w.])random\.(?:random|choice|choices|randint|randrange|shuffle|sample|uniform|randbytes|getrandbits)\("
)
BANNED = re.compile(r"(^|_)(manager|helper|helpers|util|utils|common|misc|base|info|handler|impl)($|_)")
SECRET = re.compile(r"(secret|signature|token|mac|digest|password)s?$|(^|_)key_text$")


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE.parent)).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@pytest.fixture(params=MODULES, ids=name_of)
def module(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_module_has_one_subject(module: Path) -> None:
    lines = len(module.read_text("utf-8").splitlines())
    assert lines <= LINES_MAX, f"{lines} lines: which second subject is in it?"


def test_module_says_what_it_is_for(module: Path) -> None:
    tree = ast.parse(module.read_text("utf-8"))
    if tree.body:
        assert ast.get_docstring(tree), "no docstring"
        assert "from __future__ import annotations" in module.read_text("utf-8") or module.name == "__init__.py"


def test_names_say_something(module: Path) -> None:
    names = [module.stem]
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef):
            names.append(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower())
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
    assert [name for name in names if BANNED.search(name)] == []


def test_doors_compare_secrets_in_constant_time(module: Path) -> None:
    if "doors" not in module.parts:
        return
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if not isinstance(node, ast.Compare) or not any(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops):
            continue
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Constant) for side in sides):
            continue  # with a word of the protocol, not with a secret
        names = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
        assert not any(SECRET.search(name) for name in names), f"line {node.lineno}: use hmac.compare_digest"


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_tests_draw_nothing_of_their_own(path: Path) -> None:
    """Randomness of tests comes from `random.Random(seed)`, so that `make test` fails or passes alike each time."""
    if path in {TESTS / "conftest.py", Path(__file__)}:  # where the seed is drawn, if asked to
        return
    found = DRAWN.findall(path.read_text("utf-8"))
    assert not found, f"{found}: use random.Random(seed), with the fixture `seed` or a number of the test's own"


def test_module_can_be_imported_alone_and_offers_what_it_says(module: Path) -> None:
    if module.name == "__main__.py":
        return
    loaded = importlib.import_module(name_of(module))
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name), name
