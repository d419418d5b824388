"""The limits of the product, each with its origin: "service" means Azure Cosmos DB's published limits, "ours" a choice
whose reason is given. The documented limits of requests and resources, the budgets of work, memory and disk, and
all numbers that two modules share are here. These kinds of numbers stay in the one module that uses them:

- prices in request units: `model/charges.py`;
- details of one algorithm: chunk sizes, strides, units of metered work, estimates of memory, sizes of its caches;
- widths of stored and sent bytes: rids, lsns, message authentication codes, digests;
- what a protocol or language fixes: error codes, lengths of names, ranges of integer types, ticks in a second;
- what one parser or one command accepts of a text: its depth, the number of its parts, how much of it an error shows;
- pauses and timeouts of one connection (`net`), of the sandbox's processes (`scripts`) and of the command line tools,
  and the memory that a process of the sandbox may take (`scripts/confinement.py`, `scripts/cell.py`).
"""

from __future__ import annotations

from armillary.cluster_limits import *  # noqa: F403 - read as limits.NAME like the others
from armillary.foresight_limits import *  # noqa: F403 - read as limits.NAME like the others
from armillary.history_limits import *  # noqa: F403 - read as limits.NAME like the others

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
KEY_BYTES_MAX = 2048  # hash V1 tells keys apart by their first 101 bytes only, yet takes longer ones
KEY_LEVELS_MAX = 3
LOGICAL_PARTITION_BYTES_MAX = 20 * GB
FIXED_CONTAINER_BYTES_MAX = 10 * GB  # of fixed containers, which have no partition key
PARTITION_STORAGE_BYTES = 50 * GB
PARTITION_QUOTA_BYTES = 10 * GB  # reported to clients that ask for a container's quota; the limits above are enforced
PARTITION_THROUGHPUT_RU = 10_000  # t in the rule of partition counts, T/t
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
SERVERLESS_PARTITION_RU = 5_000
METADATA_RU = 240  # a second, of an account
BURST_THROUGHPUT_RU = 3_000  # partitions with less throughput may save unused units and spend them at this rate
BURST_SECONDS_MAX = 300
MINUTE_POOL_FACTOR = 10  # historical: 1,000 request units per minute for every 100 a second
MINUTE_POOL_PARTITION_RU_MAX = 5_000
THROUGHPUT_BUCKETS = 5

# Requests.
BODY_BYTES_MAX = 4 * MB  # of one request; operations have their own, smaller limits
BATCH_BYTES_MAX = 2 * MB
BATCH_OPERATIONS_MAX = 100
BULK_PROCEDURE_OPERATIONS_MAX = 500  # of a call of `__.sys.commonBulkInsert`: clients send what was not done again
TRANSACTION_CHANGES_MAX = 1 << 16  # ours: the log numbers the changes of one transaction in two bytes (layout.py)
PAGE_ITEMS_DEFAULT = 100
PAGE_ITEMS_MAX = 1000
PAGE_BYTES_MAX = 4 * MB
PAGE_SECONDS_MAX = 5.0  # service: a query page ends then, with a continuation
SLICE_SECONDS = 0.01  # ours: how long one scan holds the event loop
SAMPLED_KEYS_MAX = 10_000  # ours: partition keys counted for the statistics of a partition
QUERY_TEXT_BYTES_MAX = 512 * KB
CLOCK_SKEW_S = 15 * 60
ACCOUNT_KEY_BYTES_MIN = 16  # decoded (ours; the service makes keys of 64)
SECRET_FILE_BYTES_MAX = 64 * KB  # of a file that holds one key or URL; more is another file, named by mistake
ROUTES_REMEMBERED_MAX = 4096  # cached feed paths (ours: bounds memory at 4096 x 1 KB)
ROUTE_REMEMBERED_BYTES_MAX = KB
READ_CACHE_BYTES_MAX = 32 * MB  # values of point reads that are kept in memory (ours)
READ_CACHE_VALUE_BYTES_MAX = 64 * KB  # of one of them; larger ones are read from storage
READ_CACHE_BATCH_MAX = 16  # items that are read together and kept; more are only looked for
EPKS_REMEMBERED_MAX = 8192  # effective keys by header, and by text, of each container (ours: about 2 MB each)
EPK_REMEMBERED_BYTES_MAX = 128  # of a header, or characters of a text; longer ones are hashed again
ACTIVITY_ID_BYTES_MAX = 64  # of the client's, which is echoed (ours; a GUID has 36)
RESOURCE_TOKEN_SECONDS_DEFAULT = 3600
RESOURCE_TOKEN_SECONDS_MIN = 10
RESOURCE_TOKEN_SECONDS_MAX = 86_400

