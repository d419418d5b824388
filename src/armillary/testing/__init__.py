"""Servers for the tests of applications: in the test's own process (`Server`), in a process of its own
(`ServerProcess`), in a container (`containers.py`) and as fixtures of pytest (`plugin.py`). docs/testing.md shows them.

pytest imports this package in every project that has Armillary installed, so names are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.testing.controls import Controls
    from armillary.testing.fault_rules import FaultRule
    from armillary.testing.in_process import Server
    from armillary.testing.server_process import ServerProcess

__all__ = ["Controls", "FaultRule", "Server", "ServerProcess"]

_MODULES = {
    "Controls": "controls",
    "FaultRule": "fault_rules",
    "Server": "in_process",
    "ServerProcess": "server_process",
}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
