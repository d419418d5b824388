"""Runs the commands that work through a server and on the data directory of one that is not running alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.tools.commands import backups, snapshots
from armillary.tools.place import Place
from armillary.tools.remote import Where
from armillary.tools.screen import Screen
from armillary.tools.settings import Settings

_COMMANDS: dict[tuple[str, str], Callable[[Place, Screen, dict[str, Any]], int]] = {
    ("snapshot", ""): snapshots.write_snapshot,
    ("restore", ""): snapshots.restore_snapshot,
    ("backup", "create"): backups.create,
    ("backup", "list"): backups.list_backups,
    ("backup", "verify"): backups.verify,
    ("backup", "restore"): backups.restore,
    ("backup", "prune"): backups.prune,
}


def run_keeping(
    name: str, verb: str, screen: Screen, arguments: dict[str, Any], settings: Settings, where: Where
) -> int:
    place = Place(settings, where)
    try:
        return _COMMANDS[name, verb](place, screen, arguments)
    finally:
        place.close()
