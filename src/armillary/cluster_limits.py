"""The limits of clusters: the replicated log, connections between nodes, regions, copies of replicas. Part of the table
in `limits.py`, which says what belongs there; read as `limits.NAME`.
"""

from __future__ import annotations

_KB = 1024
_MB = 1024 * 1024
_GB = 1024 * 1024 * 1024

# The replicated log of a cluster (ours).
CLUSTER_LOGS_MAX = 64  # of one cluster: each led log renews a lease twice a second, and has a connection for appends
LOG_ROW_BYTES_MAX = 1 * _MB  # of one row; a larger group is several rows, and one larger value is a row of its own
LOG_RETRY_SECONDS = 0.1  # between attempts at an append whose outcome is unknown
LOG_POLL_SECONDS = 0.25  # how long a follower waits for news before it asks again
LOG_READ_BYTES = 8 * _MB  # that a follower reads at once
LOG_TABLE_ROWS = 8_192  # of one table on PostgreSQL; trimming drops whole tables, of 8 GB at most
LOG_READ_ROWS = 1_000  # that one statement looks at
LOG_TAIL_SECONDS_MIN, LOG_TAIL_SECONDS_MAX = 0.005, 0.05  # between two looks for news; longer while nothing comes
LOG_CONNECT_SECONDS = 3.0  # to connect to one host of PostgreSQL and to check its settings
LOG_CALL_SECONDS = 10.0  # of every call but an append, which ends only when its outcome is known
LOG_PRIMARY_SECONDS = 2.0  # of waiting after which the other hosts are asked whether one was promoted
LOG_KEEPALIVE_SECONDS = 5  # without any packet of the peer until a connection is dead
LOG_TRIM_LOCK_MS = 200  # appends wait for a trim that waits for a backup: it gives up soon and comes again
LOG_IDLE_TRANSACTION_MS = 5_000  # PostgreSQL ends the transaction of a node that stopped in the middle of a take-over
LOG_STUCK_SECONDS = 1.5  # of waiting for its node, after which a session that others wait for is ended by them
LOG_WAIT_SECONDS_MAX = 10.0  # how long a write waits for the log before it is refused with a retry-after
LOG_WATCH_SECONDS = 0.5  # how often that is looked at
LOAD_PORTIONS_MAX = 2  # of bulk copies that wait for the log: one is appended while the next one is gathered
LOAD_SHARE = 0.5  # of the time that bulk copies take of the log while clients write, too
LOAD_PAUSE_SECONDS_MAX = 1.0  # after one portion: an append that waited for a failover says nothing of the load
HAND_OVER_POLL_SECONDS = 0.005
LOG_BYTES_MAX = 64 * _GB  # that the log keeps for a replica that is behind (default of a setting)
LOG_SECONDS_MAX = 72 * 3600.0  # likewise
LOG_LIMITS_CHECK_SECONDS = 30.0
LOG_REPORT_SECONDS = 2.0  # how often a replica syncs its state and tells how far it has come
LOG_WITHDRAW_SECONDS_MAX = 10.0  # that a replica which leaves is closed before it goes on: others report every 2 s
LEASE_SECONDS = 2.0  # how long a leader may answer strong reads after a renewal, counted from before it was sent
LEASE_RENEW_SECONDS = 0.5
NODE_ANNOUNCE_SECONDS = 1.0  # how often a node announces itself in the log and reads the others
SPENDING_TELL_SECONDS = 0.1  # how often a node tells the others of its region what was spent of their budgets
SPENDING_METER_SECONDS = 0.000_02  # for each partition that is looked at, it is told so much later
SPENDING_CALL_SECONDS = 1.0
NODE_SILENT_SECONDS = 10.0  # after which a node counts as gone
FOLLOWER_SILENT_SECONDS = 30.0  # without a word of the cluster, until a follower refuses (default of a setting)
REGION_PATIENCE_SECONDS = 2.0  # that nodes of each further region wait longer before they take over
FULL_DISK_PATIENCE_SECONDS = 4.0  # that a node waits longer whose disk is nearly full: as leader it refuses writes
FULL_DISK_SECONDS = 1.0  # between two looks of a leader whether its disk takes writes
FORWARD_SECONDS_MAX = 15.0  # for the leader to be found and to answer a forwarded request
FORWARD_RETRY_SECONDS = 0.1
ROLE_WAIT_SECONDS_MAX = 10.0  # how long a request waits while the node's role changes
ROLE_GRACE_SECONDS = 0.25  # for answers of connections that end with the role of the node
NODE_STATUS_SECONDS = 1.0  # for a node to say how it is; then its status is given without
HAND_OVER_SECONDS_MAX = 5.0  # for a node that stops to hand over before
OPERATION_SECONDS_MAX = 20.0  # during which a command of the operator is repeated if nodes or the log do not answer
OPERATION_RETRY_SECONDS = 0.2
DIGEST_ATTEMPTS_MAX = 5  # to ask a node for the digest of its state, before it counts as not reached
LEASE_MARGIN_SECONDS = 0.5  # a rival waits this much longer than the lease: clocks of machines run at unequal rates
RIVAL_LOOK_SECONDS_MAX = 1.0  # of the time between two looks at a leader's record that count as watching it
RECENT_ROWS_BYTES_MAX = 32 * _MB  # of rows that a leader keeps in memory for its followers; older ones are in the log
FOLLOWER_WAIT_SECONDS = 0.5  # how long a follower's question waits at the leader for a row; as often it hears its word
FOLLOWER_WAIT_SECONDS_MAX = 1.0  # that a leader lets a question wait
FOLLOWER_CALL_SECONDS = 0.5  # for the way there and back
FOLLOWER_LOG_SECONDS = 1.0  # of reading the log after the leader was not reached, before it is asked again
FOLLOWER_CHECK_SECONDS = 5.0  # how often the log is looked at while rows come from the leader: it may be set back

