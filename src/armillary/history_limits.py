"""Limits of metering and of the history of load, ours all: how finely charges are counted, for how long and in how much
memory. They are read as `limits.NAME`, like all others, from which they are imported.
"""

from __future__ import annotations

# The memory of charges in a partition's meter.
METERED_SECONDS = 15
METERED_KEYS_MAX = 1_024  # logical partitions counted separately, per partition
METERED_FULL_KEYS_MAX = 256  # full logical partitions that are remembered by name, per partition

# Columns and rows. A page can tell about a thousand rows apart; a partition's share of them costs the meter a search
# among at most 32 bounds for each request.
HISTORY_COLUMN_S = 10  # the finest column
HISTORY_ROWS = 1_024  # of a container, shared by its partitions
HISTORY_PARTITION_ROWS_MAX = 32
# Seconds of a column, and for how long columns of that kind are kept: an incident is looked at closely within hours,
# and weeks are compared by the hour.
HISTORY_LAYERS = ((10, 3_600), (60, 6 * 3_600), (600, 4 * 86_400), (3_600, 28 * 86_400))

# Memory and disk.
HISTORY_MEMORY_BYTES = 32 << 20  # of all containers, unless set otherwise
HISTORY_DISK_BYTES_MAX = 256 << 20
HISTORY_SAVED_EVERY_S = 60  # a crash costs what was counted since
HISTORY_KEYS_NOTED = 1_024  # busiest logical partitions of a container whose counts are noted each minute

# Heat maps.
HEAT_CELLS_MAX = 131_072  # of one answer: half a megabyte
HEAT_ROWS, HEAT_COLUMNS = 256, 360  # unless asked for otherwise
