"""`python -m armillary`: the same program as the `armillary` command."""

from __future__ import annotations

import sys

from armillary.tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
