"""`armillary snapshot` and `armillary restore`: a database or container to a file and back, through a running server or
on its data directory. The file format is in `account/snapshots/snapshot_files.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, BinaryIO

from armillary.account.account import Account
from armillary.account.snapshots.snapshot_files import parts
from armillary.account.snapshots.snapshot_import import SnapshotImport
from armillary.account.snapshots.snapshots import take
from armillary.clock import SystemClock
from armillary.errors import bad_request
from armillary.storage.private import whole_file
from armillary.tools.place import Place
from armillary.tools.remote import Server
from armillary.tools.screen import Screen, count, size

_PART_BYTES = 1024 * 1024


def write_snapshot(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    scope, file = _scope(arguments["name"]), Path(arguments["file"])
    server = place.server()
    with whole_file(file, "snapshot") as stream:
        if server is not None:
            taken = _receive(server, scope, stream)
        else:
            taken = asyncio.run(_write(place, scope, stream))
    size_bytes = file.stat().st_size
    if screen.is_json:
        screen.content({"file": str(file), "fileBytes": size_bytes, **taken})
    else:
        what = "/".join(scope) or "all databases"
        screen.say(f"Wrote {what} with {count(taken['items'])} items to {file} ({size(size_bytes)}).")
    return 0


def _receive(server: Server, scope: tuple[str, ...], stream: BinaryIO) -> dict[str, Any]:
    name = f"file-{SystemClock().random_bytes(8).hex()}"
    body = dict(zip(("database", "container"), scope, strict=False))
    taken: dict[str, Any] = server.post("snapshots", name, body=body)
    try:
        number = 0
        while (part := server.get_bytes("snapshots", name, "parts", str(number))) is not None:
            stream.write(part)
            number += 1
    finally:
        server.delete("snapshots", name)
    return {each: taken[each] for each in ("taken", "containers", "items", "bytes")}


async def _write(place: Place, scope: tuple[str, ...], stream: BinaryIO) -> dict[str, Any]:
    async with place.opened() as account:
        snapshot = await take(account, scope)
        try:
            async for part in parts(snapshot):
                stream.write(part)
            items, size_bytes = snapshot.counts()
            return {"containers": len(snapshot.containers), "items": items, "bytes": size_bytes}
        finally:
            snapshot.release()


def restore_snapshot(place: Place, screen: Screen, arguments: dict[str, Any]) -> int:
    file = Path(arguments["file"])
    target = _scope(arguments["target"]) if "target" in arguments else ()
    replaces = "replace" in arguments
    server = place.server()
    try:
        stream = file.open("rb")
    except OSError as error:
        raise bad_request(f"The snapshot {file} cannot be read: {error.strerror}.") from None
    with stream:
        if server is not None:
            restored = _send(server, stream, target, replaces=replaces)
        else:
            restored = asyncio.run(_read(place, stream, target, replaces=replaces))
    if screen.is_json:
        screen.content(restored)
    else:
        screen.say(f"Restored {', '.join(restored['restored']) or 'nothing'} with {count(restored['items'])} items.")
    return 0


def _send(server: Server, stream: BinaryIO, target: tuple[str, ...], *, replaces: bool) -> dict[str, Any]:
    body: dict[str, Any] = dict(zip(("database", "container"), target, strict=False))
    number = server.post("restores", body={**body, "replace": replaces})["id"]
    try:
        at = 0
        while part := stream.read(_PART_BYTES):
            server.put_bytes("restores", number, "parts", str(at), content=part)
            at += 1
        restored: dict[str, Any] = server.post("restores", number, "finish", body={})
    except KeyboardInterrupt:
        server.delete("restores", number)
        raise
    return restored


async def _read(place: Place, stream: BinaryIO, target: tuple[str, ...], *, replaces: bool) -> dict[str, Any]:
    async with place.opened() as account:
        arrival = SnapshotImport(account, target or None, replaces=replaces)
        try:
            while part := stream.read(_PART_BYTES):
                await arrival.feed(part)
            records = await arrival.finish()
        except BaseException:
            await arrival.abandon()
            raise
        return {"restored": [_name(account, record) for record in records], "items": arrival.item_count}


def _name(account: Account, record: Any) -> str:
    return "/".join(account.name_link(record).split("/")[1::2])


def _scope(name: str) -> tuple[str, ...]:
    """shop, shop/orders, or / for everything."""
    if name == "/":
        return ()
    words = tuple(name.split("/"))
    if len(words) > 2 or not all(words):
        raise bad_request(f"{name!r} names neither a database nor a container: write shop, shop/orders, or / for all.")
    return words