# The MongoDB wire (the protocol's own limits unless said otherwise).
MANY_OPERATIONS_MAX = 64  # ours: writes of one command in one transaction, some 2 ms
MANY_BYTES_MAX = MB
MONGO_PARTIAL_BYTES_MIN = 2 * KB  # ours: smaller documents are always decoded whole
MANY_AHEAD_MAX = 256  # ours: operations of one command under way at a time: delays other requests by some 10 ms
MONGO_MESSAGE_BYTES_MAX = 48_000_000
MONGO_DOCUMENT_BYTES_MAX = 16 * MB
MONGO_REPLY_BYTES_MAX = 16 * MB  # documents of one batch
MONGO_BATCH_OPERATIONS_MAX = 100_000
MONGO_STATEMENT_NUMBER_MAX = (1 << 31) - 1  # stmtId is an int32
MONGO_FIRST_BATCH = 101
MONGO_STRANGER_BYTES_MAX = 64 * KB  # ours: of a message before authentication; handshakes have some hundreds
MONGO_METADATA_BYTES_MAX = 512  # of client metadata in the first hello
MONGO_CHECKED_BYTES_MAX = 256 * KB  # ours: checksums of longer messages are not verified, which would take some 20 ms
MONGO_SESSION_SECONDS = 30 * 60
MONGO_SESSIONS_MAX = 1_000_000
MONGO_CURSOR_SECONDS = 10 * 60
MONGO_CURSORS_MAX = 10_000  # ours
MONGO_AWAIT_SECONDS = 1.0  # how long an awaitData getMore waits by default
MONGO_HELLO_SECONDS_MAX = 60.0  # ours: how long an awaitable hello is held at most
MONGO_CAUSAL_SECONDS_MAX = 10.0  # ours: how long a read without maxTimeMS waits for afterClusterTime
MONGO_CLOCK_DRIFT_SECONDS = 365 * 86_400  # later cluster times of clients are ignored
MONGO_TRANSACTION_SECONDS = 60.0
MONGO_SNAPSHOT_SECONDS = 300  # how long a snapshot can be read
MONGO_SNAPSHOTS_MAX = 32  # ours: snapshots held at a time
MONGO_FAIL_POINTS_MAX = 100
MONGO_EVENTS_MAX = 10_000  # ours: events kept per partition for change streams to resume from
MONGO_EVENTS_BYTES_MAX = 64 * MB
MONGO_EVENT_SECONDS = 86_400
MONGO_EVENTS_LOOK = 1_000  # events written between two checks of their number
MONGO_STREAM_POLL_SECONDS = 0.02  # how soon a waiting change stream sees a change
MONGO_SCRAM_256_ITERATIONS = 15_000
MONGO_SCRAM_1_ITERATIONS = 10_000
MONGO_USERS_MAX = 1_000  # users of databases: all are stored as one value
MONGO_USER_ROLES_MAX = 100  # ours, for the same reason; roles on all databases need one

# Tables (service limits; 1 KB keys and 255 characters of a name are Azure Storage's too).
TABLE_NAME_CHARACTERS_MAX = 254
TABLE_PARTITION_KEY_BYTES_MAX = KB
TABLE_ROW_KEY_BYTES_MAX = 255
TABLE_PROPERTY_CHARACTERS_MAX = 255
TABLE_PAGE_ITEMS = 1000
TABLE_POLICIES_MAX = 5  # stored access policies of a table
TABLE_POLICY_ID_CHARACTERS_MAX = 64
TABLE_CORS_RULES_MAX = 5
TABLE_RETENTION_DAYS_MAX = 365
TABLE_RENDERED_BYTES_MAX = 16 * MB  # ours: cache of rendered entities
# Of the storage flavour alone.
STORAGE_TABLE_NAME_MIN, STORAGE_TABLE_NAME_MAX = 3, 63
STORAGE_KEY_BYTES_MAX = KB  # as UTF-16, of each key
STORAGE_PROPERTIES_MAX = 252
STORAGE_VALUE_BYTES_MAX = 64 * KB
STORAGE_ENTITY_BYTES_MAX = MB

# Index (ours): longer terms are cut; the cut is marked and the filter checks the item itself.
TERM_BYTES_MAX = 128
INDEXES_MAX = 500  # of a collection (service)
INDEX_FIELDS_MAX = 32
FIELD_KEY_BYTES_MAX = 512  # the same for keys in the indexes of collections, all fields together
INDEX_PATHS_MAX = 1500
COMPOSITE_PATHS_MIN, COMPOSITE_PATHS_MAX = 2, 8
UNIQUE_KEYS_MAX, UNIQUE_KEY_PATHS_MAX = 10, 16

