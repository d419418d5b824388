"""Where a server starts: in this process, or with several of which this one is the supervisor, which imports little.
With `python -m`, the program of each of several.
"""

from __future__ import annotations

import sys

from armillary.late import imports_uncollected
from armillary.tools.serving.reload import Reread
from armillary.tools.settings import Settings


def start(settings: Settings, reread: Reread | None = None, *, shows_strings: bool | None = None) -> int:
    """Serve until told to stop. A refusal to start is a Failure. `reread`: finds the settings again, on SIGHUP.
    `shows_strings`: see `start_message.greet`."""
    with imports_uncollected():
        if settings.processes > 1:
            from armillary.tools.serving.processes.supervisor import run
        else:
            from armillary.tools.serving.serve import run
    return run(settings, reread, shows_strings=shows_strings)


if __name__ == "__main__":
    with imports_uncollected():
        from armillary.tools.serving.processes.server_process import main
    sys.exit(main(sys.argv[1:]))