# Connections between nodes of a cluster (ours).
PEER_HEAD_BYTES_MAX = 1 * _MB  # of the JSON part of one call or answer
PEER_BODY_BYTES_MAX = 48 * _MB  # of its bytes: the largest document of MongoDB as one row of the log, three times over
PEER_CALLS_MAX = 256  # in flight in one direction of a connection; further ones wait
PEER_BODIES_BYTES_MAX = 256 * _MB  # of the calls of one node that are being answered; further ones are refused
PEER_WRITE_BUFFER_BYTES = 1 * _MB  # waiting to be sent, above which further calls and answers wait
PEER_STRANGERS_MAX = 64  # accepted connections that have not proved yet that they know the cluster's key
PEER_GREETING_BYTES_MAX = 4 * _KB  # of one message before that
PEER_GREETING_SECONDS = 3.0  # for TLS, and then for the proof
PEER_CONNECT_SECONDS = 5.0  # for all of that, as the connecting node waits for it
PEER_BEAT_SECONDS = 1.0  # between two signs of life
PEER_BEATS_MISSED_MAX = 4  # then the connection is given up

# Regions and consistency levels.
REGION = "South Central US"  # of a single server: the name that the emulator uses
STALENESS_TRANSACTIONS_MIN, STALENESS_TRANSACTIONS_MAX = 10, 2**31 - 1  # the service's, for an account of one region
STALENESS_SECONDS_MIN, STALENESS_SECONDS_MAX = 5, 86_400  # likewise
STALENESS_TRANSACTIONS, STALENESS_SECONDS = 100_000, 300  # the service's least for several regions
FOLLOWER_REFRESH_SECONDS = 1.0  # how long a read waits for a follower to catch up before it is forwarded (ours)
CLUSTER_RETRY_MS = 500  # after a refusal of a node that knows too little: a quarter of a lease (ours)

# Copies and comparison of replicas (ours).
BOOTSTRAP_PART_BYTES = 1 * _MB  # that one call brings
BOOTSTRAP_PARTS_AHEAD = 4  # calls at a time
BOOTSTRAP_BYTES_PER_SECOND = 100 * _MB  # that a node sends, to all nodes together: it serves requests meanwhile
BOOTSTRAP_TRANSFERS_MAX = 4  # at a time: each holds files that compaction would remove
BOOTSTRAP_SILENCE_SECONDS = 300.0  # of a receiver, after which its checkpoint is dropped
BOOTSTRAP_CALL_SECONDS = 60.0  # a checkpoint flushes everything, a digest reads a whole table
BOOTSTRAP_RETRY_SECONDS = 1.0  # after a broken connection
BOOTSTRAP_ATTEMPTS = 10  # without any progress, until the receiver gives up
STATE_DIGESTS_MAX = 4  # that are kept of the newest marks; as many states are pinned while they are computed
RESET_LOG_EPOCHS = 1_000  # that a new log skips: take-overs that the replica it is made of has not seen

