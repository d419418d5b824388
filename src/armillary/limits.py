"""Every number of the product, with where it comes from. "Service" means Azure Cosmos DB's published limits."""

from __future__ import annotations

KB = 1024
MB = 1024 * KB
GB = 1024 * MB

# Items (service limits).
ITEM_BYTES_MAX = 2 * MB
ITEM_ID_BYTES_MAX = 1023
ITEM_DEPTH_MAX = 128
NAME_CHARACTERS_MAX = 255  # ids of databases, containers, scripts, users, permissions
TTL_SECONDS_MAX = 2_147_483_647
PATCH_OPERATIONS_MAX = 10

# Partition keys (service limits).
KEY_BYTES_MAX = 2048
KEY_BYTES_MAX_V1 = 101
KEY_LEVELS_MAX = 3
LOGICAL_PARTITION_BYTES_MAX = 20 * GB
FIXED_CONTAINER_BYTES_MAX = 10 * GB  # the articles' fixed containers
PARTITION_STORAGE_BYTES = 50 * GB
PARTITION_THROUGHPUT_RU = 10_000  # t of the articles
# The service keeps headroom for manual throughput at creation: 11,000 RU/s make 2 partitions, 30,000 make 5.
INITIAL_PARTITION_SHARE = 0.6

# Throughput (service limits).
THROUGHPUT_MIN_RU = 400
THROUGHPUT_MAX_RU = 1_000_000
THROUGHPUT_STEP_RU = 100
AUTOSCALE_MIN_RU = 1_000
AUTOSCALE_STEP_RU = 1_000
FIXED_CONTAINER_THROUGHPUT_MAX_RU = 10_000
SHARED_DATABASE_CONTAINERS_MAX = 25

# Requests.
BODY_BYTES_MAX = 4 * MB  # one read off the socket; operations have their own, smaller limits
BATCH_BYTES_MAX = 2 * MB
BATCH_OPERATIONS_MAX = 100
PAGE_ITEMS_DEFAULT = 100
PAGE_ITEMS_MAX = 1000
PAGE_BYTES_MAX = 4 * MB
QUERY_TEXT_BYTES_MAX = 512 * KB
CLOCK_SKEW_S = 15 * 60
RESOURCE_TOKEN_SECONDS_DEFAULT = 3600
RESOURCE_TOKEN_SECONDS_MIN = 10
RESOURCE_TOKEN_SECONDS_MAX = 86_400

# Index (ours): a term longer than this is cut; the cut is remembered and the filter looks at the item itself.
TERM_BYTES_MAX = 128
INDEX_PATHS_MAX = 1500
COMPOSITE_PATHS_MIN, COMPOSITE_PATHS_MAX = 2, 8
UNIQUE_KEYS_MAX, UNIQUE_KEY_PATHS_MAX = 10, 16

# Upkeep (ours).
SWEEP_ITEMS_MAX = 200  # expired items looked at in one go
SWEEP_EVERY_S = 1.0
TOMBSTONE_SECONDS = 7 * 86_400  # how long a delete stays visible in a partition's log
RESTATE_ITEMS = 200  # items restated in one transaction when a container's policy changes
