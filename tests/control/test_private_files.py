"""What is kept on a disk is for its owner alone, whatever the umask; and what is read from one is not believed: lists
of files and archives that were tampered with write nothing outside of the place that was named."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.process import ServerProcess

import armillary
from armillary.errors import Failure, Kind
from armillary.storage.directory import DataDirectory, write_private
from armillary.storage.private import make_directory, open_file, read_regular
from armillary.tools.backup_directory import BackupDirectory
from armillary.tools.cli import main
from armillary.tools.control_file import Control, write_control
from armillary.tools.remote import Where, find_server
from armillary.tools.resolve import resolve

SOURCES = Path(armillary.__file__).parent


@contextmanager
def umask(mask: int) -> Iterator[None]:
    former = os.umask(mask)
    try:
        yield
    finally:
        os.umask(former)


def too_wide(directory: Path) -> list[str]:
    """What others could reach in it."""
    return [
        f"{path.relative_to(directory.parent)} {stat.S_IMODE(path.lstat().st_mode):04o}"
        for path in (directory, *directory.rglob("*"))
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


def test_all_that_is_made_is_for_its_owner_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"id": str(n), "pk": n % 3}) + "\n" for n in range(10)))
    made = tmp_path / "made"
    with umask(0):
        server = ServerProcess.start(made / "data")
        try:
            here = ("--data", str(made / "data"))
            assert main(["import", str(rows), "db/c", "--partition-key", "/pk", *here]) == 0
            (made / "out.csv").touch(0o666)  # one that is there already
            for name in ("out.jsonl", "out.json", "out.csv", "out.parquet", "new/out.bson", "new/packed.bson.gz"):
                assert main(["export", "db/c", str(made / name), *here]) == 0
            assert main(["snapshot", "/", str(made / "all.snapshot"), *here]) == 0
            assert main(["backup", "create", str(made / "backups"), *here]) == 0
            assert main(["trust", *here]) == 0
        finally:
            server.stop()
        assert main(["backup", "create", str(made / "backups"), "--data", str(made / "data")]) == 0
        assert main(["backup", "verify", str(made / "backups")]) == 0
        assert main(["backup", "restore", str(made / "backups"), "--to", str(made / "restored")]) == 0
        assert main(["check", str(made / "restored")]) == 0
    found = too_wide(made)
    assert not found, found
    assert len(list(made.rglob("*"))) > 40
    if os.geteuid() == 0:
        assert server.log.count("running as root") == 1


def test_a_directory_that_was_open_is_narrowed_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "data"
    DataDirectory.claim(directory).release()
    (directory / "rocks").mkdir()
    (directory / "rocks" / "000001.sst").touch(0o644)
    for path in (directory / "rocks", directory):
        path.chmod(0o755)
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o644)
    (directory / "rocks" / "link").symlink_to(outside)
    with caplog.at_level(logging.WARNING):
        DataDirectory.claim(directory).release()
    assert [record.getMessage() for record in caplog.records] == [
        "the data directory was open to other users (mode 0755) and is for its owner alone now"
    ]
    (directory / "rocks" / "link").unlink()
    assert not too_wide(directory)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    caplog.clear()
    DataDirectory.claim(directory).release()
    assert not caplog.records


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    other = tmp_path / "backups"
    other.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(Failure) as refused:
        DataDirectory.claim(directory)
    assert refused.value.kind is Kind.FORBIDDEN and "--data-permissions inherited" in refused.value.message
    assert not list(directory.iterdir())
    DataDirectory.claim(directory, "inherited").release()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    with pytest.raises(Failure, match="belongs to another user"):
        BackupDirectory.make(other)


def test_a_file_system_without_permissions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    monkeypatch.setattr(Path, "chmod", lambda *_arguments, **_options: None)
    with pytest.raises(Failure, match="does not let that be changed"):
        DataDirectory.claim(directory)
    DataDirectory.claim(directory, "inherited").release()


def test_a_directory_of_something_else_is_not_touched(tmp_path: Path) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    directory.chmod(0o755)
    (directory / "letter.txt").touch(0o644)
    for claim in (DataDirectory.claim, BackupDirectory.make):
        with pytest.raises(Failure, match="nothing in it was touched"):
            claim(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o277])
def test_modes_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        make_directory(tmp_path / "a" / "b", parents=True)
        with open_file(tmp_path / "a" / "new", "xb") as stream:
            stream.write(b"x")
        write_private(tmp_path / "a" / "whole", b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").rglob("*")}
    assert modes == {"b": 0o700, "new": 0o600, "whole": 0o600}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_links_are_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="link"):
        read_regular(tmp_path / "link")
    with pytest.raises(OSError, match="plain"):
        read_regular(tmp_path / "pipe")
    with pytest.raises(FileExistsError):
        open_file(tmp_path / "link", "xb")


# In the source: nothing is opened for writing, or made, in another way.

_ALLOWED = {"storage/private.py", "storage/directory.py:mkdtemp", "storage/directory.py:mkstemp"}
_ALLOWED |= {"tools/backup_directory.py:mkstemp", "tools/backup_directory.py:TemporaryDirectory"}
_ALLOWED |= {"scripts/jail.py:mkdtemp", "net/certificate.py:TemporaryDirectory"}  # made with 0700 by tempfile
_ALLOWED |= {"tools/cluster/trial.py:mkdtemp", "tools/cluster/scratch_postgres.py"}  # of PostgreSQL's own user
_ALLOWED |= {"tools/foresight/capture.py:TemporaryFile", "tools/demo/demo_server.py:TemporaryFile"}  # without a name
_ALLOWED |= {"tools/serving/processes/server_process.py:os.open"}  # of /dev/null
_ALLOWED |= {"tools/cli.py:os.open", "storage/directory.py:os.open"}  # of /dev/null; of the lock, with 0600
_MAKING = {"mkdir", "makedirs", "mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile"}
_MAKING |= {"write_bytes", "write_text", "copyfile", "copy", "copy2", "copytree", "extractall", "move"}
_WORDS = re.compile(r"\b(open|" + "|".join(_MAKING) + r")\(")
_SHUTIL = {"copyfile", "copy", "copy2", "copytree", "move"}


def _openings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        owner = (
            function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
        )
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in _MAKING - _SHUTIL or (name in _SHUTIL and owner == "shutil"):
            yield name
        elif name == "open" and owner == "os":
            flags = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
            if re.search("O_WRONLY|O_RDWR|O_CREAT", flags):
                yield "os.open"
        elif name == "open":
            given = [text for each in (*node.args, *(word.value for word in node.keywords)) if (text := _text(each))]
            if any(re.fullmatch(r"[rbt]*[wxa+][bt+]*", text) for text in given):
                yield "open"


def _text(node: ast.expr) -> str:
    """Of a string constant; of anything else, the empty text."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_files_are_made_in_one_way() -> None:
    found = []
    for file in sorted(SOURCES.rglob("*.py")):
        name, text = str(file.relative_to(SOURCES)), file.read_text("utf-8")
        if name not in _ALLOWED and _WORDS.search(text):
            found += [f"{name}:{what}" for what in _openings(ast.parse(text))]
    assert not set(found) - _ALLOWED, "use storage/private.py: what is kept is for its owner alone"


