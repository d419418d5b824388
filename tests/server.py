"""Where tests find a real server process: `support.process`, and the fixtures `server` and `start_server` of conftest."""

from __future__ import annotations

from support.process import KEY, ServerProcess, run_armillary

__all__ = ["KEY", "ServerProcess", "run_armillary"]