# The control door (ours).
CONTROL_BODY_BYTES_MAX = 256 * KB
MANAGEMENT_BODY_BYTES_MAX = 1024 * KB  # of the management API: the longest indexing policy fits
CLOCK_ADVANCE_S_MAX = 10 * 366 * 86_400  # of a movable clock, in one step
CLOCK_NOW_S_MAX = 4_102_444_800  # the year 2100: item timestamps and tombstones have 32 bits
OVERVIEW_SECONDS = 10  # how far back the charges of a partition are shown
OVERVIEW_TOP_DEFAULT, OVERVIEW_TOP_MAX = 10, 1000  # logical partitions listed with the highest charges
EVENTS_MAX = 1_000  # of an account, that are kept for those who look
EVENTS_DEFAULT = 200  # listed by one request
EVENT_AGAIN_SECONDS = 1.0  # between two events about one fault rule
EVENT_FULL_SECONDS = 60.0  # the same about a full key or a full disk
# Captures of requests (ours): what one may hold, so that it can be left running and forgotten.
CAPTURES_MAX = 8  # of an account
CAPTURE_REQUESTS_MAX = 1_000_000
CAPTURE_BYTES_MAX = 256 * 1024 * KB  # of its file
CAPTURE_SECONDS_DEFAULT, CAPTURE_SECONDS_MAX = 3_600, 86_400
CAPTURE_LEAVES_MAX, CAPTURE_LEAF_DEPTH_MAX = 64, 5  # scalar paths of an item whose digests are kept
CAPTURE_MEMBERS_MAX = 4_096  # members of an item that are looked at for them
CAPTURE_VALUES_MAX = 64  # of a list in a filter; more are counted
CAPTURE_VALUE_BYTES_MAX = 128  # of a value that is kept readable
CAPTURE_WAITING_BYTES_MAX = 8 * 1024 * KB  # lines that the disk has not taken yet; more requests are not recorded
CAPTURE_FLUSH_SECONDS = 1.0
CAPTURE_FLUSH_BYTES = 256 * KB  # lines that are compressed together
CAPTURE_PART_BYTES = 1024 * KB  # of its file, sent in one answer
WATCH_SECONDS = 1.0  # between two comparisons of the figures of a container
WATCH_WAIT_MS_MAX = 5_000
WATCH_WAITING_MAX = 64  # requests that wait for a change
WATCH_PARTITIONS_MAX = 10_000  # of one answer
WATCH_COMPRESSED_BYTES_MIN = 64 * KB  # of an answer; shorter ones are sent as they are
WATCH_GONE_MAX = 1_000  # partitions that were split or merged away, remembered for each container
WATCH_FORGOTTEN_SECONDS = 60.0  # without a question, after which the figures of a container are dropped
CHANGES_POLL_SECONDS = 0.05  # between two looks for new changes while a request waits for them
OVERVIEW_KEYS_MAX = 1_000_000  # logical partitions examined for that: some seconds

# Faults on request, for tests of applications (ours).
FAULT_RULES_MAX = 100
FAULT_DELAY_MS_MAX = 60_000

# Upkeep (ours).
UPKEEP_SECONDS = 0.003  # time slice of background work, and of one transaction of it
UPKEEP_BYTES = 256 * KB  # of the items or entries of one slice
SAMPLE_BYTES_MAX = 32 * MB  # of items in a sample; a bound in time would make it depend on how busy the machine is
UPKEEP_AT_ONCE = 8  # its transactions under way, made durable by one sync; a writer waits for no more than these
SWEEP_ITEMS_MAX = 1_000  # expired items or log entries examined in one pass
SWEEP_SMALL_BYTES = 4 * KB  # smaller expired items are deleted without counting their terms: 0.1 ms
SWEEP_PORTION_ITEMS = 16  # expired items read before the first of them is deleted; read again if the slice ends before
SWEEP_PORTION_BYTES = 64 * KB  # likewise; at least one is read
SWEEP_EVERY_S = 1.0
TOMBSTONE_SECONDS = 7 * 86_400  # how long a tombstone stays in a partition's log
FORGET_VERSIONS_MAX = 1_000  # version entries past their retention, dropped in one transaction
CHANGES_BY_KEY_ITEMS = 1_000  # a change feed of fewer items reads all of them rather than the log
EMPTY_PAGE_SECONDS_MAX = 30.0  # how long a change feed keeps searching without a result; clients wait 65 s
CHANGE_STRETCHES_MAX = 200  # partitions in one change feed position: it must fit a header
LOG_TIMES_EVERY = 1_000  # lsns between two noted times of a log
LOG_TIMES_MAX = 4_096
RESTATE_ITEMS = 200  # items restated in one transaction when a container's policy changes
COVERED_PATHS_MAX = 256  # paths in the path coverage of a partition

