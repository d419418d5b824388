"""Runs a command by its name: finds the running server, or for snapshots and backups the data directory of a stopped
one, and calls the command's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.tools.commands import access, databases, migrating, partitions, report, resharding, scripting, top
from armillary.tools.commands import containers as container_commands
from armillary.tools.commands.testing import clock, faults
from armillary.tools.configuration.runtime_command import show_or_change
from armillary.tools.foresight import capture
from armillary.tools.remote import Server, Where, find_server
from armillary.tools.screen import Screen
from armillary.tools.settings import Settings

Command = Callable[[Server, Screen, dict[str, Any]], None]

# Commands that need a running server.
_COMMANDS: dict[tuple[str, str], Command] = {
    ("databases", "list"): databases.list_databases,
    ("databases", "show"): databases.show_database,
    ("databases", "create"): databases.create_database,
    ("databases", "delete"): databases.delete_database,
    ("containers", "list"): container_commands.list_containers,
    ("containers", "show"): container_commands.show_container,
    ("containers", "create"): container_commands.create_container,
    ("containers", "delete"): container_commands.delete_container,
    ("scale", ""): resharding.scale,
    ("split", ""): resharding.split,
    ("merge", ""): resharding.merge,
    ("migrate", ""): migrating.migrate,
    ("partitions", ""): partitions.draw_partitions,
    ("keys", ""): partitions.draw_keys,
    ("top", ""): top.show_top,
    ("report", ""): report.write_report,
    ("account-keys", "list"): access.list_keys,
    ("account-keys", "connection-strings"): access.list_connection_strings,
    ("account-keys", "regenerate"): access.regenerate_key,
    ("connection-strings", ""): access.show_connection_strings,
    ("portal", ""): access.open_portal,
    ("faults", "list"): faults.list_faults,
    ("faults", "add"): faults.add_fault,
    ("faults", "remove"): faults.remove_faults,
    ("faults", "clear"): faults.clear_faults,
    ("clock", "show"): clock.show_clock,
    ("clock", "stop"): clock.stop_clock,
    ("clock", "advance"): clock.advance_clock,
    ("clock", "run"): clock.run_clock,
    ("mode", ""): clock.set_mode,
    ("runtime", ""): show_or_change,
    ("feed", "tail"): container_commands.tail_changes,
    ("script", "list"): scripting.list_scripts,
    ("script", "show"): scripting.show_script,
    ("script", "put"): scripting.put_script,
    ("script", "delete"): scripting.delete_script,
    ("script", "run"): scripting.run_procedure,
    ("capture", "start"): capture.start,
    ("capture", "list"): capture.list_captures,
    ("capture", "stop"): capture.stop,
    ("capture", "save"): capture.save,
    ("capture", "delete"): capture.delete,
}


def run_command(name: str, arguments: dict[str, Any], settings: Settings) -> int:
    verb = arguments.pop("verb", None) or next((each for each in ("list", "show") if (name, each) in _COMMANDS), "")
    screen = Screen(is_json=arguments.pop("json", False))
    where = Where.taken_from(arguments)
    if (name, verb) not in _COMMANDS:
        return _run_online_or_offline(name, verb, screen, arguments, settings, where)
    server = find_server(settings, where)
    try:
        _COMMANDS[name, verb](server, screen, arguments)
    finally:
        server.close()
    return 0


def _run_online_or_offline(
    name: str, verb: str, screen: Screen, arguments: dict[str, Any], settings: Settings, where: Where
) -> int:
    """Snapshots and backups, which need no running server. Imported here: the storage engine takes time to import."""
    from armillary.tools.commands import backups, snapshots
    from armillary.tools.place import Place

    place = Place(settings, where)
    commands: dict[tuple[str, str], Callable[[Place, Screen, dict[str, Any]], int]] = {
        ("snapshot", ""): snapshots.write_snapshot,
        ("restore", ""): snapshots.restore_snapshot,
        ("backup", "create"): backups.create,
        ("backup", "list"): backups.list_backups,
        ("backup", "verify"): backups.verify,
        ("backup", "restore"): backups.restore,
        ("backup", "prune"): backups.prune,
    }
    try:
        return commands[name, verb](place, screen, arguments)
    finally:
        place.close()
