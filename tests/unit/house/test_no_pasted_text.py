"""Text of a request is never pasted into text of a language, a header, a log line or a terminal: conditions are joined
as trees, and what is put into lines has no line ends."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import armillary
from armillary.errors import Failure
from armillary.tools.cli import main
from armillary.tools.logs import JsonLines, TextLines
from armillary.tools.screen import one_line, printable
from armillary.tools.transfer.endpoints.http_client import HttpClient

SOURCES = Path(armillary.__file__).parent
# What reads a language: it is given a client's text as it came, or a tree.
READERS = {"compile_filter", "compile_list_filter", "parse_filter", "compile_query", "parse_query", "query_plan"}
READERS |= {"parse_script", "parse_gremlin", "compile_traversal", "tokens_of", "advice_of"}


def _is_pasted(node: ast.expr, assigned: dict[str, list[ast.expr]], depth: int = 0) -> bool:
    if depth > 5:
        return False
    match node:
        case ast.JoinedStr():
            return any(isinstance(part, ast.FormattedValue) for part in node.values)
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "join")):
            return True
        case ast.Call(func=ast.Attribute(value=value)):  # text.strip() and the like
            return _is_pasted(value, assigned, depth + 1)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_pasted(body, assigned, depth + 1) or _is_pasted(orelse, assigned, depth + 1)
        case ast.Name(id=name):
            return any(_is_pasted(each, assigned, depth + 1) for each in assigned.get(name, ()))
    return False


def pasted(source: str) -> Iterator[int]:
    """Lines in which something is put together and read as a language."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        assigned.setdefault(target.id, []).append(node.value)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                pieces = ast.BinOp(node.target, ast.Add(), node.value)
                assigned.setdefault(node.target.id, []).append(pieces)
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name in READERS and any(_is_pasted(each, assigned) for each in node.args):
                    yield node.lineno


def test_nothing_that_was_put_together_is_read_as_a_language() -> None:
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        text = file.read_text("utf-8")
        if any(reader in text for reader in READERS):
            found += [f"{file.relative_to(SOURCES)}:{line}" for line in pasted(text)]
    assert not found, "join trees, not texts"


@pytest.mark.parametrize(
    ("source", "is_pasted"),
    [
        ("def f(text, keys):\n text = f'({text}) and {keys}'\n compile_filter(text)", True),  # as it was once
        (
            "def f(text, keys):\n text = f'({text}) and {keys}' if text else keys\n compile_filter(text).selection()",
            True,
        ),
        ("def f(text):\n text += ' and x'\n return compile_filter(text)", True),
        ("def f(text):\n return parse_filter('(' + text + ')')", True),
        ("def f(text):\n return parse_filter('(%s)' % text)", True),
        ("def f(parts):\n return parse_filter(' and '.join(parts))", True),
        ("def f(text):\n return parse_filter('({})'.format(text).strip())", True),
        ("def f(query, tree):\n text = query.get('$filter', '').strip()\n return compile_filter(text, tree)", False),
        ("def f():\n return compile_filter('a eq 1')", False),
    ],
)
def test_the_test_sees_it(source: str, is_pasted: bool) -> None:
    assert bool(list(pasted(source))) == is_pasted


@pytest.mark.parametrize(
    "headers",
    [[("a", "b\r\nc: d")], [("a", "b\nc")], [("a\r\nb", "c")], [("a", "b\rc")], [("a", "b\r\n\r\nGET / HTTP/1.1")]],
)
async def test_the_client_writes_no_header_that_is_two(headers: list[tuple[str, str]]) -> None:
    client = HttpClient("http://127.0.0.1:9")
    with pytest.raises(Failure, match="line end"):
        await client.request("GET", "/", headers)
    with pytest.raises(Failure, match="line end"):
        await client.request("GET", "/ HTTP/1.1\r\nhost: evil\r\n\r\n", ())


@pytest.mark.parametrize("log_format", [TextLines, JsonLines])
def test_a_record_of_the_log_is_one_line(log_format: type[TextLines | JsonLines]) -> None:
    hostile = "shop\r\n2026-01-01 00:00:00,000 INFO armillary: the key was changed\u2028\x1b[2J"
    written = log_format(lambda: ()).format(logging.makeLogRecord({"msg": "dropped %s", "args": (hostile,)}))
    assert len(written.splitlines()) == 1 and "\x1b" not in written
    try:
        raise RuntimeError(hostile)
    except RuntimeError:
        record = logging.makeLogRecord({"msg": "it failed", "exc_info": sys.exc_info()})
    first, *others = log_format(lambda: ()).format(record).split("\n")
    assert "it failed" in first
    assert all(line.startswith("    ") for line in others), others


def test_what_a_terminal_obeys_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert printable("a\x1b[2Jb\x07\u009bc\td\ne") == "a\\x1b[2Jb\\x07\\x9bc\td\ne"
    assert one_line("a\r\nWARNING b\u2028c") == "a\\x0d\\nWARNING b\\u2028c"
    assert main(["import", str(tmp_path / "x\x1b]0;title\x07.json"), "db/c", "--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\\x1b]0;title\\x07" in said