# Queries (ours unless said otherwise).
QUERY_LONG_BODY_BYTES = 2 * KB  # of requests; longer queries are parsed in slices
QUERY_TOKENS_MAX = 30_000  # words and symbols: a list of 15,000 constants; bounds the time of parsing
QUERY_DEPTH_MAX = 128  # nested expressions; keeps the parser far from the interpreter's own limit
QUERY_NESTING_MAX = 32  # subqueries in one another; Python compiles some fifty
QUERY_OPERATORS_MAX = 3_000  # as written, without constants and equalities of paths with constants
QUERY_SOURCE_CHARACTERS_MAX = 200 * KB  # of the generated Python: compiling cannot give way, and takes some 80 ms
QUERY_EMITTED_MAX = 20_000  # as compiled, with computed properties inlined
QUERY_PARAMETER_DEPTH_MAX = 128  # as deep as an item may be
QUERY_CACHE_ENTRIES = 500
QUERY_CACHE_CHARACTERS = 2 * MB  # a compiled query takes some twenty times its text
QUERY_VARIANTS_MAX = 8  # compiled forms of one text, by the types of its parameters
QUERY_JOINS_MAX = 10  # service
QUERY_COUNT_MAX = 2**31 - 1  # TOP, OFFSET, LIMIT (service)
# Matches of IN, OR and range filters are collected and sorted up to this number; beyond it a scan is faster.
QUERY_GATHER_MAX = 10_000
# Memory of one query in one partition; more is refused with a message that says so.
QUERY_GROUPS_MAX = 100_000
QUERY_MERGED_AGGREGATES_MAX = 21  # in a query whose partial results the client merges (service)
QUERY_DISTINCT_MAX = 100_000
QUERY_COLLECTED_MAX = 100_000  # values of one MAKELIST or MAKESET
QUERY_SORTED_MAX = 100_000  # items, by key and rid, if no index gives their order
QUERY_RANKED_SPARE_ITEMS = 1_000  # beyond twice the limit of a ranked query before the worst are dropped
QUERY_HELD_BYTES_MAX = 64 * MB  # of keys, values or rows held
QUERY_TUPLES_MAX = 500_000_000  # that JOIN and subqueries make of one item: more than QUERY_SECONDS_MAX is enough for
QUERY_TUPLES_PAUSE = 5_000  # tuples between two looks at the clock
QUERY_ORDER_BYTES_MAX = 1 * KB  # of each ORDER BY key; strings that agree so far are in the order of their items
QUERY_ROW_BYTES_MAX = 32 * MB  # of one row; answering holds it twice
QUERY_STATE_BYTES_MAX = 6 * KB  # of half-made aggregates that a continuation may carry
QUERY_SECONDS_MAX = 60.0  # of a query that must be answered in one page
QUERY_USER_FUNCTIONS_MAX = 10  # calls of user-defined functions in one text (service)
QUERY_PROBE_ENTRIES = 256  # how far each candidate index scan is read to choose among them
QUERY_FEW_ITEMS = 1_000  # sorted in memory rather than read from an index in order
CONTINUATION_BYTES_MAX = 16 * KB
REPLICATED_CHARACTERS_MAX = 10_000  # of REPLICATE (service)
DATE_FORMAT_CHARACTERS_MAX = 1_000
# Regular expressions. A step as counted beforehand took up to 4 ns in `re` (nine patterns), and a step in making the
# automaton's states some 1 to 3 µs.
PATTERN_CHARACTERS_MAX = 10_000
PATTERN_DEPTH_MAX = 64
PATTERN_SIZE_MAX = 5_000  # with repetitions written out
PATTERN_STEPS_CHEAP = 100_000  # up to here Python's `re` is used, which may backtrack
PATTERN_STEPS_MAX = 1_000_000  # in `re`, for patterns that need it
PATTERN_STEPS_FOUND_MAX = 25_000_000  # where the match itself is needed, which only `re` can give
PATTERN_MOVES_MAX = 200_000  # steps in making the automaton's states for one text
PATTERN_MEMORY_MAX = 20_000  # transitions that one automaton caches
PATTERNS_KEPT = 128
# Full-text search: caches of texts and words.
TEXTS_KEPT = 64
TEXT_KEPT_CHARACTERS_MAX = 20_000
STEMS_KEPT = 20_000
STEMMED_CHARACTERS_MAX = 64  # longer words are their own stems
FUZZY_CHARACTERS_MAX = 64
# Shapes of spatial functions.
POLYGON_POINTS_MAX = 4_096  # service
PLANE_COORDINATE_MAX = 1e15
SHAPE_PAIRS_MAX = 500_000  # of edges, or corners and edges, of two shapes: some 0.2 s
SHAPE_STEPS_MAX = 100_000  # points held against edges to see where they lie: some 0.2 s
SHAPES_KEPT = 4
# Spatial indexes: how finely a shape, or a query's region, is covered.
SHAPE_CELLS_MAX = 8
SHAPE_BOXES_MAX = 16  # of a line or a multipolygon, each covered by some cells
REGION_CELLS_MAX = 32