# Lists of files that were tampered with.


def _backup(tmp_path: Path) -> tuple[BackupDirectory, Path]:
    data = tmp_path / "data"
    (data / "rocks").mkdir(parents=True)
    (data / "FORMAT").write_text("armillary 2\n")
    (data / "rocks" / "000001.sst").write_bytes(b"table")
    directory = BackupDirectory.make(tmp_path / "backups")
    directory.add(data, "2026-01-01T00:00:00+00:00")
    return directory, tmp_path / "backups" / "000001.json"


def _entry(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def tamper(content: dict[str, Any]) -> None:
        content["entries"][0][name] = value

    return tamper


def _whole(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def tamper(content: dict[str, Any]) -> None:
        content[name] = value

    return tamper


TAMPERED: list[Callable[[dict[str, Any]], None]] = [
    *(
        _entry("path", path)
        for path in (
            *("{outside}", "../outside", "rocks/../../outside", "rocks/..", "..", ".", "", "/", "rocks/", "rocks"),
            *("rocks//x", "rocks/./x", "./FORMAT", "FORMAT/", "control.json", "key.pem", "rocks/a/b", "rocks\\x"),
            *(
                "rocks/x\x00",
                "rocks/x\n",
                "~/x",
                "checkpoints/x",
                "rocks/.x",
                "rocks/" + "x" * 300,
                None,
                1,
                ["FORMAT"],
            ),
        )
    ),
    *(
        _entry("digest", digest)
        for digest in ("{outside}", "../FORMAT", "", "x" * 64, "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", None, 7)
    ),
    *(_entry(name, value) for name in ("size_bytes", "inode", "changed_ns") for value in (-1, "1", 1.5, True, None)),
    _entry("more", 1),
    _whole("number", 2),
    _whole("number", "../1"),
    _whole("number", -1),
    _whole("copied_bytes", "1"),
    _whole("taken", "\x1b]0;title\x07"),
    _whole("taken", None),
    _whole("entries", {}),
    _whole("entries", [{}]),
    _whole("more", 1),
    lambda content: content["entries"].append(dict(content["entries"][0])),
    lambda content: content.pop("taken"),
]


def test_a_tampered_list_is_refused(tmp_path: Path) -> None:
    directory, file = _backup(tmp_path)
    good = file.read_text()
    directory.find(None)
    for number, tamper in enumerate(TAMPERED):
        content = json.loads(good)
        tamper(content)
        file.write_text(json.dumps(content).replace("{outside}", str(tmp_path / "outside")))
        with pytest.raises(Failure, match="list of files"):
            pytest.fail(f"tampering {number} was accepted: {directory.find(None)}")


@pytest.mark.parametrize("path", ["{outside}", "../outside", "../../outside", "rocks/../../outside"])
def test_a_tampered_list_writes_nothing(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    directory, file = _backup(tmp_path)
    content = json.loads(file.read_text())
    content["entries"][0]["path"] = path.replace("{outside}", str(tmp_path / "outside"))
    file.write_text(json.dumps(content))
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for command in (
        ["verify", str(directory.path)],
        ["restore", str(directory.path), "--to", str(tmp_path / "restored")],
        ["prune", str(directory.path), "--keep", "1"],
        ["list", str(directory.path)],
    ):
        assert main(["backup", *command]) == 2, command
        assert "list of files" in capsys.readouterr().err
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_links_in_a_directory_of_backups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, file = _backup(tmp_path)
    entry = json.loads(file.read_text())["entries"][1]
    kept = directory.path / "files" / entry["digest"]
    elsewhere = tmp_path / "elsewhere"
    kept.rename(elsewhere)
    kept.symlink_to(elsewhere)
    assert main(["backup", "restore", str(directory.path), "--to", str(tmp_path / "restored")]) == 2
    assert not (tmp_path / "restored").exists()
    assert main(["backup", "verify", str(directory.path)]) == 1
    (directory.path / "files" / "notes.txt").touch()  # no backup's
    directory.prune(1)
    assert elsewhere.exists() and (directory.path / "files" / "notes.txt").exists()
    moved = tmp_path / "moved"
    (directory.path / "files").rename(moved)
    (directory.path / "files").symlink_to(moved)
    assert main(["backup", "prune", str(directory.path), "--keep", "1"]) == 2
    assert "is a link" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["..", ".", "", "../x", "a/b", "/etc"])
def test_a_checkpoint_is_removed_by_a_plain_name_alone(tmp_path: Path, name: str) -> None:
    directory = DataDirectory.claim(tmp_path / "data")
    with pytest.raises(ValueError, match="plain name"):
        directory.remove_checkpoint(name)
    directory.release()
    assert (tmp_path / "data" / "FORMAT").exists()


@pytest.mark.parametrize(
    ("url", "options", "is_taken"),
    [
        ("http://127.0.0.1:9", {}, True),
        ("http://[::1]:9", {}, True),
        ("https://localhost:9", {}, True),
        ("http://192.0.2.7:9", {"host": "192.0.2.7"}, True),
        ("http://192.0.2.7:9", {}, False),
        ("https://evil.example:9", {}, False),
        ("http://localhost.evil.example", {}, False),
        ("nonsense", {}, False),
    ],
)
def test_a_directory_of_others_does_not_learn_the_control_key(
    tmp_path: Path, url: str, options: dict[str, str], is_taken: bool
) -> None:
    """A directory may be copied from elsewhere, with a control.json that names another user's server."""
    write_control(tmp_path, Control(url, "a2V5LW9mLXRoZS1maWxl"))
    secret = {"control-key": "c2VjcmV0LW9mLXRoZS1lbnZpcm9ubWVudA=="}
    settings = resolve({"data": str(tmp_path), **options, **secret}, {})
    if is_taken:
        find_server(settings, Where()).close()
    else:
        with pytest.raises(Failure, match="--url"):
            find_server(settings, Where())
        find_server(settings, Where(url="http://elsewhere.example:9")).close()
        if url != "nonsense":  # the key of the file itself is no secret to it
            find_server(resolve({"data": str(tmp_path), **options}, {}), Where()).close()
