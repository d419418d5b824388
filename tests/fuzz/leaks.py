"""What no answer may tell of the inside. Modules by their paths: the product's own name may come with a request."""

from __future__ import annotations

import re

LEAK = re.compile(rb'Traceback|File "|rocksdb|armillary/[\w/]+\.py')