# Connections (ours). A partition key of 2 KB, escaped, and a long session token fit a head of 32 KB; a database name, a
# container name and an item id of the greatest length, each byte percent-encoded, fit a target of 16 KB.
HEAD_BYTES_MAX = 32 * KB
HEAD_LINES_MAX = 128
TARGET_BYTES_MAX = 16 * KB
READ_PIECE_BYTES = 16 * KB  # parsed at a time, so that a pipelined flood cannot queue more than this
HEAD_SECONDS_MAX = 10.0  # from the first byte of a request to the end of its head
BODY_SECONDS_GRACE = 10.0
BODY_BYTES_PER_S_MIN = 1 * KB
WRITE_STALL_SECONDS_MAX = 30.0
IDLE_SECONDS_MAX = 120.0
LINGER_BYTES_MAX = 16 * MB
LINGER_SECONDS = 2.0  # how long a refused client may keep sending, so that it reads the refusal and not a reset
CONNECTIONS_MAX = 4096  # over all doors
# Strangers: connections without authentication. Monitors of MongoDB's drivers never authenticate, two for each client.
# An address may have half of all connections as strangers.
STRANGER_SILENT_SECONDS = 1.0  # a stranger that has sent nothing for so long is closed first
STRANGER_BYTES_MAX = 64 * KB  # of a request's body or a message before authentication
STRANGER_CHUNKS_MAX = 256  # chunks of such a body
UNFINISHED_BYTES_MAX = 16 * MB  # of all incomplete requests of strangers; the oldest connection is closed
STRANGER_IDLE_SECONDS = 30.0  # of an HTTP connection, between two requests
# File descriptors. Storage keeps all its tables open where there are plenty; otherwise a quarter of what there is.
DESCRIPTORS_WANTED = 65_536  # more are useless with so many connections
DESCRIPTORS_PLENTY = 16_384
DESCRIPTORS_RESERVED = 128  # logs, manifests, directories, pipes of scripts, tables being written, listening sockets
TABLE_FILES_MIN = 64
CONNECTIONS_MIN = 16
# Failed sign-ins of one address (ours): some clients try an old key for a while, and pools try it at once.
SIGN_IN_FAILURES_FREE = 50  # answered at once; the allowance refills at the rate below
SIGN_IN_FAILURES_PER_S = 20.0
SIGN_IN_WAIT_SECONDS_MAX = 2.0  # that an answer is delayed; further failures get none, and their connections are closed
SIGN_IN_ADDRESSES_MAX = 4096  # addresses remembered

# Log-ins of the portal (ours).
LOG_INS_MAX = 64  # the oldest ends when one more begins
LOG_IN_IDLE_SECONDS = 8 * 3600.0
LOG_IN_SECONDS_MAX = 24 * 3600.0
LOG_IN_TICKETS_MAX = 64  # not used yet; the oldest ends
LOG_IN_TICKET_SECONDS = 60.0
LOG_IN_FAILURES_MAX = 10  # wrong keys of one address in the time below; then it has to wait for the rest of it
LOG_IN_FAILURES_SECONDS = 60.0
PORTAL_FILES_HELD_BYTES_MAX = 3 * MB  # of its files in memory, plain and compressed
PORTAL_GREMLIN_BYTES_MAX = 16 * MB  # of the results of one script
# The security log (ours). One line a minute for each address that is refused, so that a flood is seen and stays cheap;
# one line an hour for each address that is let in.
SECURITY_LOG_REFUSED_S = 60.0
SECURITY_LOG_REFUSED_ADDRESSES = 100  # counted separately in a minute; the others are counted together
SECURITY_LOG_GRANTED_S = 3600.0
SECURITY_LOG_GRANTED_ADDRESSES = 1_000  # with their kinds of credentials; then the list is cleared
CERTIFICATE_DAYS = 825  # the longest that Apple's clients accept

