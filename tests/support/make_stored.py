"""Writes tests/fixtures/stored with the program at hand. In the project's directory, with the commit as argument:

    PYTHONPATH=src:tests python -m support.make_stored 34af2df

The files were made once, by the version that is named in `expected.json`, and stay: that later versions read them is
what they are for. To cover another version, write another directory beside them.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from azure.cosmos import CosmosClient, PartitionKey
from support.process import KEY, ServerProcess, run_armillary
from support.server_operator import Operator
from support.stored_account import answers, fill

STORED = Path(__file__).parents[1] / "fixtures" / "stored"
ROWS = {  # with keys that the client cannot write
    "shop/mixed": (
        '{"id": "null", "pk": null}',
        '{"id": "minus", "pk": -0.0}',
        '{"id": "large", "pk": 9007199254740993}',
    ),
    "shop/tenants": ('{"id": "part", "tenant": "tenant 1", "user": 3}', '{"id": "less", "tenant": true}'),
}
LEFT_OUT = ("LOG", "certificate", "control", "LOCK")  # what names a machine or is secret, and is made anew


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place, "data")
        server = ServerProcess.start(directory)
        operator = Operator(server)
        fill(server)
        for container, rows in ROWS.items():
            Path(place, "rows.jsonl").write_text("".join(f"{row}\n" for row in rows))
            command(operator, "import", str(Path(place, "rows.jsonl")), container, "--state", str(Path(place, "state")))
        command(operator, "migrate", "shop/moved", "shop/moved-new", "--partition-key", "/new")
        operator.ask("PUT", "reshapes/pauses", {"points": ["copied"]})
        command(operator, "split", "shop/growing", "--no-wait")
        path = "databases/shop/containers/growing/reshapes"
        while not operator.ask("GET", path)["reshapes"][0]["paused"]:
            time.sleep(0.01)
        with CosmosClient(server.url, KEY) as client:  # what the children must catch up with
            growing = client.get_database_client("shop").get_container_client("growing")
            growing.create_item({"id": "late", "pk": "k1"})
            growing.delete_item("g7", "k7")
        expected = answers(server)
        command(operator, "snapshot", "/", str(Path(place, "account.snapshot")))
        command(operator, "backup", "create", str(Path(place, "backups")))
        server.kill()  # so that a write-ahead log has to be replayed, too
        STORED.mkdir(exist_ok=True)
        pack(directory, STORED / "data.tar.xz")
        pack(Path(place, "backups"), STORED / "backups.tar.xz")
        (STORED / "account.snapshot.xz").write_bytes(lzma.compress(Path(place, "account.snapshot").read_bytes()))
        content = {"version": version, "answers": expected}
        (STORED / "expected.json").write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        shutil.rmtree(directory)
        make_misplaced(directory)


def make_misplaced(directory: Path) -> None:
    """Items that were stored in the partition of the header's key: batches compared true and 1 as Python does."""
    server = ServerProcess.start(directory, "--durability", "relaxed")
    with CosmosClient(server.url, KEY) as client:
        container = client.create_database("a").create_container("c", PartitionKey("/pk"), offer_throughput=60_000)
        for key, own, item_id in ((True, 1, "a"), (1, True, "b"), (0, False, "c"), (False, 0, "d")):
            container.execute_item_batch([("create", ({"id": item_id, "pk": own, "text": f"batch {item_id}"},))], key)
        for own, item_id in ((True, "b"), (0, "d")):  # their ids are taken where they belong
            container.create_item({"id": item_id, "pk": own, "text": "created later"})
        for n in range(20):
            container.create_item({"id": f"i{n}", "pk": n % 2 == 0})
    server.stop()
    outcome = run_armillary("check", str(directory))
    assert outcome.returncode == 1 and "outside" in outcome.stdout, outcome.stdout
    pack(directory, STORED / "misplaced.tar.xz")


def command(operator: Operator, *arguments: str) -> None:
    outcome = run_armillary(*arguments, "--data", str(operator.directory))
    if outcome.returncode:
        raise SystemExit(outcome.stdout + outcome.stderr)


def pack(directory: Path, target: Path) -> None:
    def named_alike(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if Path(member.name).name.startswith(LEFT_OUT):
            return None
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        return member

    with (
        lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as file,
        tarfile.open(fileobj=file, mode="w") as packed,
    ):
        packed.add(directory, directory.name, filter=named_alike)


if __name__ == "__main__":
    main(sys.argv[1])
