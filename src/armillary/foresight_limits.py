"""Limits of computations that look ahead, ours all: they run in processes of their own, so that a server answers as
before, and a mistake in a question costs minutes at most. They are read as `limits.NAME`, like all others, from which
they are imported.
"""

from __future__ import annotations

JOBS_WAITING_MAX = 8  # one runs at a time
JOBS_KEPT_MAX = 16  # that have ended, with their results
JOB_SECONDS_MAX = 600
JOB_MEMORY_BYTES = 1 << 30
JOB_RESULT_BYTES_MAX = 16 << 20
JOB_UPLOAD_BYTES_MAX = 64 << 20  # of rows that are sent with the question
JOB_TIMELINES_MAX = 8  # of varied runs whose whole course is answered
UPLOADS_MAX = 2  # of files at a time, in memory: those that are being sent, and those that their jobs need
UPLOAD_IDLE_SECONDS = 600.0  # after which an upload that no job needs is forgotten
PLANNED_PARTITIONS_MAX = 16_384  # of a container that is computed ahead: 800 TB
ADVICE_ROWS_MAX = 200_000  # of a container; more of them are sampled
SAMPLE_ITEMS_MAX = 2_000_000  # of a sample that is sent page by page
SAMPLE_PAGE_ITEMS_MAX = 5_000
SAMPLE_PAGE_BYTES_MAX = 16 << 20
ADVICE_PATHS_MAX = 64  # of each option