# Storage (ours).
# Inserting slows down as the buffer grows (medians of 4 noisy, overlapping runs of raw batches: 16 MB 38,000 items/s,
# 32 MB 32,000, 64 MB 28,000); a smaller one makes more tables to compact, which those runs were too short to show.
WRITE_BUFFER_BYTES = 32 * MB
WRITE_LOG_BYTES_MAX = 128 * MB  # bounds what an opening after a crash has to replay
BLOCK_CACHE_BYTES = 96 * MB
GROUP_BYTES_MAX = 8 * MB  # of one group commit; one transaction may be larger
GROUP_WRITES_MAX = 10_000  # keys of one transaction in a group; a larger one is a group of its own
WRITE_AT_ONCE_KEYS = 20_000  # keys of one RocksDB write, about 10 ms; more are written in portions
WRITE_PORTION_KEYS = 5_000
GROUP_SECONDS_MAX = 0.003  # how long transaction functions run before the event loop gets its turn
RELAXED_SYNC_SECONDS = 0.1
# How soon a busy loop must give way to the syncing thread. A write beside a reader that never pauses: median 3.0 ms,
# with the interpreter's default of 5 ms 4.3 (8 runs each, overlapping); going lower showed no further gain.
THREAD_SWITCH_SECONDS = 0.0002
STALL_RETRY_SECONDS = 0.002
REOPEN_SECONDS_MIN, REOPEN_SECONDS_MAX = 0.05, 5.0  # between attempts to reopen storage after a failure
# Space kept free on the disk, so that accepted writes can be flushed and compacted: a share, within bounds.
FREE_DISK_BYTES_MIN, FREE_DISK_BYTES_MAX, FREE_DISK_SHARE = 64 * MB, 512 * MB, 0.02
FREE_DISK_CHECK_SECONDS = 0.2
FREE_DISK_WARNING_FACTOR = 2  # ours: below this many times the reserve the log and `ready` warn
FREE_DISK_WARNING_SECONDS = 600.0  # between two warnings in the log
LOOP_LAG_SECONDS = 0.5  # between two looks at how late the event loop is
COMPOSITE_PATHS_TOTAL_MAX = 100
INDEX_PATH_CHARACTERS_MAX = 2048  # ours: deeper or longer paths of items are not indexed; queries look at the items
INDEX_MEMO_BYTES_MAX = 4 * MB  # ours: cache of resolved paths of a policy

# Container policies (service limits).
VECTOR_DIMENSIONS_MAX = 4096
VECTOR_DIMENSIONS_FLAT_MAX = 505
VECTOR_QUANTIZATION_BYTES_MAX = 512
VECTOR_SEARCH_LIST_MIN, VECTOR_SEARCH_LIST_MAX = 25, 500
VECTOR_SHARD_PATHS_MAX = 1
COMPUTED_PROPERTIES_MAX = 20
CHANGE_FEED_RETENTION_MINUTES_MAX = 30 * 24 * 60
MOVED_FILTERS_MAX = 100  # ours: items that were moved out of a container; each write there is compared with all filters
MOVED_FILTER_CHARACTERS_MAX = 4_096
MIGRATION_VERSION_MINUTES = 7 * 24 * 60  # how long a container keeps versions while it is migrated

# Splits and merges (ours unless said otherwise).
LOAD_TABLE_BYTES = 8 * MB  # of one table file of a copy: finishing one holds the loop for some 5 ms
COPY_PORTION_ENTRIES = 256
COPY_SLICE_SECONDS = 0.004  # how long a copy holds the event loop
CATCH_UP_ENTRIES = 20  # changes applied in one transaction: some 3 ms
CATCH_UP_ENTRIES_MAX = 120  # in one step, which other writes wait for
CUT_OVER_ENTRIES = 100  # missing changes at which writers are held for the cut-over
CATCH_UP_BYTES_MAX = 4 * MB
BALANCED_SHARE_MAX = 0.6  # of the bytes, in one child
CATCH_UP_ROUNDS = 5  # after which writers are held briefly if the backlog hardly shrinks
BRAKE_ENTRIES = 100  # applied in such a hold, at least: some 15 ms
BRAKE_SECONDS_MAX = 0.25
BRAKE_OPEN_SECONDS = 0.03  # at least, between two such holds
RESHAPE_RETRY_SECONDS = 1.0  # after a failure such as a full disk
RESHAPE_POLL_SECONDS = 0.05
PLACE_RETRY_SECONDS = 0.01  # between two questions for a partition whose place is changing its holder
PLACE_WAIT_SECONDS = 5.0  # after so long such requests are refused: clients try again
UNDECIDED_SECONDS_MAX = 5.0  # how long a client waits for a disk that failed during a change of the catalog
RETIRED_SECONDS = 30.0  # how long parents' stores are kept after a cut-over
RETIRED_SECONDS_MAX = 900.0  # longer, while cursors read them
SNAPSHOTS_MAX = 64  # held in memory: each keeps deleted data from being freed on disk
SNAPSHOT_PART_BYTES = 256 * KB  # of a file, before it is compressed
SNAPSHOT_PART_ENTRIES = 2_000  # likewise: making a part holds the loop for some 10 ms
SNAPSHOT_ANSWER_BYTES = 256 * KB  # parts are sent together up to this size
SNAPSHOT_FRAME_BYTES_MAX = 32 * MB  # of one frame of a snapshot file, also unpacked: a file cannot exhaust the memory
SNAPSHOT_RANGES_MAX = 10_000  # of one container in a snapshot file; more is taken for damage
RESTORES_MAX = 4  # of files, at a time
RESTORE_IDLE_SECONDS = 600.0  # after which an unfinished restore is abandoned
REWIND_ENTRIES_MAX = 1_000  # changes undone in one transaction when a snapshot is restored; beyond, it is copied
PAST_RANGES_MAX = 256  # ranges that were split or merged away and are still known
# Of one partition, in memory: items with ever new property names must not fill it. Numbers of other paths are read from
# the store each time.
PATHS_REMEMBERED_MAX = 10_000
ITEM_SHAPES_REMEMBERED_MAX = 64  # lists of an item's index paths, of each partition: 400 KB if all are longest
ITEM_SHAPE_PATHS_MAX = 100  # of one of them; longer ones are looked up path by path
TINY_PARTITION_BYTES = MB  # a smaller partition is divided at the middle of its hash range
OUTGROWN_SHARE = 20  # a partition that could not be divided is examined again after growing by a twentieth
MERGE_PARTITION_RU_MAX = 3_000  # service: partitions with less throughput may be merged
MERGE_STORAGE_SHARE_MAX = 0.4  # service: 20 of 50 GB
HOLD_SECONDS_MAX = 30.0  # how long a writer waits for a cut-over, which takes milliseconds unless a test stops it

