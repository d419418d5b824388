"""Released clients of SQL on a server with three processes: those tests of a single server that go over several of
them. `make soak` runs all tests of the protocols so, as the option `--processes 3` does.
"""

from __future__ import annotations

from sdk.test_batch import test_every_operation as test_every_operation
from sdk.test_batch import test_one_failure_undoes_all as test_one_failure_undoes_all
from sdk.test_changes import kept as kept
from sdk.test_changes import many as many
from sdk.test_changes import test_all_versions_of_a_key_and_a_range as test_all_versions_of_a_key_and_a_range
from sdk.test_changes import test_of_feed_ranges as test_of_feed_ranges
from sdk.test_changes import test_over_a_split as test_over_a_split
from sdk.test_changes import test_with_bare_positions as test_with_bare_positions
from sdk.test_etags import first as first
from sdk.test_etags import test_writes_race as test_writes_race
from sdk.test_patch import patched as patched
from sdk.test_patch import test_conditions as test_conditions
from sdk.test_queries_cross_partition import filled as filled
from sdk.test_queries_cross_partition import pair as pair
from sdk.test_queries_cross_partition import (
    test_continuation_of_a_streamed_query as test_continuation_of_a_streamed_query,
)
from sdk.test_queries_cross_partition import test_counts_without_order as test_counts_without_order
from sdk.test_queries_cross_partition import test_feed_ranges as test_feed_ranges
from sdk.test_queries_cross_partition import test_pages as test_pages
from sdk.test_queries_cross_partition import test_rankings as test_rankings
from sdk.test_read_items import test_hierarchical as test_hierarchical
from sdk.test_read_items import test_many as test_many
from sdk.test_scripts import test_all_or_nothing as test_all_or_nothing
from sdk.test_scripts import test_functions_in_queries as test_functions_in_queries
from sdk.test_scripts import test_log as test_log
from sdk.test_scripts import test_triggers_of_a_batch as test_triggers_of_a_batch
from sdk.test_sessions import test_another_client_reads_with_the_token as test_another_client_reads_with_the_token
from sdk.test_sessions import test_each_range_has_its_own as test_each_range_has_its_own