# Messages to partitions that another process holds (ours).
MESSAGE_BYTES_MAX = 64 * _MB  # one slice of a query or one batch is far below
MESSAGE_DEPTH_MAX = 250  # an item may be nested 128 deep, inside lists of an answer; each level takes a frame or two
MESSAGE_VALUES_MAX = 4_000_000  # of one list
MESSAGE_FORMS_MAX = 4_096  # sets of fields that decoders are kept for
VISIT_SECONDS_MAX = 60.0  # until a visit to a partition that another process holds has its answer
FIGURES_SECONDS_MAX = 5.0  # until a process has told its figures; without them the former ones are shown (ours)
REMEMBERED_MAX = 50_000  # answers to writes, each for twice that time
REMEMBERED_BYTES_MAX = 64 * _MB  # of them
PAGE_ENTRIES_MAX = 10_000  # partitions that pages of other processes have entered and not paid for
PAGE_ENTRY_SECONDS = 180.0  # since the last slice was read; then the deposit is given back
SLICES_AHEAD_MAX = 8  # partitions of other processes that one page reads at the same time, before their turn
REMEMBERED_ASKERS_MAX = 1_000  # processes of which it is known how far their writes are forgotten
PROCESSES_MAX = 64  # of one server: a process has hundreds of megabytes of caches (ours)
LOCK_SECONDS_MAX = 60.0  # that a change of the catalog waits for those of other processes
CATALOG_SECONDS_MAX = 600.0  # until the first process has stored a change of the catalog: it waits for the disk
ADOPT_SECONDS_MAX = 30.0  # until a process has taken over a change of the catalog; then it is started anew
MONGO_PROCESS_SECONDS_MAX = 20.0  # that a command waits for another process which is being started (ours)
MONGO_FORWARD_SECONDS_MAX = 86_400.0  # that a command waits for its answer of another process: it has limits of its own
JOIN_SECONDS_MAX = 10.0  # for a process to go on with a first one that was started anew, else it is, too (ours)
RANGES_WAIT_SECONDS = 1.0  # for the lsns of partitions of other processes, in a list of partition key ranges
PROCESS_PING_SECONDS = 1.0  # between two questions whether a process answers
# Without an answer a process is killed. No request holds up a process for more than tenths of a second; a machine that
# swaps or whose disk stalls can, for some seconds (ours).
PROCESS_PINGS_MAX = 20
LINK_QUESTIONS_MAX = 4_096  # under way between two processes; further ones wait
LINK_BYTES_MAX = 64 * _MB  # of them
LINK_WAIT_SECONDS_MAX = 5.0  # then they are refused with a retry-after
MOMENT_SECONDS_MAX = 10.0  # that writers of all processes are held for a backup or a snapshot; it takes milliseconds
CUT_OVER_SECONDS_MAX = 60.0  # that writers of some containers are, where a restore or a migration exchanges partitions
HOLD_ANSWER_SECONDS = 2.0  # for the way there and back, until a process that was to hold has not answered
FLUSH_SECONDS_MAX = 120.0  # of storage, before writers are held for a backup
MOVED_WORK_SECONDS = 5.0  # that a process works on a copy before it says that it goes on; then it is asked again
PINNED_PORTION_BYTES = 256 * _KB  # that one message brings of a store
PINNED_PORTION_ENTRIES = 2_000  # likewise
DECISION_POLL_SECONDS = 0.2  # until a process asks again whether a transaction over several processes is committed
DECISIONS_REFUSED_MAX = 10_000  # transactions that a process remembers not to commit any more
MIGRATION_PAUSE_SECONDS = 2.0  # before a migration begins again whose other process has ended
STILL_SECONDS_MAX = 6 * 3600.0  # that splits and merges of some containers are kept off: a restore copies them

# Placement of several logs on the nodes of a cluster (ours).
PLACEMENT_REPLICAS, PLACEMENT_REPLICAS_MAX = 3, 9  # of a log
PLACEMENT_COPIES, PLACEMENT_COPIES_MAX = 2, 16  # to new replicas at a time, in the whole cluster
PLACEMENT_PAUSE_SECONDS = 5.0  # between two looks of the balancer while it has nothing to do
PLACEMENT_STEP_SECONDS = 0.25  # between two steps
PLACEMENT_GONE_SECONDS = 900.0  # of silence, after which replicas of a node are made elsewhere; a restart is shorter
PLACEMENT_REST_SECONDS = 300.0  # that a log stays where it is after it was moved to even out loads
PLACEMENT_RETRY_SECONDS = 60.0  # after a step that failed, which is left out of plans meanwhile
PLACEMENT_UNEVEN = 0.25  # of the average load of a node: loads that differ by less are left as they are
PLACEMENT_LAG_ROWS_MAX = 10_000  # a replica that is further behind is not chosen to lead if another one is nearer
PLACEMENT_RESERVE_BYTES = 1 * _GB  # a node with less free space gives up replicas; one that gets them keeps twice that
PLACEMENT_LOG_BYTES = 256 * _MB  # smaller logs count as this large: they are evened out by their number
PLACEMENT_LOG_UNITS = 100.0  # request units a second, likewise
PLACEMENT_STEPS_MAX = 500  # of one plan
PLACEMENT_STEPS_KEPT = 100  # of those that were carried out, for the operator to see

# Partitions of a cluster that are spread over several logs (ours).
CATALOG_LEASE_SECONDS = 2.0  # how long a node answers without a word of the node that has the catalog
CATALOG_LEASE_MARGIN_SECONDS = 0.5  # that this one waits longer: clocks of machines run at unequal rates
CATALOG_RENEW_SECONDS = 0.5
LINK_DIAL_SECONDS = 0.25  # between two attempts to connect to a node
LINK_SILENT_SECONDS = 5.0  # after which a connection between two nodes is given up
PLACE_FOUND_SECONDS = 5.0  # that a question waits for the leader of a log to be known and connected
LEADERS_EVEN_SECONDS = 2.0  # between two looks whether another node is to lead a log
LEADERS_EVEN_PATIENCE_SECONDS = 0.5  # that each further node waits longer before it takes over a log
EVEN_LAG_ROWS_MAX = 100  # that a node may be behind which a log is handed over to
CUT_OFF_SECONDS = 6.0  # that a node does not reach most of the others, until it hands its logs over
CUT_OFF_PATIENCE_SECONDS = 10.0  # that such a node waits longer before it takes a log over