# The meter of work (ours; armillary/work.py). A unit is about 100 ns of evaluating.
WORK_SLICE_UNITS = 20_000  # between two turns of the event loop: about 2 ms
PATCH_CONDITION_UNITS_MAX = 20_000  # in the transaction that writes; longer conditions are evaluated before it
WORK_PORTION = 500  # elements of a long list between two counts
WORK_AT_ONCE_BYTES = 4 * KB  # of smaller items the terms are made without counting, in about 0.3 ms
WORK_AT_ONCE_BSON_BYTES = 96 * KB  # of a document: a larger one is decoded in portions of half of that, 1 ms each
WORK_AT_ONCE_BSON_ELEMENTS = 4_000  # of a document that is encoded at once, in about 0.5 ms
WORK_UNIT_BYTES = 256  # of values made or compared as a whole, for one unit
WORK_BYTES_MAX = 128 * MB  # of values that one evaluation holds
WORK_ATOMIC_UNITS = 200_000  # inside a transaction, which cannot give way: about 20 ms
WORK_REQUEST_UNITS_MAX = 600_000_000  # that a request evaluates between two pages: about 60 s
WORK_IDLE_RUNS_MAX = 64  # greenlets kept for the next evaluations of a thread, some 20 KB each

# MongoDB aggregation (its limits; beyond the first MongoDB may use disk, Armillary cannot).
MONGO_STAGE_BYTES_MAX = 100 * MB  # that a sort, a group or another blocking stage holds
MONGO_STAGES_MAX = 1_000
MONGO_PIPELINE_DEPTH_MAX = 20  # pipelines inside pipelines
MONGO_RANGE_MAX = 1_000_000  # ours: numbers that $range makes
MONGO_VALUE_BYTES_MAX = 64 * MB  # ours: of a value between two expressions
MONGO_BATCH_DOCUMENTS = 500  # ours: handed from one stage to the next
MONGO_KEYED_VALUES_MAX = 200_000  # ours: of an $in served by an index; for more, documents are scanned
MONGO_DENSIFIED_MAX = 500_000  # that $densify makes
MONGO_VECTOR_DIMENSIONS_MAX = 2_000  # of a cosmosSearch index; those that the service compresses may have more
MONGO_VECTOR_DIMENSIONS_HALF_MAX = 4_000
MONGO_VECTOR_DIMENSIONS_PQ_MAX = 16_000

