"""Checks that keep clients out, or that hold for what another program has written, are `if ... raise`: an `assert` is
gone under `python -O`, and what it kept out comes in."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import armillary

SOURCES = Path(armillary.__file__).parent
# Whatever stands at a border: input of clients, of files and of processes, and what decides about access.
BORDERS = [
    "doors/**/*.py",
    "net/**/*.py",
    "scripts/**/*.py",
    "tools/**/*.py",
    "portal/**/*.py",
    "storage/private.py",
    "storage/directory.py",
    "account/security/permissions.py",
    "account/security/credentials.py",
    "account/snapshots/snapshot_import.py",
    "account/snapshots/snapshot_files.py",
    "query/continuation_token.py",
]


def _is_narrowing(test: ast.expr) -> bool:
    """What tells a type checker that something is there: without it the next line fails by itself."""
    if isinstance(test, ast.BoolOp):
        return all(_is_narrowing(each) for each in test.values)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is | ast.IsNot) and len(test.ops) == 1:
        return isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance"


def _checks(file: Path) -> Iterator[str]:
    text = file.read_text("utf-8")
    if "assert" not in text and "__debug__" not in text:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert) and not _is_narrowing(node.test):
            yield f"{file.relative_to(SOURCES)}:{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Name) and node.id == "__debug__":
            yield f"{file.relative_to(SOURCES)}:{node.lineno}: __debug__"


def test_no_check_at_a_border_is_an_assertion() -> None:
    files = {file for pattern in BORDERS for file in SOURCES.glob(pattern)}
    assert len(files) > 200
    found = sorted(check for file in files for check in _checks(file))
    assert not found, "\n".join(["use `if ... raise`, which python -O keeps:", *found])


# Each of these must raise.
ATTEMPTS = {
    "a token without a mode": 'authority.issue(**{**TOKEN, "mode": "Everything"})',
    "a token for ever": 'authority.issue(**{**TOKEN, "lifetime_s": 0})',
    "a token for the whole account": 'authority.issue(**{**TOKEN, "name_link": "", "rid_link": ""})',
    "a token whose scope is cut short": 'authority.issue(**{**TOKEN, "name_link": "dbs/shop/colls"})',
    "a short secret": 'TokenAuthority("a", b"short", VirtualClock())',
    "a checkpoint that is none": 'DataDirectory("/nowhere", -1).remove_checkpoint("..")',
    "a cell that is not confined": 'check_ready(b"N", b"reason")',
    "a cell that says something else": 'check_ready(b"X", b"")',
    "a path out of a backup": 'Entry("../x", 1, "0" * 64, 1, 1)',
    "a digest that is none": 'Entry("FORMAT", 1, "../x", 1, 1)',
    "a header with a line end": 'Answers((), 0.0).encode(Response(200, [(b"a", b"b\\r\\nc: d")]), b"\\r\\n")',
    "header lines beside headers": 'Answers((), 0.0).encode(Response(200, [(b"a", b"b")], b"", b"c: d"), b"\\r\\n")',
    "a key of another length": "Credentials(None, [None])",
    "a signature with a line end": '_check_form({"sp": "r\\n"})',
    "a continuation of another form": "_Reader(b'\\x01' + bytes(100)).cursor()",
}
_PROGRAM = """
import json, sys
from pathlib import Path
from armillary.account.security.credentials import Credentials
from armillary.clock import VirtualClock
from armillary.doors.sql.access.resource_tokens import TokenAuthority
from armillary.doors.table.access.shared_access import _check_form
from armillary.net.answers import Answers
from armillary.net.http import Response
from armillary.query.continuation_token import _Reader
from armillary.scripts.jail import check_ready
from armillary.storage.directory import DataDirectory as Directory
from armillary.tools.backup_directory import Entry

def DataDirectory(path, lock):
    return Directory(Path(path), lock)

authority = TokenAuthority("a", bytes(32), VirtualClock())
TOKEN = dict(permission_rid="p", mode="Read", name_link="dbs/shop", rid_link="dbs/r", partition_key=None, lifetime_s=1)
TOKEN |= dict(rids=["r"], grant="1")
authority.issue(**TOKEN)
raised = {}
for name, source in json.loads(sys.stdin.read()).items():
    try:
        eval(source)
        raised[name] = None
    except Exception as error:
        raised[name] = type(error).__name__
print(json.dumps(raised))
"""


def test_what_is_refused_is_refused_under_o_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-O", "-c", _PROGRAM],
        input=json.dumps(ATTEMPTS),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    raised = json.loads(ran.stdout)
    assert raised.keys() == ATTEMPTS.keys()
    assert not [name for name, error in raised.items() if error in (None, "AssertionError")], raised
