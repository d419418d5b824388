"""The arguments of the commands that keep an account and what it holds: snapshots, backups, keys."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
AddCommand = Callable[..., argparse.ArgumentParser]
Complete = Callable[[argparse.ArgumentParser], argparse.ArgumentParser]  # adds what says where the server is

KEEPING = ("snapshot", "restore", "backup", "account-keys")


def add_keeping(commands: Commands, add_command: AddCommand, of_server: Complete) -> None:
    snapshot = of_server(add_command(commands, "snapshot", "write a database or container to a file"))
    snapshot.add_argument("name", metavar="DATABASE[/CONTAINER]", help="/ for all databases")
    snapshot.add_argument("file", metavar="FILE")
    restore = of_server(add_command(commands, "restore", "make what a snapshot's file holds part of the account"))
    restore.add_argument("file", metavar="FILE")
    restore.add_argument("--as", dest="target", metavar="DATABASE[/CONTAINER]", help="under another name")
    restore.add_argument("--replace", action="store_true", help="in the place of what has the name already")

    backup = add_command(commands, "backup", "back up the whole account, without stopping it, and bring it back")
    verbs = backup.add_subparsers(dest="verb", required=True, metavar="create|list|verify|restore|prune")
    meanings = {
        "create": "add a backup to a directory; what is there already is not copied again",
        "list": "list the backups in a directory",
        "verify": "read all of a backup, open it and verify every invariant",
        "restore": "make a new data directory of a backup",
        "prune": "remove old backups, and what only they need",
    }
    for verb, meaning in meanings.items():
        parser = of_server(add_command(verbs, verb, meaning))
        parser.add_argument("directory", metavar="DIR", help="where the backups are")
        if verb in ("verify", "restore"):
            parser.add_argument("--number", metavar="N", type=int, help="which one (default: the last)")
        if verb == "restore":
            parser.add_argument("--to", metavar="DIR", required=True, help="the new data directory")
        if verb == "prune":
            parser.add_argument("--keep", metavar="N", type=int, required=True, help="how many stay")

    keys = add_command(commands, "account-keys", "show and change the keys that clients sign with")
    verbs = keys.add_subparsers(dest="verb", required=True, metavar="list|connection-strings|regenerate")
    of_server(add_command(verbs, "list", "show the keys"))
    of_server(add_command(verbs, "connection-strings", "show what clients of each door are configured with"))
    regenerate = of_server(add_command(verbs, "regenerate", "put a new key in the place of one, at once and for good"))
    regenerate.add_argument("key", choices=("primary", "secondary", "primaryReadonly", "secondaryReadonly"))