# Scripts (ours unless said otherwise).
SCRIPT_SECONDS_MAX = 5.0  # service: of one run, including waits
SCRIPT_ENGINE_SECONDS_MAX = 4.5  # of computing, before the engine stops it
SCRIPT_ACCEPTED_SECONDS = 4.0  # afterwards operations are refused, so that the script can report its progress
SCRIPT_FUNCTION_SECONDS_MAX = 0.5  # of computing in one function call: other queries with functions wait meanwhile
SCRIPT_MEMORY_BYTES_MAX = 128 * MB
SCRIPT_CELLS_MAX = 4  # scripts running at the same time; the others wait
SCRIPT_LONG_CELLS_MAX = 4  # besides them, long-running scripts
SCRIPT_FUNCTION_CELLS_MAX = 4  # processes for functions of queries: one for each database that calls some
SCRIPT_LONG_SECONDS = 0.5
SCRIPT_WAIT_SECONDS_MAX = 15.0  # waiting for a cell
SCRIPT_START_SECONDS_MAX = 10.0
SCRIPT_MESSAGE_BYTES_MAX = 32 * MB  # between the server and a cell, at once
SCRIPT_OPERATIONS_MAX = 10_000  # of one run; afterwards none is accepted
SCRIPT_UNITS_MAX_RU = 50_000.0  # of one run, likewise: what the largest partition has in five seconds
SCRIPT_BATCH = 100  # operations sent at once
SCRIPT_BATCH_CHARACTERS = 8 * MB  # of them
SCRIPT_ANSWER_BYTES = 8 * MB  # of answers sent at once; the rest follow
SCRIPT_RESPONSE_BYTES_MAX = 4 * MB
SCRIPT_LOG_CHARACTERS_MAX = 4_000
SCRIPT_LOG_HEADER_BYTES_MAX = 8_000  # longer ones are refused by clients' parsers
SCRIPT_ATTEMPTS_MAX = 10  # to run a script when other writes change its logical partition meanwhile
SCRIPT_ATTEMPTS_SECONDS_MAX = 10.0  # afterwards it is not started again
SCRIPT_CHANGES_MAX = 10_000  # other changes in the partition that are examined for conflicts

# Gremlin (ours unless said otherwise).
GREMLIN_SCRIPT_BYTES_MAX = 64 * KB  # service
GREMLIN_WORDS_MAX = 20_000
GREMLIN_STATEMENTS_MAX = 100
GREMLIN_STEPS_MAX = 2_000  # service: 400 operators
GREMLIN_DEPTH_MAX = 40  # traversals and lists in one another; each takes some frames of the interpreter
GREMLIN_DIGITS_MAX = 1_000  # of a number in a text
GREMLIN_RANGE_MAX = 10_000  # values of 1..n
GREMLIN_MESSAGE_DEPTH_MAX = 100  # of GraphSON and GraphBinary values
GREMLIN_BATCH = 256  # traversers passed from step to step together
GREMLIN_MERGE = 100_000  # traversers that a step may buffer to merge equal ones
GREMLIN_EDGES_BATCH = 2_500  # vertices whose edges are read at once
GREMLIN_HELD_MAX = 1_000_000  # traversers or values that barriers, side effects and repeat() may hold at a time
GREMLIN_VALUE_DEPTH_MAX = 32  # of lists and maps inside a property's value; ours
GREMLIN_TEXT_CHARACTERS_MAX = 1_000_000  # of a text that concat(), replace() and the rest make
GREMLIN_LIST_MAX = 1_000_000  # of a list that combine(), product() and the rest make
GREMLIN_NUMBER_BITS_MAX = 4_096  # of whole numbers in arithmetic
GREMLIN_MATCH_BINDINGS_MAX = 200_000
GREMLIN_SECONDS_DEFAULT = 30.0  # service: of a request without a timeout of its own
GREMLIN_SECONDS_MAX = 600.0  # of one with it
GREMLIN_MESSAGE_BYTES_MAX = 10 * MB  # drivers' own default
GREMLIN_MESSAGE_MEMORY_BYTES_MAX = 128 * MB  # of the values of one message: three million numbers
GREMLIN_VERTEX_AT_ONCE_BYTES = 16 * KB  # longer vertices give way while they are answered: some 0.5 ms
GREMLIN_READ_AT_ONCE_BYTES = 32 * KB  # longer messages are parsed in a thread: some 5 ms
GREMLIN_RESULTS_AT_ONCE = 64  # results per partial response (TinkerPop's default)
GREMLIN_RESULTS_AT_ONCE_MAX = 10_000
GREMLIN_REQUESTS_AT_ONCE = 32  # of one connection; the others wait
GREMLIN_PENDING_MAX = 64  # requests of a connection that wait for its authentication
GREMLIN_PENDING_BYTES_MAX = 256 * KB  # of them
GREMLIN_STRANGER_BYTES_MAX = 64 * KB  # of a message before authentication
GREMLIN_STRANGER_MEMORY_BYTES_MAX = 16 * KB  # of the values in it, besides texts: credentials are two or three
GREMLIN_STRANGER_FRAMES_MAX = 256  # before authentication: some 5 microseconds each
GREMLIN_STRANGER_PIECE_BYTES = KB  # of a stranger's bytes, read before its frames are counted
GREMLIN_IDLE_SECONDS = 3_600.0  # service
